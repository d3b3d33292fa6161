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


class Piece(NamedTuple, Generic[Label]):
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


def pieces(text: str, highlights: Iterable[Highlight[Label]]) -> tuple[Piece[Label], ...]:
    """The whole text in order. Highlights may overlap; one that does not lie in the text raises ValueError."""
    return _pieces(text, _checked(text, highlights), [Span(0, len(text))])


def excerpt(text: str, highlights: Iterable[Highlight[Label]]) -> tuple[Piece[Label], ...]:
    """The text in order, a long one only as its opening and the surroundings of its highlights, without long blanks.

    Highlights may overlap; one that does not lie in the text raises ValueError.
    """
    checked = _checked(text, highlights)
    return _pieces(text, checked, _shown(text, checked))


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


def _pieces(text: str, highlights: Sequence[Highlight[Label]], shown: Sequence[Span]) -> tuple[Piece[Label], ...]:
    edges = {0, len(text), *chain.from_iterable(shown)}
    highlight_edges = chain.from_iterable(highlight[:2] for highlight in highlights)
    edges |= {edge for edge in highlight_edges if any(start <= edge <= end for start, end in shown)}
    return tuple(_piece(text, start, end, highlights, shown) for start, end in pairwise(sorted(edges)))


def _piece(
    text: str, start: int, end: int, highlights: Sequence[Highlight[Label]], shown: Sequence[Span]
) -> Piece[Label]:
    if not any(part.start <= start and end <= part.end for part in shown):
        return Piece("", hidden=end - start)
    over = [highlight for highlight in highlights if highlight.start <= start and end <= highlight.end]
    starts = [highlight for highlight in over if highlight.start == start]
    ends = [highlight for highlight in over if highlight.end == end]
    return Piece(_newlines(text, start, end), _labels(over), _labels(starts), _labels(ends))


def _labels(highlights: Iterable[Highlight[Label]]) -> tuple[Label, ...]:
    return tuple(dict.fromkeys(highlight.label for highlight in highlights))


def _newlines(text: str, start: int, end: int) -> str:
    """The part with Windows line ends as single ones, also where a cut parts their halves."""
    part = text[start:end]
    if part.endswith("\r") and text[end : end + 1] == "\n":
        part = part[:-1]
    return part.replace("\r\n", "\n")


def _shown(text: str, highlights: Sequence[Highlight[Label]]) -> list[Span]:
    """The parts of the text that are shown, in order and apart."""
    windows = [Span(0, len(text))] if len(text) <= WHOLE else _windows(text, highlights)
    blanks = [Span(match.start() + 2, match.end() - 2) for match in _BLANK.finditer(text, 0, windows[-1].end)]
    parts = chain.from_iterable(_without(window, blanks) for window in _merged(windows))
    return [part for part in parts if part.start < part.end]


def _windows(text: str, highlights: Sequence[Highlight[Label]]) -> list[Span]:
    """The opening and the highlights with their surroundings, until the budget is spent."""
    windows, spent = [Span(0, OPENING)], OPENING
    in_order = sorted(highlights, key=lambda highlight: highlight[:2])
    for start, end in chain.from_iterable(_around(*highlight[:2]) for highlight in in_order):
        if spent >= BUDGET:
            break
        windows.append(Span(max(0, start), min(len(text), end)))
        spent += windows[-1].end - windows[-1].start
    return windows


def _around(start: int, end: int) -> list[Span]:
    if end - start <= 2 * WITHIN:
        return [Span(start - AROUND, end + AROUND)]
    return [Span(start - AROUND, start + WITHIN), Span(end - WITHIN, end + AROUND)]


def _merged(windows: Iterable[Span]) -> list[Span]:
    return [Span(*window[:2]) for window in joined(Highlight(*window, "") for window in windows)]


def _without(window: Span, holes: Sequence[Span]) -> list[Span]:
    """The window less the holes, which are in order."""
    parts, start = [], window.start
    for a, b in holes:
        if b <= start or a >= window.end:
            continue
        parts.append(Span(start, max(start, a)))
        start = b
    return [*parts, Span(start, window.end)] if start < window.end else parts
