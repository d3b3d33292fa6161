"""Evidence by meaning: the span of a response that says what a quote says in other words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from tasks.judge.schema import MAX_QUOTE
from tasks.llm.encoder import Encoder
from tasks.text.edges import counts
from tasks.text.fold import folded
from tasks.text.languages import is_negated
from tasks.text.quotes import Span
from tasks.text.tokens import tokens
from tasks.text.units import Unit

THRESHOLD = 0.75
"""Chosen by figures (tests/studies/semantic.py): of 400 quotes of a real judge, of four words or more, that stand
nowhere in the answer, it accepts 50 % in that answer and 2 % in another student's answer to the same question,
who may have said the same. At 0.7 it is 59 % and 7 %, at 0.8 39 % and 1 %."""
WINDOW = 30
"""A longer sentence is read in windows of at most so many words."""
_PIECE = re.compile(r"\S+")


class Matcher:
    """Finds the span of one response that is closest in meaning to a quote: a sentence, or a window of a long one.

    A span is found where its cosine to the quote is at least `threshold`, both hold the same numbers, and both have
    words of negation or neither has: encoders are nearly blind to what these change. What a text means to the
    encoder is all that is known: the two may still differ in who does what.
    """

    def __init__(self, text: str, units: Sequence[Unit], encode: Encoder, threshold: float = THRESHOLD) -> None:
        self.threshold = threshold
        self._text, self._encode = text, encode
        sentences = [unit for unit in units if unit.kind == "sentence"]
        self.spans = list(chain.from_iterable(_windows(text, sentence) for sentence in sentences))
        self._vectors: dict[str, np.ndarray] = {}

    def prepare(self, quotes: Iterable[str]) -> None:
        """Encode what will be asked for at once."""
        spoken = [self._text[span.start : span.end] for span in self.spans]
        missing = [text for text in dict.fromkeys([*quotes, *spoken]) if text not in self._vectors]
        if missing:
            self._vectors |= zip(missing, self._encode(missing), strict=True)

    def find(self, quote: str, low: int, high: int) -> Span | None:
        """The closest span within the characters [low, high) of the response, or None."""
        spans = [span for span in self.spans if low <= span.start and span.end <= high]
        spans = [span for span in spans if _agree(quote, self._text[span.start : span.end])]
        if not spans:
            return None
        self.prepare([quote])
        vectors = np.stack([self._vectors[self._text[span.start : span.end]] for span in spans])
        cosine = vectors @ self._vectors[quote]
        best = int(cosine.argmax())
        return spans[best] if cosine[best] >= self.threshold else None


def _agree(quote: str, span: str) -> bool:
    """Whether two texts hold the same numbers and the same yes or no."""
    first, second = set(tokens(quote)), set(tokens(span))
    same_numbers = {word for word in first if word.isdigit()} == {word for word in second if word.isdigit()}
    return same_numbers and is_negated(folded(quote)) == is_negated(folded(span))


def _windows(text: str, unit: Unit) -> list[Span]:
    """A sentence, or its windows of even size; what is too short to count or longer than a quote may be is left out."""
    words = [match.span() for match in _PIECE.finditer(text, unit.start, unit.end)]
    size = -(-len(words) // -(-len(words) // WINDOW)) if words else 1
    windows = [words[start : start + size] for start in range(0, len(words), size)]
    spans = [Span(window[0][0], window[-1][1]) for window in windows]
    return [span for span in spans if span.end - span.start <= MAX_QUOTE and counts(text[span.start : span.end])]
