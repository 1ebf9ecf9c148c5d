"""Secondary nodes, which have parents instead of a map, and the nodes that are their parents."""
