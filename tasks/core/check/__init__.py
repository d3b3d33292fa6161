"""Checkpoints: what a stage wrote is held against its contracts before the next stage reads it."""
