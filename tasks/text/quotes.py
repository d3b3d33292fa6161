"""Finding a quote in a text: exact containment after folding, with the span in the stored text."""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from tasks.text.fold import fold
from tasks.text.tokens import tokens

_ELLIPSIS = re.compile(r"\s*(?:[\[(]\s*)?(?:…|\.\s?\.\s?\.[.\s]*)(?:\s*[\])])?\s*")
_EDGES = string.whitespace + "\u00a0\"'“”‘’«»`"
MIN_TOKENS, MIN_CHARACTERS = 2, 5


class Span(NamedTuple):
    """Characters [start, end) of the stored text."""

    start: int
    end: int


def counts(fragment: str) -> bool:
    """Whether a fragment is long enough to prove anything: two words, or one of at least five characters."""
    words = tokens(fragment)
    return len(words) >= MIN_TOKENS or any(len(word) >= MIN_CHARACTERS for word in words)


def is_whole(quote: str, text: str) -> bool:
    """Whether the quote is all there is of the text, which makes any length count."""
    return bool(tokens(quote)) and tokens(quote) == tokens(text)


def find(quote: str, text: str, start: int = 0, end: int | None = None) -> Span | None:
    """The span of a quote within `text[start:end]`, or None.

    The quote is found as it stands, or, where an ellipsis splits it, by its fragments in order; fragments too short to
    count are passed over, and at least one must count. Surrounding quotation marks are not part of a quote.
    Fragments never come from outside the region.
    """
    folded = fold(text[start:end])
    needle = fold(quote.strip(_EDGES)).text
    if not needle:
        return None
    at = folded.text.find(needle)
    if at >= 0:
        return Span(start + folded.start[at], start + folded.end[at + len(needle) - 1])
    pieces = _ELLIPSIS.split(needle)
    fragments = [piece for piece in (piece.strip(_EDGES) for piece in pieces) if counts(piece)]
    if not fragments or len(pieces) == 1:
        return None
    places: list[int] = []
    position = 0
    for fragment in fragments:
        places.append(folded.text.find(fragment, position))
        if places[-1] < 0:
            return None
        position = places[-1] + len(fragment)
    return Span(start + folded.start[places[0]], start + folded.end[position - 1])
