"""Secondary nodes, which have parents instead of a map, and their parents in the backbone."""
