"""What `accord net` and `accord channel` are made of."""
