"""A response with what concepts look at shaded, and the number of the concept behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tasks.display.marked import marked
from tasks.text.highlight import Highlight, excerpt

JOINED = re.compile(r"[\s,;:.'’“”\"()\-–]{0,3}")
"""What may lie between two tokens that are shaded as one."""
SHADES = 3


class Looked(NamedTuple):
    """A piece [start, end) of the response that one concept looks at more than any other."""

    start: int
    end: int
    number: int
    """Of the concept, from 1."""
    weight: float
    """Its heaviest token's share of the concept's attention."""


def looked(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[Looked]:
    """What is looked at, in order and without overlaps: each token goes to the concept that weighs it most; neighbours
    of one concept are joined. attention: number of the concept → its `Attended` rows."""
    tokens = [Looked(at["start"], at["end"], number, at["weight"]) for number, of in attention.items() for at in of]
    kept: list[Looked] = []
    for token in sorted(tokens, key=lambda token: (-token.weight, token)):
        if token.start < token.end and all(token.end <= one.start or one.end <= token.start for one in kept):
            kept.append(token)
    joined: list[Looked] = []
    for token in sorted(kept):
        last = joined[-1] if joined else None
        if last and last.number == token.number and JOINED.fullmatch(text[last.end : token.start]):
            joined[-1] = Looked(last.start, token.end, token.number, max(last.weight, token.weight))
        else:
            joined.append(token)
    return joined


def shaded(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> Markup:
    """The response as HTML, a long one cut around what is looked at: marks of the classes w1 to w3, the heaviest."""
    pieces = looked(text, attention)
    most = max((piece.weight for piece in pieces), default=0.0) or 1.0

    def shade(over: Sequence[Looked]) -> str:
        return f"w{min(1 + int(SHADES * over[0].weight / most), SHADES)}" if over else ""

    highlights = [Highlight(piece.start, piece.end, piece) for piece in pieces]
    return marked(excerpt(text, highlights), shade, lambda piece: piece.number)
