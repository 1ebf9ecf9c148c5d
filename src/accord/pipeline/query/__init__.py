"""Queries of kept events: pages, histograms, files and outcomes, from the archive and the journal.

A small question is answered in this process by DataFusion, a large one by Spark: `planner`. Nothing
here imports Spark until it is used, so that small questions need no Java.
"""
