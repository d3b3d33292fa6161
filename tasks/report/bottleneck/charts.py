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


def square(names: Sequence[str], found: Mapping[tuple[int, int], Half]) -> Markup:
    """Above the diagonal how labels go together, below it what is left given all other concepts.

    names: the concepts in order. found: (row, column) with row < column → both. The tint says how strong, a dashed
    frame that it is negative; the number says both.
    """
    left = 36.0
    wide = (100 - left) / max(len(names), 1)
    marks, told = list[Markup](), list[str]()
    for at, name in enumerate(names):
        y = float(HEAD + CELL * at)
        marks.append(draw.text(left + wide * (at + 0.5), 12, str(at + 1), "it"))
        marks.append(draw.text(left - 1.5, y + CELL / 2 + 4, f"{say.cut(name, 20)} {at + 1}", "it", "end"))
        marks.append(draw.box(left + wide * at, y, wide, CELL, "band"))
    for (row, column), half in found.items():
        for down, right, value in ((row, column, half.labels), (column, row, half.partial)):
            x, y = left + wide * right, float(HEAD + CELL * down)
            marks += _cell(x, y, wide, value)
        labels = "undefined" if half.labels is None else say.number(half.labels)
        told.append(f"{names[row]} and {names[column]}: labels {labels}, partial {say.number(half.partial)}")
    height = HEAD + CELL * len(names) + 22
    marks.append(draw.text(100, height - 4, "above: labels; below: given all other concepts", "", "end"))
    return draw.svg(height, marks, "Correlations of concepts. " + "; ".join(told))


def _cell(x: float, y: float, wide: float, value: float | None) -> list[Markup]:
    middle = x + wide / 2, y + CELL / 2 + 4
    if value is None:
        return [draw.text(*middle, "–", "")]
    kind = "minus" if value < 0 else "plus"
    made = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" style="--v:{}%"/>'
    sizes = map(draw.place, (x + 0.2, y + 1, wide - 0.4, CELL - 2.0, min(abs(value), 1.0) * 60))
    return [Markup(made).format(kind, *sizes), draw.text(*middle, say.number(value), "it")]
