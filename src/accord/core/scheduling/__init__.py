"""What goes first: queues by importance in front of a destination."""
