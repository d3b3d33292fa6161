"""A folded text less everything that may be written otherwise without saying something else.

Spaces, hyphens, apostrophes, quotation marks, brackets, commas and invisible characters go; letters with their marks,
digits, signs that mean something (+ < = % ° $) and the ends of sentences within the text stay.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import chain, pairwise
from typing import NamedTuple

import regex

from rubricflow.tasks.core.text.edges import figures
from rubricflow.tasks.core.text.languages import is_known, negations

_STOP = r"""[.!?。！？…]+(?=["'”’»)\]]*\s)|[。！？]"""
_MEANINGFUL = regex.compile(rf"[\p{{L}}\p{{N}}\p{{M}}]+|[\p{{Sm}}\p{{Sc}}\p{{So}}^%‰&@#*/\\--−]|{_STOP}", regex.V1)
_BARE = re.compile(r"[^\W_]+")
_STOPS = frozenset(".!?。！？…")
_APOSTROPHE = re.compile(r" ?['’‘ʼ`´](?=(?:s|t|re|ll|ve|d|m)(?![^\W_]))|(?<=[^\W_])['’‘ʼ`´](?=[^\W_])")
_POSSESSIVE = re.compile(r"(?<=[^\W\d_]{4})'s(?![^\W_])")
_BRACKETS = re.compile(r"(?<=[^\W_])[()\[\]{}]+(?=[^\W_])")
_WORD = re.compile(r"\d+|(?:(?!\d)[^\W_])+(?:'(?:(?!\d)[^\W_])+)*")
_PREFIXES = {
    "en": "a ab an anti counter dis ex il im in ir mal mis non over re un under",
    "de": "ent in miss un ver",
    "es": "a anti contra des im in ir",
    "fr": "a anti contre des dé im in ir mal mé",
    "it": "a anti contro dis im in ir mal",
    "nl": "in mis on ont ver",
    "pt": "a anti contra des im in ir",
    "ru": "а без не",
}
"""Prefixes that make another word, by language; those of English in all."""
_HYPHEN = r"[-‐‑–]"
_PARTED = sorted({"co", "de", "pre", "pro", *" ".join(_PREFIXES.values()).split()} - {"anti", "counter"})
_COMPOUND = re.compile(
    rf"(?<![^\W_])(?!(?:{'|'.join(_PARTED)})"
    rf"{_HYPHEN})([^\W\d_]{{2,}}){_HYPHEN}(?=[^\W\d_])"
)
"""A hyphen after a word that is no prefix: north-east is northeast."""
_SUFFIXES = frozenset(("free", "less", "proof"))
_LEAST_STEM = 4
"""Letters behind a prefix that may be a word: a lot has fewer, a typical more."""


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

    def words(self, low: int, high: int) -> tuple[list[str], ...]:
        """The words and numbers of `text[low:high]`, which begins and ends at edges, as they are divided in `source`;
        then those that are left where no bracket divides them, and where no hyphen of a compound does."""
        stored = self.source[self.origin(low) : self.origin(high - 1) + 1]
        stored = _POSSESSIVE.sub("s", _APOSTROPHE.sub("'", stored))
        return tuple(
            _WORD.findall(undivided) for undivided in (stored, _BRACKETS.sub("", stored), _COMPOUND.sub(r"\1", stored))
        )


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


def say_the_same(first: Letters, second: Letters, language: str | None) -> bool:
    """Whether two texts of equal letters say the same: they hold the same numbers and words of negation, and none has
    other words by another place of a blank, hyphen or apostrophe.

    language: that of the texts, or None where it is not known: then none may be divided otherwise at all. Where it is
    known one side must hold what is no word (alot, pho tosynthesis), so that it is a slip and no other word (a part and
    apart, were and we're, resent and re-sent), and no prefix may come off (in famus).
    """
    if figures(first.source) != figures(second.source):
        return False
    first_negations, second_negations = _negations(first), _negations(second)
    if len(first_negations) != len(second_negations):
        return False
    first_edges, second_edges = chain.from_iterable(first_negations), chain.from_iterable(second_negations)
    if not (second.edges().issuperset(first_edges) and first.edges().issuperset(second_edges)):
        return False
    common = sorted(first.edges() & second.edges())
    return all(
        _are_slips(first.words(low, high), second.words(low, high), language)
        for low, high in pairwise(common)
        if not all(any(start <= low and high <= end for start, end in of) for of in (first_negations, second_negations))
    )


def _are_slips(first_ways: tuple[list[str], ...], second_ways: tuple[list[str], ...], language: str | None) -> bool:
    """Whether the same letters, in other words in each way to divide them, are a slip."""
    told = 3 if language else 2
    if any(way in second_ways[:told] for way in first_ways[:told]):
        return True
    first, second = first_ways[0], second_ways[0]
    if language is None or all(is_known(word, language) for word in (*first, *second) if not word.isdigit()):
        return False
    prefixes = f"{_PREFIXES[language]} {_PREFIXES['en']}".split()
    return not any(
        (one in prefixes and len(other) >= _LEAST_STEM) or other in _SUFFIXES or len(one) == len(other) == 1
        for words in (first, second)
        for one, other in pairwise(words)
    )


def _negations(folded_letters: Letters) -> list[tuple[int, int]]:
    """Where words of negation begin and end among the letters."""
    return [
        (folded_letters.place(low), folded_letters.place(high - 1) + 1)
        for low, high in negations(folded_letters.source)
    ]
