"""What `accord policy …` is made of."""
