"""Misspelled words: one that the encoder does not know is read as the closest word of the question or the rubric."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain

WORD = re.compile(r"\b[^\W\d_]{4,}\b")
CLOSENESS = 0.75


def reader(sources: Iterable[str], knows: Callable[[str], bool]) -> Callable[[str], str]:
    """A function that replaces unknown words (of four letters or more) by the closest word of the sources.

    knows: whether a lower-case word is a whole word to the encoder. Words further away than `CLOSENESS` (the share of
    letters in common, in order) stay as they are, and so do all words of the sources.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    words = sorted(set(map(str.lower, chain.from_iterable(map(WORD.findall, sources)))))
    source_words = frozenset(words)

    @cache
    def closest(word: str) -> str:
        if word in source_words or knows(word):
            return word
        best = process.extractOne(word, words, scorer=Indel.normalized_similarity, score_cutoff=CLOSENESS)
        return best[0] if best else word

    def read(match: re.Match[str]) -> str:
        word = match[0].lower()
        replacement = closest(word)
        return match[0] if replacement == word else replacement

    return lambda text: WORD.sub(read, text)
