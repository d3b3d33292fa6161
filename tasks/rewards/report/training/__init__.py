"""What a training looks like from its rewards: curves over its steps, and the rollouts to read."""
