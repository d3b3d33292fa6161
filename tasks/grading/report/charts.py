"""Charts as SVG: x in per cent of the width, y in px, so that type keeps its size at any width.

The machine is filled and solid, people hollow and dashed; every figure is also in a table or in the words around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import Literal, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import BASE, LEFT, RIGHT, TOP, Axis, Plot, axis, percent, square
from rubricflow.tasks.core.display.page import body
from rubricflow.tasks.core.display.section import Content, Grid, Named
from rubricflow.tasks.core.stats.verdict import Estimate

PERFECT = draw.Label("dotted: perfect", "", ((LEFT + 2, TOP + 12, "start"), (RIGHT, BASE - 10, "end")))
TEMPLATE = Path(__file__).with_name("grading.html.j2")
"""What only this report draws as HTML."""
LEAST_SPAN = 0.2
"""What a forest plot spans at least, in the unit of its figures."""
Points = tuple[tuple[float, float], ...]


class Dot(NamedTuple):
    """An estimate in a forest plot: of the machine, of people, or their ceiling."""

    estimate: Estimate
    shape: Literal["m", "h", "c"]


class ForestRow(NamedTuple):
    """A line of a forest plot: its name and number of responses, what is drawn, and the figures behind it."""

    name: str
    n: int
    dots: tuple[Dot, ...]
    cells: tuple[Content, ...]
    flagged: bool = False


class Bars(NamedTuple):
    """Shares of the responses at each level of one scale (0 to 1, levels low to high)."""

    scale: str
    levels: tuple[str, ...]
    machine: tuple[float, ...]
    people: tuple[float, ...]


class Curve(NamedTuple):
    """People's mean (y) in equal groups by the machine's score (x), on one scale from `low` to `high`, before and
    after calibration."""

    low: float
    high: float
    before: Points
    after: Points


class Risk(NamedTuple):
    """Risk–coverage on held-out responses: (coverage, share wrong), both 0 to 1. ends: the coverage at which responses
    without a score begin; chosen: what the run releases; target: the share promised; wrong: what a wrong score is."""

    machine: Points
    oracle: Points
    random: float
    ends: float
    chosen: tuple[float, float] | None
    target: float
    wrong: str


class Shade(NamedTuple):
    """A cell of a square: how dark it is, 0 to 1; its text, and a smaller one below."""

    share: float
    text: str
    below: str = ""
    is_diagonal: bool = False


def shades(caption: str, names: Sequence[str], rows: Sequence[Sequence[Shade]], style: str = "") -> Markup:
    """A square of shaded cells, a row and a column for each name. style: people, of people with people."""
    return body(TEMPLATE, "shades", {"caption": caption, "names": names, "rows": rows, "style": style})


def forest(first: str, heads: Sequence[str | Named], rows: Sequence[ForestRow], band: float | None = None) -> Grid:
    """A table with a plot in its second column, all rows on one axis. band: half the width of what counts as nothing;
    the axis holds it, on both sides of 0."""
    on = forest_axis([dot.estimate for dot in chain.from_iterable(row.dots for row in rows)], band)
    lines = [(Named(row.name, say.count(row.n)), forest_row(row.dots, on, band), *row.cells) for row in rows]
    marks = ["flag" if row.flagged else "" for row in rows]
    return Grid((first, _forest_ticks(on), *heads), lines, "forest", marks=marks)


def forest_axis(estimates: Sequence[Estimate], band: float | None = None) -> Axis:
    """One axis for all estimates of a forest plot; a band is always in it."""
    ends = [end for estimate in estimates for end in estimate[:3] if end is not None]
    if band is not None:
        ends += [-band, band]
    elif ends and max(ends) - min(ends) < LEAST_SPAN:  # a difference of nothing shall not look like one
        middle = (max(ends) + min(ends)) / 2
        ends += [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]
    return axis(ends, left=2, right=98)


def _forest_ticks(on: Axis) -> Markup:
    """The scale above a forest plot."""
    step = on.ticks[1] - on.ticks[0]
    digits = 2 if step < 0.1 or round(step * 100) % 10 else 1
    return draw.svg(16, [draw.text(on.x(tick), 12, say.number(tick, digits), "") for tick in on.ticks])


def forest_row(dots: Sequence[Dot], on: Axis, band: float | None = None) -> Markup:
    """One row: machine above people, each with its interval; the ceiling as an upright."""
    height = 38 if len(dots) > 1 else 28
    marks = []
    if band:
        marks.append(draw.box(on.x(-band), 0, on.x(band) - on.x(-band), height, "band"))
    marks += on.grid(0, height)
    for (value, low, high, *_), shape in dots:
        y = height / 2 if len(dots) == 1 else 13 if shape == "m" else 25
        if shape != "c":
            marks += on.span(low, high, y, f"{shape}l")
        if value is not None and shape == "c":
            marks.append(on.upright(value, 5, height - 5, "cl"))
        elif value is not None:
            marks.append(draw.circle(on.x(value), y, 5 if shape == "m" else 4, f"{shape}f"))
    return draw.svg(height, marks)


def bars(shares: Bars) -> Markup:
    """Shares at each level: machine left, people right."""
    height, base, most = 220, 186, max(*shares.machine, *shares.people, 0.01)
    slot = 100 / len(shares.levels)
    marks = [draw.line(0, base, 100, base, "grid")]
    sentences = []
    for index, (level, machine, people) in enumerate(zip(shares.levels, shares.machine, shares.people, strict=True)):
        for share, shape, start in ((machine, "m", 0.1), (people, "h", 0.52)):
            top = base - share / most * (base - 26)
            x, width = (index + start) * slot, 0.38 * slot
            marks.append(draw.box(x, top, width, base - top, f"{shape}f"))
            if len(shares.levels) <= 7:
                marks.append(draw.text(x + width / 2, top - 6, say.share(share).removesuffix("%"), f"{shape}t"))
        marks.append(draw.text((index + 0.5) * slot, base + 18, level, "it"))
        sentences.append(f"{level}: machine {say.share(machine)}, people {say.share(people)}")
    label = f"Share of responses at each score, in per cent, {shares.scale}: {'; '.join(sentences)}"
    return draw.svg(height, marks, label)


def curve(groups: Curve) -> Markup:
    """People's mean score by the machine's, before and after calibration, and the diagonal."""
    plot = square(axis([groups.low, groups.high, *chain.from_iterable((*groups.before, *groups.after))]))
    marks = [*plot.frame("machine's score"), plot.diagonal()]
    before, after = plot.places(groups.before), plot.places(groups.after)
    marks += draw.polyline(before, "gl dash") + draw.polyline(after, "ml")
    marks += [draw.square(x, y) for x, y in before]
    marks += [draw.circle(x, y, 4.5, "mf") for x, y in after]
    labels = [
        draw.Label("after calibration", "mt", _next_to(after)),
        draw.Label("before", "", _next_to(before)),
        PERFECT,
    ]
    marks += draw.place_labels(labels, before + after)
    label = "People's mean score in equal groups of the machine's score; "
    label += f"after calibration: {_listed(groups.after)}; before: {_listed(groups.before)}"
    return plot.svg(marks, label)


def reliability(bins: Sequence[tuple[float, Estimate]]) -> Markup:
    """Share of decisions that people share by how sure the judge is, each with its interval, and the diagonal."""
    ends = [end for _, accuracy in bins for end in accuracy[:3] if end is not None]
    plot = square(axis([*(confidence for confidence, _ in bins), *ends]))
    marks = [*plot.frame("how sure the judge is, %; upwards: right, %", percent, percent), plot.diagonal()]
    for confidence, accuracy in bins:
        marks += plot.upright(plot.across.x(confidence), accuracy.low, accuracy.high, "ml thin")
    defined = [(confidence, accuracy.value) for confidence, accuracy in bins if accuracy.value is not None]
    points = plot.places(defined)
    marks += [draw.circle(x, y, 4.5, "mf") for x, y in points]
    marks += draw.place_labels([PERFECT], points)
    sentences = [f"{say.share(confidence)} sure, {say.share(right)} right" for confidence, right in defined]
    label = f"Share of decisions that people share, by how sure the judge is: {'; '.join(sentences)}"
    return plot.svg(marks, label)


def risk(coverage: Risk) -> Markup:
    """Share of wrong scores by share released, surest first: this run, a perfect and a random order."""
    shown = [wrong for covered, wrong in coverage.machine if covered >= 0.1]
    upright = axis([0, *shown, coverage.random, coverage.target * 1.15], most=4)
    plot = Plot(Axis(0, 1, (0, 0.25, 0.5, 0.75, 1), LEFT, RIGHT), upright)
    marks = plot.frame("released, % of held-out responses", percent, percent)
    curve, end = plot.places(coverage.machine), plot.across.x(coverage.ends)
    random, target, floor = plot.y(coverage.random), plot.y(coverage.target), plot.y(0)
    marks.append(draw.line(LEFT, random, end, random, "gl dash"))
    marks += draw.polyline(plot.places(coverage.oracle), "gl dots") + draw.polyline(curve, "ml")
    marks.append(plot.level(coverage.target, "al dash"))
    promised = f"promised: at most {say.rate(coverage.target)}"
    labels = [
        draw.Label(promised, "at", ((10, target - 6, "start"), (10, target + 16, "start"), (96, target - 6, "end")))
    ]
    all_wrong = say.share(coverage.machine[-1][1])
    words = f"Share of released scores that are {coverage.wrong}, surest first: {all_wrong} if all were released; "
    words += f"random order {say.share(coverage.random)}; promised at most {say.rate(coverage.target)}"
    if coverage.chosen:
        released, wrong = map(say.share, coverage.chosen)
        words += f"; this run releases {released} with {wrong} wrong"
        ((x, y),) = plot.places([coverage.chosen])
        marks += [draw.line(x, y, x, plot.base, "ml thin"), draw.circle(x, y, 6, "mf")]
        left = [(x - 2.5, y + dy, "end") for dy in (-12, 18, -28, 34, 50)]
        right = [(x + 2.5, y + dy, "start") for dy in (-12, 18, -28, 34)]
        places = left + right if x > 52 else right + left  # the side with more space first
        labels.append(draw.Label(f"{released} released, {wrong} wrong", "mt", tuple(places)))
    across = ((10, "start"), (60, "middle"), (end, "end"))
    beside = tuple((x, random + dy, anchor) for (x, anchor), dy in product(across, (-6, 16)))
    above = tuple((x, floor - dy, "middle") for x, dy in product((30.0, 45.0, 60.0, 75.0), (7, 22)))
    labels.append(draw.Label(f"random order: {say.share(coverage.random)}", "", beside))
    labels.append(draw.Label("perfect order", "", above))
    return plot.svg([*marks, *draw.place_labels(labels, curve)], words)


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


def _listed(points: Points) -> str:
    return ", ".join(f"{say.number(x)} to {say.number(y)}" for x, y in points)


def _next_to(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label along a line, in its middle first."""
    middle_first = sorted(range(len(points)), key=lambda index: abs(index - len(points) / 2))
    offsets = ((2.5, 16, "start"), (-2.5, -9, "end"), (2.5, 30, "start"), (-2.5, -24, "end"))
    places = product((points[index] for index in middle_first), offsets)
    return tuple((x + dx, y + dy, anchor) for (x, y), (dx, dy, anchor) in places)
