"""Graders as SVG: bars with the spread of seeds, lines over what was set or asked, and two correlations in one square.

x in per cent of the width, y in px, as in the run report; every figure is also in a table or in the words around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import Axis, axis
from tasks.display.bars import HEAD, LABELS, ROW, VALUES
from tasks.display.table import Cell

CELL = 34
"""Px: height of a line chart, its upper and lower edge; height of a cell of the square."""


class Half(NamedTuple):
    """A correlation of two concepts: among labels, and given all others; None where it is undefined."""

    labels: float | None
    partial: float


def bars(title: str, graders: Mapping[str, Cell], ceiling: float | None) -> Markup:
    """Horizontal bars from 0 with their standard deviation; what people reach as a dashed upright. graders: label →
    figure; those without one are left out."""
    known = {label: (cell.value, cell.se or 0.0) for label, cell in graders.items() if cell.value is not None}
    ends = [end for mean, sd in known.values() for end in (mean - sd, mean + sd)]
    on = axis([0.0, *ends, *([] if ceiling is None else [ceiling])], most=4, left=LABELS, right=VALUES)
    head = HEAD + (0 if ceiling is None else 18)
    height = head + ROW * len(known)
    marks = [_tick(on, tick, head - 4, height) for tick in on.ticks]
    marks += [draw.text(on.x(tick), 11, f"{tick:g}".replace("-", "−"), "") for tick in on.ticks]
    for at, (label, (mean, sd)) in enumerate(known.items()):
        middle = head + ROW * (at + 0.5)
        start, end = sorted((on.x(0.0), on.x(mean)))
        marks.append(_box("mf", start, middle - 5, end - start, 10, 0.55))
        if sd:
            marks.append(draw.line(on.x(mean - sd), middle, on.x(mean + sd), middle, "cl"))
        marks.append(draw.text(LABELS - 1.5, middle + 4, say.cut(label, 34), "it", "end"))
        marks.append(draw.text(100, middle + 4, str(graders[label]._replace(digits=2)), "", "end"))
    said = f"{title}: " + "; ".join(f"{label} {graders[label]}" for label in known)
    if ceiling is not None:
        marks.append(draw.line(on.x(ceiling), head - 4, on.x(ceiling), height, "hl"))
        marks.append(draw.text(on.x(ceiling), head - 8, f"people {say.number(ceiling)}", "ht halo", "middle"))
        said += f"; people {say.number(ceiling)}"
    return draw.svg(height, marks, said)


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
        marks.append(_box("band", left + wide * at, y, wide, CELL, 1.0))
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


def _tick(on: Axis, tick: float, top: float, bottom: float) -> Markup:
    return draw.line(on.x(tick), top, on.x(tick), bottom, "grid zero" if tick == 0 else "grid")


def _box(kind: str, x: float, y: float, wide: float, high: float, opacity: float) -> Markup:
    made = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" opacity="{}"/>'
    return Markup(made).format(kind, *map(draw.place, (x, y, wide, high)), opacity)
