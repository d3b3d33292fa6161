"""Lines over what was set or counted, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import Axis, axis

HEIGHT, TOP, BASE = 290, 14, 242
"""Px: height of a line chart, its upper and lower edge."""
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


def line_chart(
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


def _x(value: float, ticks: Mapping[float, str] | None) -> str:
    return ticks[value] if ticks else say.level(value)


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
