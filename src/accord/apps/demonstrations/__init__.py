"""Demonstrations of a thin link: scenarios as data, and one runner with real clients."""
