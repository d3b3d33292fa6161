"""Charts as SVG: x in per cent of the width, y in px, so that type keeps its size at any width.

The machine is filled and solid, people hollow and dashed; every figure is also in a table or in the words around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import Axis, axis
from tasks.display.plot import BASE, LEFT, RIGHT, TOP, Plot, percent, square
from tasks.report.grading.comparison import Bars
from tasks.report.grading.parts import Curve
from tasks.report.grading.routing import Risk
from tasks.stats.estimate import Estimate

Shape = Literal["m", "h", "c"]
"""Machine, people, ceiling."""
FULL = 100.0
PERFECT = draw.Label("dotted: perfect", "", ((LEFT + 2, TOP + 12, "start"), (RIGHT, BASE - 10, "end")))
LEAST_SPAN = 0.2
"""What a forest plot spans at least, in the unit of its figures."""


class Dot(NamedTuple):
    """An estimate in a forest plot."""

    estimate: Estimate
    shape: Shape


def forest_axis(rows: Iterable[Sequence[Dot]], band: float | None = None) -> Axis:
    """One axis for all rows of a forest plot; a band is always in it, on both sides of 0."""
    ends = [
        value
        for dots in rows
        for dot in dots
        for value in (dot.estimate.value, dot.estimate.low, dot.estimate.high)
        if value is not None
    ]
    if ends and band is None and max(ends) - min(ends) < LEAST_SPAN:  # a difference of nothing shall not look like one
        middle = (max(ends) + min(ends)) / 2
        ends += [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]
    return axis([*ends, *((-band, band) if band is not None else ())], left=2, right=98)


def forest_ticks(on: Axis) -> Markup:
    """The scale above a forest plot."""
    digits = 2 if on.ticks[1] - on.ticks[0] < 0.1 or round((on.ticks[1] - on.ticks[0]) * 100) % 10 else 1
    texts = [
        draw.text(on.x(tick), 12, say.number(tick, digits), "", "start" if tick == on.low and on.left < 1 else "middle")
        for tick in on.ticks
    ]
    return draw.svg(16, texts)


def forest_row(dots: Sequence[Dot], on: Axis, band: float | None = None) -> Markup:
    """One row: machine above people, the ceiling as an upright."""
    height = 38 if len(dots) > 1 else 28
    marks = []
    if band is not None:
        start, end = on.x(-band), on.x(band)
        marks.append(draw.box(start, 0, end - start, height, "band"))
    marks += [draw.line(on.x(tick), 0, on.x(tick), height, "grid zero" if tick == 0 else "grid") for tick in on.ticks]
    for dot in dots:
        value, low, high = dot.estimate.value, dot.estimate.low, dot.estimate.high
        y = {"m": 13, "h": 25, "c": height / 2}[dot.shape] if len(dots) > 1 else height / 2
        if low is not None and high is not None and dot.shape != "c":
            marks.append(draw.line(on.x(low), y, on.x(high), y, f"{dot.shape}l"))
        if value is None:
            continue
        x = on.x(value)
        marks.append(
            draw.line(x, 5, x, height - 5, "cl")
            if dot.shape == "c"
            else draw.circle(x, y, 5 if dot.shape == "m" else 4, f"{dot.shape}f")
        )
    return draw.svg(height, marks)


def bars(found: Bars) -> Markup:
    """Shares at each level: machine left, people right."""
    height, base, most = 220, 186, max(*found.machine, *found.people, 0.01)
    slot = FULL / len(found.levels)
    numbered = len(found.levels) <= 7
    marks = [draw.line(0, base, FULL, base, "grid")]
    for at, level in enumerate(found.levels):
        for share, shape, start in ((found.machine[at], "m", 0.1), (found.people[at], "h", 0.52)):
            top = base - share / most * (base - 26)
            x, width = (at + start) * slot, 0.38 * slot
            marks.append(draw.box(x, top, width, base - top, f"{shape}f"))
            if numbered:
                marks.append(draw.text(x + width / 2, top - 6, say.share(share).removesuffix("%"), f"{shape}t"))
        marks.append(draw.text((at + 0.5) * slot, base + 18, level, "it"))
    said = f"Share of responses at each score, in per cent, {found.scale}: " + "; ".join(
        f"{level}: machine {say.share(m)}, people {say.share(p)}"
        for level, m, p in zip(found.levels, found.machine, found.people, strict=True)
    )
    return draw.svg(height, marks, said)


def curve(found: Curve) -> Markup:
    """People's mean score by the machine's, before and after calibration, beside the diagonal."""
    ends = [value for points in (found.before, found.after) for point in points for value in point]
    plot = square(axis([found.low, found.high, *ends]))
    marks = [*plot.frame("machine's score"), plot.diagonal()]
    before, after = plot.places(found.before), plot.places(found.after)
    marks += draw.polyline(before, "gl dash") + draw.polyline(after, "ml")
    marks += [draw.square(x, at) for x, at in before] + [draw.circle(x, at, 4.5, "mf") for x, at in after]
    labels = [
        draw.Label("after calibration", "mt", _beside(after)),
        draw.Label("before", "", _beside(before)),
        PERFECT,
    ]
    marks += draw.placed(labels, before + after)
    said = (
        "People's mean score in equal groups of the machine's score; after calibration: "
        + _said(found.after)
        + "; before: "
        + _said(found.before)
    )
    return plot.svg(marks, said)


def reliability(bins: Sequence[tuple[float, Estimate]]) -> Markup:
    """Share of decisions that people share by how sure the judge is, each with its interval, beside the diagonal."""
    ends = [end for _, right in bins for end in (right.low, right.high, right.value) if end is not None]
    plot = square(axis([*ends, *(sure for sure, _ in bins)]))
    marks = [*plot.frame("how sure the judge is, %; upwards: right, %", percent, percent), plot.diagonal()]
    points = plot.places((sure, right.value) for sure, right in bins if right.value is not None)
    for sure, right in bins:
        if right.low is not None and right.high is not None:
            x = plot.across.x(sure)
            marks.append(draw.line(x, plot.y(right.low), x, plot.y(right.high), "ml thin"))
    marks += [draw.circle(x, at, 4.5, "mf") for x, at in points]
    marks += draw.placed([PERFECT], points)
    said = "Share of decisions that people share, by how sure the judge is: " + "; ".join(
        f"{say.share(sure)} sure, {say.share(right.value)} right" for sure, right in bins if right.value is not None
    )
    return plot.svg(marks, said)


def risk(found: Risk) -> Markup:
    """Share of wrong scores by share released, surest first: this run, a perfect and a random order."""
    shown = [wrong for covered, wrong in found.machine if covered >= 0.1] + [found.random, found.target * 1.15]
    plot = Plot(Axis(0, 1, (0, 0.25, 0.5, 0.75, 1), LEFT, RIGHT), axis([0, *shown], most=4))
    marks = plot.frame("released, % of held-out responses", percent, percent)
    own, best = plot.places(found.machine), plot.places(found.oracle)
    y, end = plot.y, plot.across.x(found.ends)
    marks.append(draw.line(LEFT, y(found.random), end, y(found.random), "gl dash"))
    marks += draw.polyline(best, "gl dots") + draw.polyline(own, "ml")
    marks.append(plot.level(found.target, "al dash"))
    labels = [
        draw.Label(
            f"promised: at most {say.rate(found.target)}",
            "at",
            ((10, y(found.target) - 6, "start"), (10, y(found.target) + 16, "start"), (96, y(found.target) - 6, "end")),
        )
    ]
    if found.chosen:
        ((x, at),) = plot.places([found.chosen])
        marks += [draw.line(x, at, x, plot.base, "ml thin"), draw.circle(x, at, 6, "mf")]
        chosen = f"{say.share(found.chosen[0])} released, {say.share(found.chosen[1])} wrong"
        near = [(x - 2.5, at + dy, "end") for dy in (-12, 18, -28, 34, 50)] + [
            (x + 2.5, at + dy, "start") for dy in (-12, 18, -28, 34)
        ]
        labels.append(draw.Label(chosen, "mt", tuple(near if x > 52 else near[5:] + near[:5])))
    over = f"random order: {say.share(found.random)}"
    labels.append(
        draw.Label(
            over,
            "",
            tuple(
                (x, y(found.random) + dy, anchor)
                for x, anchor in ((10, "start"), (60, "middle"), (end, "end"))
                for dy in (-6, 16)
            ),
        )
    )
    labels.append(
        draw.Label("perfect order", "", tuple((x, y(0) - dy, "middle") for x in (30, 45, 60, 75) for dy in (7, 22)))
    )
    marks += draw.placed(labels, own)
    said = (
        f"Share of released scores that are {found.wrong}, surest first: {say.share(found.machine[-1][1])} if all were "
        f"released; random order {say.share(found.random)}; promised at most {say.rate(found.target)}"
    )
    if found.chosen:
        said += f"; this run releases {say.share(found.chosen[0])} with {say.share(found.chosen[1])} wrong"
    return plot.svg(marks, said)


def outcome_shape(outcome: str) -> Markup:
    """A mark of its own shape for each outcome of a gate: disc with a tick, square with a cross, half disc, ring."""
    drawn = {
        "pass": '<circle cx="7" cy="7" r="6.5" fill="currentColor"/><path d="M3.8 7.2l2.3 2.4 4.2-5" class="in"/>',
        "fail": '<rect x=".5" y=".5" width="13" height="13" fill="currentColor"/>'
        '<path d="M4 4l6 6M10 4l-6 6" class="in"/>',
        "undecided": '<circle cx="7" cy="7" r="5.9" class="out"/>'
        '<path d="M7 1.1a5.9 5.9 0 0 0 0 11.8z" fill="currentColor"/>',
        "unknown": '<circle cx="7" cy="7" r="5.9" class="out" stroke-dasharray="2.5 2.2"/>',
    }
    return Markup(
        f'<svg class="shape" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">{drawn[outcome]}</svg>'
    )


def _said(points: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{say.number(x)} to {say.number(y)}" for x, y in points)


def _beside(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label along a line, in its middle first."""
    order = sorted(range(len(points)), key=lambda at: abs(at - len(points) / 2))
    return tuple(
        (points[at][0] + dx, points[at][1] + dy, anchor)
        for at in order
        for dx, dy, anchor in ((2.5, 16, "start"), (-2.5, -9, "end"), (2.5, 30, "start"), (-2.5, -24, "end"))
    )
