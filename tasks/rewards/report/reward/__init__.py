"""What graphs and rewards look like: pictures of rubric graphs, and the reward report."""
