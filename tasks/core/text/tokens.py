"""Tokens: runs of letters and digits, lower case; in Chinese and Japanese, written without spaces, every character."""

from __future__ import annotations

import re
import unicodedata

SIGN = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""Kana and Han: a pattern for one character."""
_WORD = re.compile(r"[^\W_]+")
_SIGN = re.compile(SIGN)
_WORD_OR_SIGN = re.compile(rf"{SIGN}|(?:(?!{SIGN})[^\W_])+")


def tokens(text: str) -> list[str]:
    """Lower-case alphanumeric tokens in order; punctuation and underscores separate, an accent does not."""
    return words(composed(text))


def words(text: str) -> list[str]:
    """The tokens of a text that is already in lower case and composed."""
    return (_WORD if text.isascii() or not _SIGN.search(text) else _WORD_OR_SIGN).findall(text)


def composed(text: str) -> str:
    """The text in which tokens are looked for: lower case, accents composed with their letters."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).lower()
