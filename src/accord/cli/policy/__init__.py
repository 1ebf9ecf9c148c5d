"""The `accord policy …` commands."""
