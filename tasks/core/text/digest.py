"""The digest of a text and what is drawn by it, and halves of surrogate pairs, which no file holds."""

from __future__ import annotations

import hashlib
import re

HALF_PAIR = re.compile("[\ud800-\udfff]")


def text_digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, 64 hex digits; also of one with half a surrogate pair, which UTF-8 does not know."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def nonce(text: str) -> str:
    """The code of a text's fence in a prompt, 16 hex digits made of the text: the same text makes the same prompt, and
    one that held its own fence would have another."""
    return text_digest(text)[:16]


def digest_bytes(text: str) -> bytes:
    """The same as 32 bytes. By those of a seed and their name things stand in a chance order that stays, whatever order
    they came in."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def without_half_pairs(text: str) -> str:
    """A text with U+FFFD in place of each half of a surrogate pair."""
    return text if text.isascii() else HALF_PAIR.sub("\ufffd", text)
