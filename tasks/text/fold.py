"""Folding a text for comparison, with the way back to the stored characters."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import NamedTuple


class Folded(NamedTuple):
    """A folded text; character i of it came from `text[start[i]:end[i]]` of the stored one."""

    text: str
    start: tuple[int, ...] | range
    end: tuple[int, ...] | range


@lru_cache(maxsize=4096)
def fold(text: str) -> Folded:
    """Unicode NFC, case folding, and every run of white space as one space; none at the ends."""
    if text.isascii() and " ".join(text.split()) == text:
        return Folded(text.lower(), range(len(text)), range(1, len(text) + 1))
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in _clusters(text):
        piece = unicodedata.normalize("NFC", text[start:end]).casefold()
        if piece.isspace():
            if not characters or characters[-1] == " ":
                continue
            piece = " "
        characters += piece
        starts += [start] * len(piece)
        ends += [end] * len(piece)
    if characters and characters[-1] == " ":
        characters.pop()
    return Folded("".join(characters), tuple(starts[: len(characters)]), tuple(ends[: len(characters)]))


def _clusters(text: str) -> list[tuple[int, int]]:
    """Spans that normalise on their own: one character each in an NFC text, else a base with what composes onto it."""
    if unicodedata.is_normalized("NFC", text):
        return [(i, i + 1) for i in range(len(text))]
    heads = [i for i, c in enumerate(text) if not (unicodedata.combining(c) or "\u1160" <= c <= "\u11ff")]
    if not heads or heads[0] != 0:
        heads.insert(0, 0)
    return list(zip(heads, [*heads[1:], len(text)], strict=True))
