"""Judging: prompts and contract from the bundle, deterministic verification, scores, raters that need no server."""
