"""Two runs on one page: the figures of `evaluate.compare` in, an HTML page out. `task` holds all of it."""
