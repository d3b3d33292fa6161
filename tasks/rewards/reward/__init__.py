"""Reward: judgments and a graph in, rewards and what they leak out."""
