"""A text as pieces, cut wherever a highlight begins or ends; long texts are cut around their highlights."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Generic, NamedTuple, TypeVar

from rubricflow.tasks.core.text.quotes import Span

Label = TypeVar("Label", bound=Hashable)
WHOLE, OPENING, AROUND, WITHIN, BUDGET = 1500, 500, 160, 320, 4000
"""Characters: a text shown whole; the opening of a longer one; context on each side of a highlight; of a highlight's
beginning and end; all in all."""
_BLANK = re.compile(r"\s{30,}")


class Highlight(NamedTuple, Generic[Label]):
    """Characters [start, end) of the stored text, and what they stand for."""

    start: int
    end: int
    label: Label


class TextPiece(NamedTuple, Generic[Label]):
    """A run of the text under the same highlights; without text it stands for `hidden` characters that are left out."""

    text: str
    """As stored, but for Windows line ends, which become single ones."""
    labels: tuple[Label, ...] = ()
    """Of the highlights over it, each once; so are the following."""
    starts: tuple[Label, ...] = ()
    """Of those that begin with it."""
    ends: tuple[Label, ...] = ()
    """Of those that end with it."""
    hidden: int = 0


def pieces(text: str, highlights: Iterable[Highlight[Label]]) -> tuple[TextPiece[Label], ...]:
    """The whole text in order. Highlights may overlap; one that does not lie in the text raises ValueError."""
    return _pieces(text, _checked(text, highlights), [Span(0, len(text))])


def excerpt(text: str, highlights: Iterable[Highlight[Label]]) -> tuple[TextPiece[Label], ...]:
    """The text in order, a long one only as its opening and the surroundings of its highlights, without long blanks.

    Highlights may overlap; one that does not lie in the text raises ValueError.
    """
    checked = _checked(text, highlights)
    windows = [Span(0, len(text))] if len(text) <= WHOLE else _windows(text, checked)
    merged = joined(Highlight(*window, "") for window in windows)
    blanks = [(blank.start() + 2, blank.end() - 2) for blank in _BLANK.finditer(text, 0, windows[-1].end)]
    shown = []
    for start, end, _ in merged:
        for low, high in blanks:
            if start < high and low < end:
                shown.append(Span(start, max(start, low)))
                start = high
        shown.append(Span(start, end))
    return _pieces(text, checked, [part for part in shown if part.start < part.end])


def joined(highlights: Iterable[Highlight[Label]]) -> list[Highlight[Label]]:
    """What overlaps or touches under one label as one highlight, in order."""
    by_label: dict[Label, list[Highlight[Label]]] = {}
    for highlight in sorted(highlights):
        same = by_label.setdefault(highlight.label, [])
        if same and highlight.start <= same[-1].end:
            same[-1] = same[-1]._replace(end=max(same[-1].end, highlight.end))
        else:
            same.append(highlight)
    return sorted(chain.from_iterable(by_label.values()))


def _checked(text: str, highlights: Iterable[Highlight[Label]]) -> list[Highlight[Label]]:
    """Those that are not empty."""
    checked = [highlight for highlight in highlights if highlight.start < highlight.end]
    if any(highlight.start < 0 or highlight.end > len(text) for highlight in checked):
        raise ValueError(f"a highlight lies outside the text of {len(text)} characters")
    return checked


def _windows(text: str, highlights: Iterable[Highlight[Label]]) -> list[Span]:
    """The opening and the highlights with their surroundings, until the budget is spent."""
    windows, left = [Span(0, OPENING)], BUDGET - OPENING
    for start, end in sorted(highlight[:2] for highlight in highlights):
        parts = [(start - AROUND, end + AROUND)]
        if end - start > 2 * WITHIN:
            parts = [(start - AROUND, start + WITHIN), (end - WITHIN, end + AROUND)]
        for low, high in parts:
            if left > 0:
                windows.append(Span(max(0, low), min(len(text), high)))
                left -= windows[-1].end - windows[-1].start
    return windows


def _pieces(text: str, highlights: Sequence[Highlight[Label]], shown: Sequence[Span]) -> tuple[TextPiece[Label], ...]:
    """The text cut at the edges of what is shown and of the highlights in it."""
    edges = {0, len(text), *chain.from_iterable(shown)}
    for edge in chain.from_iterable(highlight[:2] for highlight in highlights):
        if any(start <= edge <= end for start, end in shown):
            edges.add(edge)
    cut: list[TextPiece[Label]] = []
    for start, end in pairwise(sorted(edges)):
        if not any(part.start <= start and end <= part.end for part in shown):
            cut.append(TextPiece("", hidden=end - start))
            continue
        over = [highlight for highlight in highlights if highlight.start <= start and end <= highlight.end]
        part = text[start:end]
        if part.endswith("\r") and text.startswith("\n", end):  # a cut parts the halves of a Windows line end
            part = part[:-1]
        labels = dict.fromkeys(highlight.label for highlight in over)
        starts = dict.fromkeys(highlight.label for highlight in over if highlight.start == start)
        ends = dict.fromkeys(highlight.label for highlight in over if highlight.end == end)
        cut.append(TextPiece(part.replace("\r\n", "\n"), tuple(labels), tuple(starts), tuple(ends)))
    return tuple(cut)
