"""Tokens: runs of letters and digits, lower case."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")


def tokens(text: str) -> list[str]:
    """Lower-case alphanumeric tokens in order; punctuation and underscores separate."""
    return _WORD.findall(text.lower())
