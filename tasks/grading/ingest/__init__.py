"""Foreign layouts to the canonical tables, and splits."""
