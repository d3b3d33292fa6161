"""A first study and rubric, drafted from what a data file shows."""
