"""The `accord admission` commands: requests to a node, and output."""
