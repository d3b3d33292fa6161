"""Folding a text for comparison, with the way back to the stored characters."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tasks.text.letters import Letters, bare_of, letters

_WORD = re.compile(r"\S+")
_LATER = re.compile("[^\x00-\u02ff]")


class Folded:
    """A folded text; character i of it came from `source[start[i]:end[i]]` of the stored one.

    Most folded texts are only looked through, so the way back is worked out when it is first asked for.
    """

    __slots__ = ("_bare", "_is_aligned", "_letters", "_places", "source", "text")

    def __init__(self, source: str) -> None:
        self.source = source
        self.text = folded(source)
        self._is_aligned: bool | None = None if len(self.text) == len(source) else False
        self._places: tuple[Sequence[int], Sequence[int]] | None = None
        self._letters: Letters | None = None
        self._bare: str | None = None

    @property
    def bare(self) -> str:
        """The folded text less all that is no letter or digit."""
        if self._bare is None:
            self._bare = bare_of(self.text)
        return self._bare

    @property
    def letters(self) -> Letters:
        """The letters of the folded text."""
        if self._letters is None:
            self._letters = letters(self.text)
        return self._letters

    @property
    def start(self) -> Sequence[int]:
        """For each folded character the first stored one that it came from."""
        return self._back()[0]

    @property
    def end(self) -> Sequence[int]:
        """For each folded character one past the last stored one that it came from."""
        return self._back()[1]

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Stored characters [start, end) that the folded ones [low, high) came from, at least one of them."""
        if self._is_aligned is None:
            self._is_aligned = _is_single(self.source)
        if self._is_aligned:
            return low, high
        starts, ends = self._back()
        return starts[low], ends[high - 1]

    def _back(self) -> tuple[Sequence[int], Sequence[int]]:
        if self._places is None:
            self._places = _places(self.source)
        return self._places


def folded(text: str) -> str:
    """Unicode NFC, case folding, and every run of white space as one space; none at the ends."""
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


@lru_cache(maxsize=512)
def fold(text: str) -> Folded:
    """A folded text with the way back, kept for when the same text comes again."""
    return Folded(text)


def _places(text: str) -> tuple[Sequence[int], Sequence[int]]:
    """First and one past the last stored character of each folded one."""
    starts, ends = array("L"), array("L")
    single = _is_single(text)
    for word in _WORD.finditer(text):
        low, high = word.span()
        if ends:
            starts.append(ends[-1])
            ends.append(low)
        if single or word[0].isascii():
            starts.extend(range(low, high))
            ends.extend(range(low + 1, high + 1))
            continue
        for start, end in _clusters(text, low, high):
            size = len(unicodedata.normalize("NFC", text[start:end]).casefold())
            starts.extend([start] * size)
            ends.extend([end] * size)
    return starts, ends


def _is_single(text: str) -> bool:
    """Whether every character folds alone, and to one character."""
    if text.isascii():
        return True
    # Nothing folds to less than one character, so where the length stays nothing folds to more either.
    return (
        unicodedata.is_normalized("NFC", text)
        and len(text.casefold()) == len(text)
        and not any(_joins(c) for c in _LATER.findall(text))
    )


def _joins(c: str) -> bool:
    """Whether a character may compose onto the one before it: a mark, or a vowel or final jamo."""
    return c > "\u02ff" and (unicodedata.category(c)[0] == "M" or "\u1160" <= c <= "\u11ff")


def _clusters(text: str, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Spans that normalise on their own: a character with those behind it that may compose onto it."""
    start = low
    for i in range(low + 1, high):
        if not _joins(text[i]):
            yield start, i
            start = i
    yield start, high
