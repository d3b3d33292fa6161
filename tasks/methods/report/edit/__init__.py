"""What trained policies look like: the report that compares arms, and shows where their reasoning was mended."""
