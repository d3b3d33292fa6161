"""The page of two runs beside each other."""
