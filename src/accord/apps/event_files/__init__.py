"""Events in files: JSON lines and Parquet."""
