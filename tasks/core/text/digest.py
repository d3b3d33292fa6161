"""The digest of a text."""

from __future__ import annotations

import hashlib


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, 64 hex digits; also of one with half a surrogate pair, which UTF-8 does not know."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
