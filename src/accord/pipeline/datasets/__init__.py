"""Analyses of the archive's tables: pure functions from DataFrame to DataFrame."""
