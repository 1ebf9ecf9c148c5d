"""Demonstrations of a thin link: scenarios as data, one runner that plays them on real clients."""
