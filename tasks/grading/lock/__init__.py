"""Rubric to locked bundle: author, derive, lint, lock by hash."""
