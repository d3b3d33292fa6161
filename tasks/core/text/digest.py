"""The digest of a text, and halves of surrogate pairs, which no file holds."""

from __future__ import annotations

import hashlib
import re

HALF_PAIR = re.compile("[\ud800-\udfff]")


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, 64 hex digits; also of one with half a surrogate pair, which UTF-8 does not know."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def without_half_pairs(text: str) -> str:
    """A text with U+FFFD in place of each half of a surrogate pair."""
    return text if text.isascii() else HALF_PAIR.sub("\ufffd", text)
