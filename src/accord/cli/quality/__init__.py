"""The `accord quality` commands."""
