"""Tables with a plot: estimates with their intervals, all on one axis, and squares of shaded counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.charts import Axis, axis
from rubricflow.tasks.core.display.page import Content, Grid, Named
from rubricflow.tasks.core.stats.verdict import Estimate

TEMPLATE = Path(__file__).with_name("grading.html.j2")
"""What only this report draws as HTML."""
LEAST_SPAN = 0.2
"""What a forest plot spans at least, in the unit of its figures."""


class Dot(NamedTuple):
    """An estimate in a forest plot: of the machine, of people, or of neither."""

    estimate: Estimate
    shape: Literal["m", "h", "c"]


class ForestRow(NamedTuple):
    """A line of a forest plot: its name and number of responses, what is drawn, and the figures behind it."""

    name: str | Markup
    n: int
    dots: tuple[Dot, ...]
    cells: tuple[Content, ...]
    flagged: bool = False


def forest_axis(rows: Iterable[ForestRow], band: float | None = None) -> Axis:
    """One axis for all estimates of forest plots. band: half the width of what counts as nothing; the axis holds it, on
    both sides of 0."""
    ends = [end for row in rows for dot in row.dots for end in dot.estimate[:3] if end is not None]
    if band is not None:
        ends += [-band, band]
    elif ends and max(ends) - min(ends) < LEAST_SPAN:  # a difference of nothing shall not look like one
        middle = (max(ends) + min(ends)) / 2
        ends += [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]
    return axis(ends, left=2, right=98)


def forest(
    first: str, heads: Sequence[str | Named], rows: Sequence[ForestRow], on: Axis, band: float | None = None
) -> Grid:
    """A table with a plot in its second column."""
    lines = []
    for row in rows:
        name = Named(row.name, say.count(row.n)) if row.n else row.name
        lines.append((name, forest_row(row.dots, on, band), *row.cells))
    label = f"The axis of the plots below, from {on.written(on.low)} to {on.written(on.high)}"
    ticks = draw.svg(16, [draw.text(on.x(tick), 12, on.written(tick), "") for tick in on.ticks], label)
    return Grid((first, ticks, *heads), lines, "forest", marks=["flag" if row.flagged else "" for row in rows])


def forest_row(dots: Sequence[Dot], on: Axis, band: float | None = None) -> Markup:
    """One row: each estimate with its interval, the machine above people."""
    height = 34 if len(dots) > 1 else 24
    marks = []
    if band:
        marks.append(draw.box(on.x(-band), 0, on.x(band) - on.x(-band), height, "band"))
    marks += on.grid(0, height)
    for (value, low, high, *_), shape in dots:
        y = height / 2 if len(dots) == 1 else 11 if shape == "m" else 23
        marks += on.span(low, high, y, f"{'g' if shape == 'c' else shape}l")
        if value is None:
            continue
        x = on.x(value)
        marks.append(draw.square(x, y) if shape == "c" else draw.circle(x, y, 5 if shape == "m" else 4, f"{shape}f"))
    return draw.svg(height, marks)


OUTCOME_SHAPES = {
    "pass": '<circle cx="7" cy="7" r="6.5" fill="currentColor"/><path d="M3.8 7.2l2.3 2.4 4.2-5" class="in"/>',
    "fail": '<rect x=".5" y=".5" width="13" height="13" fill="currentColor"/><path d="M4 4l6 6M10 4l-6 6" class="in"/>',
    "undecided": '<circle cx="7" cy="7" r="5.9" class="out"/>'
    '<path d="M7 1.1a5.9 5.9 0 0 0 0 11.8z" fill="currentColor"/>',
    "unknown": '<circle cx="7" cy="7" r="5.9" class="out" stroke-dasharray="2.5 2.2"/>',
}
"""A mark of its own for each outcome of a gate: disc with a tick, square with a cross, half disc, ring."""


def outcome_shape(outcome: str) -> Markup:
    """The mark of a gate's outcome, as high as the words behind it."""
    svg = '<svg class="shape" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">{}</svg>'
    return Markup(svg.format(OUTCOME_SHAPES[outcome]))
