"""Asking a model: requests go out in waves, replies are kept, checked and mended. Knows nothing of grading."""
