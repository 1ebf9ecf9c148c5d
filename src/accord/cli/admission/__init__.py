"""What `accord admission` asks a node, and how it looks."""
