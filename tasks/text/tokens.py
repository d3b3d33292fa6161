"""Tokens: runs of letters and digits, lower case."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")


def tokens(text: str) -> list[str]:
    """Lower-case alphanumeric tokens in order; punctuation and underscores separate, an accent does not."""
    return _WORD.findall(composed(text))


def composed(text: str) -> str:
    """The text in which tokens are looked for: lower case, accents composed with their letters."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).lower()
