"""Graders as SVG: bars with the spread of seeds, lines over what was set or asked, and two correlations in one square.

x in per cent of the width, y in px, as in the run report; every figure is also in a table or in the words around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tasks.display.table import Cell
from tasks.report.experiment.charts import HEAD, LABELS, ROW, VALUES
from tasks.report.grading import draw, say
from tasks.report.grading.charts import Axis, axis

HEIGHT, TOP, BASE = 290, 14, 242
CELL = 34
"""Px: height of a line chart, its upper and lower edge; height of a cell of the square."""
STYLES = (("ml", "mt"), ("cl dash", "it"), ("gl", ""), ("gl dots", ""), ("ml dash", "mt"), ("cl dots", "it"))
"""Line and label of each series: told apart by stroke as well as colour."""


class Point(NamedTuple):
    """A point of a line with the ends of its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Line(NamedTuple):
    """A series with the label that stands beside it."""

    label: str
    points: tuple[Point, ...]


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


def lines(
    title: str,
    series: Sequence[Line],
    across: str,
    up: str,
    ticks: Mapping[float, str] | None = None,
    within: Iterable[float] = (),
) -> Markup:
    """Lines with an upright for each interval. across, up: what the axes show; ticks: place → label, for an axis that
    is not of round numbers; within: values that the upright axis holds too, so that charts can be compared. At least
    one point in all."""
    xs = [point.x for line in series for point in line.points]
    ends = [end for line in series for point in line.points for end in point[1:] if end is not None]
    wide = Axis(min(ticks) - 0.3, max(ticks) + 0.3, tuple(ticks), 9, 97) if ticks else axis(xs, 8, left=9, right=97)
    high = axis([*ends, *within], most=5)

    def y(value: float) -> float:
        return BASE - (value - high.low) / (high.high - high.low) * (BASE - TOP)

    marks = []
    for tick in high.ticks:
        marks.append(draw.line(9, y(tick), 97, y(tick), "grid"))
        marks.append(draw.text(7.5, y(tick) + 4, f"{tick:g}".replace("-", "−"), "", "end"))
    for tick in wide.ticks:
        if ticks or tick == int(tick):
            marks.append(draw.text(wide.x(tick), BASE + 18, ticks[tick] if ticks else say.level(tick), ""))
    labels, taken = list[draw.Label](), list[tuple[float, float]]()
    for at, line in enumerate(series):
        stroke, style = STYLES[at % len(STYLES)]
        nudge = (at - (len(series) - 1) / 2) * 0.5  # intervals at the same place stand beside each other
        points = [(wide.x(point.x), y(point.y)) for point in line.points]
        for point in line.points:
            if point.low is not None and point.high is not None:
                x = wide.x(point.x) + nudge
                marks.append(draw.line(x, y(point.low), x, y(point.high), f"{stroke.split()[0]} thin"))
        marks += draw.polyline(points, stroke)
        marks += [_mark(at, *point) for point in points]
        taken += points
        labels.append(draw.Label(say.cut(line.label, 40), style, _beside(points)))
    marks += draw.placed(labels, taken)
    marks.append(draw.text(97, BASE + 36, f"{across}; upwards: {up}", "", "end"))
    told = "; ".join(
        f"{line.label}: " + ", ".join(f"{_x(point.x, ticks)} {say.number(point.y, 3)}" for point in line.points)
        for line in series
    )
    return draw.svg(HEIGHT, marks, f"{title}. {told}")


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


def _x(value: float, ticks: Mapping[float, str] | None) -> str:
    return ticks[value] if ticks else say.level(value)


def _tick(on: Axis, tick: float, top: float, bottom: float) -> Markup:
    return draw.line(on.x(tick), top, on.x(tick), bottom, "grid zero" if tick == 0 else "grid")


def _box(kind: str, x: float, y: float, wide: float, high: float, opacity: float) -> Markup:
    made = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" opacity="{}"/>'
    return Markup(made).format(kind, *map(draw.place, (x, y, wide, high)), opacity)


def _mark(at: int, x: float, y: float) -> Markup:
    """Disc, square and ring in turn."""
    if at % 3 == 1:
        return draw.square(x, y)
    return draw.circle(x, y, 3.5, "mf" if at % 3 == 0 else "sq")


def _beside(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label: at the line's end first, then along it from the right."""
    return tuple(
        (x + dx, y + dy, anchor)
        for x, y in reversed(points)
        for dx, dy, anchor in ((0, -9, "end"), (0, 18, "end"), (-1.5, -22, "end"), (-1.5, 31, "end"))
    )
