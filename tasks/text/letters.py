"""A folded text less everything that may be written otherwise without saying something else.

Spaces, hyphens, apostrophes, quotation marks, brackets, commas and invisible characters go; letters with their marks,
digits, signs that mean something (+ < = % ° $) and the ends of sentences within the text stay.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import chain
from typing import NamedTuple

import regex

from tasks.text.edges import figures
from tasks.text.negation import negations

_STOP = r"""[.!?。！？…]+(?=["'”’»)\]]*\s)|[。！？]"""
_MEANINGFUL = regex.compile(rf"[\p{{L}}\p{{N}}\p{{M}}]+|[\p{{Sm}}\p{{Sc}}\p{{So}}^%‰&@#*/\\--−]|{_STOP}", regex.V1)
_BARE = re.compile(r"[^\W_]+")
_STOPS = frozenset(".!?。！？…")


class Letters(NamedTuple):
    """The letters of a folded text, and where they stood."""

    source: str
    """The folded text."""
    text: str
    """What is left of it; the end of a sentence is a full stop."""
    places: tuple[int, ...]
    """Where in `text` each piece begins."""
    origins: tuple[int, ...]
    """Where in `source` it began."""

    def origin(self, index: int) -> int:
        """Where in `source` the character `index` of `text` stood."""
        piece = bisect_right(self.places, index) - 1
        return self.origins[piece] + index - self.places[piece]

    def place(self, origin: int) -> int:
        """Where in `text` a kept character of `source` stands."""
        piece = bisect_right(self.origins, origin) - 1
        return self.places[piece] + origin - self.origins[piece]

    def edges(self) -> frozenset[int]:
        """Where in `text` pieces begin and end."""
        return frozenset((*self.places, len(self.text)))


def bare_of(folded: str) -> str:
    """A folded text less all that is no letter or digit: what does not stand in it bare stands in it nowhere."""
    return "".join(_BARE.findall(folded))


def letters(folded: str) -> Letters:
    """The letters of a folded text."""
    pieces, places, origins, length = [], [], [], 0
    for match in _MEANINGFUL.finditer(folded):
        piece = "." if match[0][0] in _STOPS else match[0]
        pieces.append(piece)
        places.append(length)
        origins.append(match.start())
        length += len(piece)
    return Letters(folded, "".join(pieces), tuple(places), tuple(origins))


def say_the_same(first: Letters, second: Letters) -> bool:
    """Whether two texts of equal letters hold the same numbers and the same words of negation: none that is two words,
    or a part of one, in the other."""
    if figures(first.source) != figures(second.source):
        return False
    first_negations, second_negations = _negations(first), _negations(second)
    if len(first_negations) != len(second_negations):
        return False
    first_edges, second_edges = chain.from_iterable(first_negations), chain.from_iterable(second_negations)
    return second.edges().issuperset(first_edges) and first.edges().issuperset(second_edges)


def _negations(folded_letters: Letters) -> list[tuple[int, int]]:
    """Where words of negation begin and end among the letters."""
    return [
        (folded_letters.place(low), folded_letters.place(high - 1) + 1)
        for low, high in negations(folded_letters.source)
    ]
