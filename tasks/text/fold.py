"""Folding a text for comparison, with the way back to the stored characters."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_WORD = re.compile(r"\S+")


class Folded(NamedTuple):
    """A folded text; character i of it came from `text[start[i]:end[i]]` of the stored one."""

    text: str
    start: Sequence[int]
    end: Sequence[int]


@lru_cache(maxsize=512)
def fold(text: str) -> Folded:
    """Unicode NFC, case folding, and every run of white space as one space; none at the ends."""
    if text.isascii() and " ".join(text.split()) == text:
        return Folded(text.lower(), range(len(text)), range(1, len(text) + 1))
    pieces: list[str] = []
    starts, ends = array("L"), array("L")
    for word in _WORD.finditer(text):
        if pieces:
            pieces.append(" ")
            starts.append(ends[-1])
            ends.append(word.start())
        if word[0].isascii():
            pieces.append(word[0].lower())
            starts.extend(range(word.start(), word.end()))
            ends.extend(range(word.start() + 1, word.end() + 1))
            continue
        for start, end in _clusters(text, word.start(), word.end()):
            piece = unicodedata.normalize("NFC", text[start:end]).casefold()
            pieces.append(piece)
            starts.extend([start] * len(piece))
            ends.extend([end] * len(piece))
    return Folded("".join(pieces), starts, ends)


def _clusters(text: str, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Spans that normalise on their own: a character with the marks and vowel or final jamo behind it, which alone can
    compose onto another."""
    start = low
    for i in range(low + 1, high):
        c = text[i]
        if c.isascii() or not (unicodedata.category(c)[0] == "M" or "\u1160" <= c <= "\u11ff"):
            yield start, i
            start = i
    yield start, high
