"""Lines over what was set or counted, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import Axis, axis
from rubricflow.tasks.core.display.plot import LEFT, RIGHT, Plot

STYLES = (("ml", "mt"), ("cl dash", "it"), ("gl", ""), ("gl dots", ""), ("ml dash", "mt"), ("cl dots", "it"))
"""Line and label of each series: told apart by stroke as well as colour."""


class ChartPoint(NamedTuple):
    """A point of a line with the ends of its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class ChartLine(NamedTuple):
    """A series with the label that stands beside it."""

    label: str
    points: tuple[ChartPoint, ...]


def line_chart(
    title: str,
    series: Sequence[ChartLine],
    across: str,
    up: str,
    ticks: Mapping[float, str] | None = None,
    within: Iterable[float] = (),
) -> Markup:
    """Lines with an upright for each interval. across, up: what the axes show; ticks: place → label, for an axis that
    is not of round numbers; within: values that the upright axis holds too, so that charts can be compared. At least
    one point in all."""
    points = list(chain.from_iterable(line.points for line in series))
    ends = [end for end in chain.from_iterable(point[1:] for point in points) if end is not None]
    plot = Plot(_across([point.x for point in points], ticks), axis([*ends, *within], most=5))
    marks = plot.frame(f"{across}; upwards: {up}", ticks.__getitem__ if ticks else say.level)
    labels, occupied = list[draw.Label](), list[tuple[float, float]]()
    for index, line in enumerate(series):
        stroke, style = STYLES[index % len(STYLES)]
        nudge = (index - (len(series) - 1) / 2) * 0.5  # intervals at the same place stand beside each other
        places = plot.places((point.x, point.y) for point in line.points)
        for point in line.points:
            if point.low is not None and point.high is not None:
                x = plot.across.x(point.x) + nudge
                marks.append(draw.line(x, plot.y(point.low), x, plot.y(point.high), f"{stroke.split()[0]} thin"))
        marks += draw.polyline(places, stroke)
        marks += [_mark(index, *place) for place in places]
        occupied += places
        labels.append(draw.Label(say.cut(line.label, 40), style, _beside(places)))
    sentences = "; ".join(_in_words(line, ticks) for line in series)
    return plot.svg([*marks, *draw.placed(labels, occupied)], f"{title}. {sentences}")


def _in_words(line: ChartLine, ticks: Mapping[float, str] | None) -> str:
    points = [f"{_x(point.x, ticks)} {say.number(point.y, 3)}" for point in line.points]
    return f"{line.label}: {', '.join(points)}"


def _across(values: Sequence[float], ticks: Mapping[float, str] | None) -> Axis:
    """The axis of the ticks, else one with ticks at whole numbers."""
    if ticks:
        return Axis(min(ticks) - 0.3, max(ticks) + 0.3, tuple(ticks), LEFT, RIGHT)
    on = axis(values, 8, left=LEFT, right=RIGHT)
    return on._replace(ticks=tuple(tick for tick in on.ticks if tick == int(tick)))


def _x(value: float, ticks: Mapping[float, str] | None) -> str:
    return ticks[value] if ticks else say.level(value)


def _mark(index: int, x: float, y: float) -> Markup:
    """Disc, square and ring in turn."""
    if index % 3 == 1:
        return draw.square(x, y)
    return draw.circle(x, y, 3.5, "mf" if index % 3 == 0 else "sq")


def _beside(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label: at the line's end first, then along it from the right."""
    offsets = ((0, -9), (0, 18), (-1.5, -22), (-1.5, 31))
    return tuple((x + dx, y + dy, "end") for (x, y), (dx, dy) in product(reversed(points), offsets))
