"""Judging: prompts and contract from the bundle, deterministic verification, scores, and the raters that need no server."""
