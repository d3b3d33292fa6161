"""Statistics of agreement between score columns, and their cluster bootstrap intervals."""
