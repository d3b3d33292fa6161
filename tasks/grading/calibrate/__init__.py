"""Raw gradings to scores on the human scale."""
