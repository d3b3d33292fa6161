"""Two correlations of concepts in one square, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.bars import HEAD

CELL = 34
"""Px: height of a cell."""


class Half(NamedTuple):
    """A correlation of two concepts: among labels, and given all others; None where it is undefined."""

    labels: float | None
    partial: float


def square(names: Sequence[str], halves: Mapping[tuple[int, int], Half]) -> Markup:
    """Above the diagonal how labels go together, below it what is left given all other concepts.

    names: the concepts in order. found: (row, column) with row < column → both. The tint says how strong, a dashed
    frame that it is negative; the number says both.
    """
    start = 36.0
    wide = (100 - start) / max(len(names), 1)
    marks, sentences = list[Markup](), list[str]()
    for index, name in enumerate(names):
        y = float(HEAD + CELL * index)
        marks.append(draw.text(start + wide * (index + 0.5), 12, str(index + 1), "it"))
        marks.append(draw.text(start - 1.5, y + CELL / 2 + 4, f"{say.cut(name, 20)} {index + 1}", "it", "end"))
        marks.append(draw.box(start + wide * index, y, wide, CELL, "band"))
    for (row, column), half in halves.items():
        for down, right, value in ((row, column, half.labels), (column, row, half.partial)):
            x, y = start + wide * right, float(HEAD + CELL * down)
            marks += _cell(x, y, wide, value)
        labels = "undefined" if half.labels is None else say.number(half.labels)
        sentences.append(f"{names[row]} and {names[column]}: labels {labels}, partial {say.number(half.partial)}")
    height = HEAD + CELL * len(names) + 22
    marks.append(draw.text(100, height - 4, "above: labels; below: given all other concepts", "", "end"))
    return draw.svg(height, marks, "Correlations of concepts. " + "; ".join(sentences))


def _cell(x: float, y: float, wide: float, value: float | None) -> list[Markup]:
    middle = x + wide / 2, y + CELL / 2 + 4
    if value is None:
        return [draw.text(*middle, "–", "")]
    kind = "minus" if value < 0 else "plus"
    template = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" style="--v:{}%"/>'
    sizes = map(draw.place, (x + 0.2, y + 1, wide - 0.4, CELL - 2.0, min(abs(value), 1.0) * 60))
    return [Markup(template).format(kind, *sizes), draw.text(*middle, say.number(value), "it")]
