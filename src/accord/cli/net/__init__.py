"""The `accord net` and `accord channel` commands."""
