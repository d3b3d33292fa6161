"""The page of an experiment, and its tables in a terminal."""
