"""History of persistent channels: replayed from the journals of all nodes before live events."""
