"""Scheduling: priority queues, strategies, pacing and link estimation per destination."""
