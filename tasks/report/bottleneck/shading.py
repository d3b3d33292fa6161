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


class AttendedSpan(NamedTuple):
    """A piece [start, end) of the response that one concept looks at more than any other."""

    start: int
    end: int
    number: int
    """Of the concept, from 1."""
    weight: float
    """Its heaviest token's share of the concept's attention."""


def attended_spans(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[AttendedSpan]:
    """What is looked at, in order and without overlaps: each token goes to the concept that weighs it most; neighbours
    of one concept are joined. attention: number of the concept → its `Attended` rows."""
    tokens: list[AttendedSpan] = []
    for number, attended in attention.items():
        tokens += [AttendedSpan(token["start"], token["end"], number, token["weight"]) for token in attended]
    chosen: list[AttendedSpan] = []
    for token in sorted(tokens, key=lambda token: (-token.weight, token)):
        if token.start < token.end and all(token.end <= other.start or other.end <= token.start for other in chosen):
            chosen.append(token)
    joined: list[AttendedSpan] = []
    for token in sorted(chosen):
        last = joined[-1] if joined else None
        if last and last.number == token.number and JOINED.fullmatch(text[last.end : token.start]):
            joined[-1] = AttendedSpan(last.start, token.end, token.number, max(last.weight, token.weight))
        else:
            joined.append(token)
    return joined


def shaded(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> Markup:
    """The response as HTML, a long one cut around what is looked at: marks of the classes w1 to w3, the heaviest."""
    pieces = attended_spans(text, attention)
    most = max((piece.weight for piece in pieces), default=0.0) or 1.0

    def shade(over: Sequence[AttendedSpan]) -> str:
        return f"w{min(1 + int(SHADES * over[0].weight / most), SHADES)}" if over else ""

    highlights = [Highlight(piece.start, piece.end, piece) for piece in pieces]
    return marked(excerpt(text, highlights), shade, lambda piece: piece.number)
