"""A student's answer as pieces: quoted spans marked, what cannot be seen made visible, long texts cut around quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from tasks.display.say import visible
from tasks.report.grading.parts import Piece

WHOLE, OPENING, AROUND, WITHIN, BUDGET = 1500, 500, 160, 320, 4000
"""Characters: a text shown whole; the opening of a longer one; context on each side of a span; of a span's beginning
and end; all in all."""
_BLANK = re.compile(r"\s{30,}")


class Span(NamedTuple):
    """Characters [start, end) of the stored text, quoted for a criterion by the machine or by a person."""

    start: int
    end: int
    criterion: str
    by: Literal["machine", "people"]


def pieces(text: str, spans: Iterable[Span]) -> tuple[Piece, ...]:
    """The text in order, cut wherever a span begins or ends and where something is left out.

    The pieces' text is that of the stored text, with what cannot be seen as ⟨U+202E⟩. Spans may overlap; one that
    does not lie in the text raises ValueError.
    """
    found = [span for span in spans if span.start < span.end]
    if any(span.start < 0 or span.end > len(text) for span in found):
        raise ValueError(f"a span lies outside the text of {len(text)} characters")
    shown = _shown(text, found)
    edges = {0, len(text)} | {edge for window in shown for edge in window}
    edges |= {edge for span in found for edge in span[:2] if any(a <= edge <= b for a, b in shown)}
    cuts = sorted(edges)
    made = []
    for start, end in pairwise(cuts):
        if not any(a <= start and end <= b for a, b in shown):
            made.append(Piece("", hidden=end - start))
            continue
        over = [span for span in found if span.start <= start and end <= span.end]
        machine, people = (_criteria(over, by) for by in ("machine", "people"))
        ends = _criteria([span for span in over if span.end == end], None)
        made.append(Piece(_newlines(text, start, end), machine, people, ends))
    return tuple(made)


def _criteria(spans: Sequence[Span], by: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(span.criterion for span in spans if by in (None, span.by)))


def _newlines(text: str, start: int, end: int) -> str:
    """The part as it is shown; the first half of a Windows line end is not a character to point out."""
    part = text[start:end]
    if part.endswith("\r") and text[end : end + 1] == "\n":
        part = part[:-1]
    return visible(part.replace("\r\n", "\n"))


def _shown(text: str, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The parts of the text that are shown, in order and apart."""
    if len(text) <= WHOLE:
        windows = [(0, len(text))]
    else:
        windows, spent = [(0, OPENING)], OPENING
        for span in sorted(spans):
            for a, b in _windows(span):
                wanted = max(0, a), min(len(text), b)
                if spent < BUDGET:
                    windows.append(wanted)
                    spent += wanted[1] - wanted[0]
    blanks = [(found.start() + 2, found.end() - 2) for found in _BLANK.finditer(text, 0, windows[-1][1])]
    merged: list[tuple[int, int]] = []
    for a, b in sorted(windows):
        if merged and a <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], b)
        else:
            merged.append((a, b))
    return [part for window in merged for part in _without(window, blanks) if part[0] < part[1]]


def _windows(span: Span) -> list[tuple[int, int]]:
    start, end = span.start, span.end
    if end - start <= 2 * WITHIN:
        return [(start - AROUND, end + AROUND)]
    return [(start - AROUND, start + WITHIN), (end - WITHIN, end + AROUND)]


def _without(window: tuple[int, int], holes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The window less the holes, which are in order."""
    parts, start = [], window[0]
    for a, b in holes:
        if b <= start or a >= window[1]:
            continue
        parts.append((start, max(start, a)))
        start = b
    return [*parts, (start, window[1])] if start < window[1] else parts
