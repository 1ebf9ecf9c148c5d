"""What `accord quality` shows and asks."""
