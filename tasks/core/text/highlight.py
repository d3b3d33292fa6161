"""A text as pieces, cut wherever a highlight begins or ends; long texts are cut around their highlights."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Label = TypeVar("Label", bound=Hashable)
WHOLE, OPENING, AROUND, WITHIN, BUDGET = 1500, 500, 160, 320, 4000
"""Characters: a text shown whole; the opening of a longer one; context on each side of a highlight; of a highlight's
beginning and end; all in all."""
Mask = npt.NDArray[np.bool_]
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
    is_heading: bool = False
    """Whether it is nobody's words but says what follows, see `tasks.core.text.traces`."""


Headings = Sequence[tuple[int, int]]
"""Where the headings of a text stand, in order."""


def pieces(text: str, highlights: Iterable[Highlight[Label]], headings: Headings = ()) -> tuple[TextPiece[Label], ...]:
    """The whole text in order. Highlights may overlap; one that does not lie in the text raises ValueError."""
    return _pieces(text, _checked(text, highlights), np.ones(len(text), bool), headings)


def excerpt(text: str, highlights: Iterable[Highlight[Label]], headings: Headings = ()) -> tuple[TextPiece[Label], ...]:
    """The text in order, a long one only as its opening and the surroundings of its highlights, each with the heading
    under which it stands, without long blanks.

    Highlights may overlap; one that does not lie in the text raises ValueError.
    """
    checked = _checked(text, highlights)
    shown = np.ones(len(text), bool)
    if len(text) > WHOLE:
        shown[OPENING:] = False
        left = BUDGET - OPENING
        for start, end, _ in sorted(checked, key=lambda highlight: highlight[:2]):
            parts = [(start - AROUND, end + AROUND)]
            if end - start > 2 * WITHIN:
                parts = [(start - AROUND, start + WITHIN), (end - WITHIN, end + AROUND)]
            for low, high in parts:
                if left > 0:
                    for above in [heading for heading in headings if heading[0] <= start][-1:]:
                        shown[slice(*above)] = True
                    around = slice(max(0, low), min(len(text), high))
                    shown[around] = True
                    left -= around.stop - around.start
    for blank in _BLANK.finditer(text):
        shown[blank.start() + 2 : blank.end() - 2] = False
    return _pieces(text, checked, shown, headings)


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


def _pieces(
    text: str, highlights: Sequence[Highlight[Label]], shown: Mask, headings: Headings
) -> tuple[TextPiece[Label], ...]:
    """The text cut at the edges of what is shown and of the highlights and headings in it. shown: of each character."""
    edges = {0, len(text), *(np.flatnonzero(shown[1:] != shown[:-1]) + 1).tolist()}
    titles = [heading for heading in headings if shown[slice(*heading)].all()]
    for edge in chain(*titles, *(highlight[:2] for highlight in highlights)):
        if shown[max(0, edge - 1) : edge + 1].any():
            edges.add(edge)
    cut: list[TextPiece[Label]] = []
    for start, end in pairwise(sorted(edges)):
        if not shown[start]:
            cut.append(TextPiece("", hidden=end - start))
            continue
        over = [highlight for highlight in highlights if highlight.start <= start and end <= highlight.end]
        part = text[start:end]
        if part.endswith("\r") and text.startswith("\n", end):  # a cut parts the halves of a Windows line end
            part = part[:-1]
        labels = dict.fromkeys(highlight.label for highlight in over)
        starts = dict.fromkeys(highlight.label for highlight in over if highlight.start == start)
        ends = dict.fromkeys(highlight.label for highlight in over if highlight.end == end)
        is_heading = any(low <= start and end <= high for low, high in titles)
        piece = TextPiece(part.replace("\r\n", "\n"), tuple(labels), tuple(starts), tuple(ends), 0, is_heading)
        cut.append(piece)
    return tuple(cut)
