"""Charts as SVG: x in per cent of the width, y in px, so that type keeps its size at any width.

The machine is filled and solid, people hollow and dashed; every figure is also in a table or in the words around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, product
from typing import Literal, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import Axis, axis
from rubricflow.tasks.core.display.plot import BASE, LEFT, RIGHT, TOP, Plot, percent, square
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.comparison import Bars
from rubricflow.tasks.grading.report.routing import Risk
from rubricflow.tasks.grading.report.sections import Curve

Shape = Literal["m", "h", "c"]
"""Machine, people, ceiling."""
FULL = 100.0
PERFECT = draw.Label("dotted: perfect", "", ((LEFT + 2, TOP + 12, "start"), (RIGHT, BASE - 10, "end")))
LEAST_SPAN = 0.2
"""What a forest plot spans at least, in the unit of its figures."""


_OFFSETS = ((2.5, 16, "start"), (-2.5, -9, "end"), (2.5, 30, "start"), (-2.5, -24, "end"))
"""Of a label from its point: per cent across, px down, and where the text is anchored."""


class Dot(NamedTuple):
    """An estimate in a forest plot."""

    estimate: Estimate
    shape: Shape


def forest_axis(rows: Iterable[Sequence[Dot]], band: float | None = None) -> Axis:
    """One axis for all rows of a forest plot; a band is always in it, on both sides of 0."""
    ends: list[float] = []
    for dot in chain.from_iterable(rows):
        estimate = dot.estimate
        ends += [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    if ends and band is None and max(ends) - min(ends) < LEAST_SPAN:  # a difference of nothing shall not look like one
        middle = (max(ends) + min(ends)) / 2
        ends += [middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2]
    if band is not None:
        ends += [-band, band]
    return axis(ends, left=2, right=98)


def forest_ticks(on: Axis) -> Markup:
    """The scale above a forest plot."""
    step = on.ticks[1] - on.ticks[0]
    digits = 2 if step < 0.1 or round(step * 100) % 10 else 1
    texts = []
    for tick in on.ticks:
        anchor = "start" if tick == on.low and on.left < 1 else "middle"
        texts.append(draw.text(on.x(tick), 12, say.number(tick, digits), "", anchor))
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
        middle = {"m": 13.0, "h": 25.0, "c": height / 2}[dot.shape] if len(dots) > 1 else height / 2
        marks += _dot(dot, on, middle, height)
    return draw.svg(height, marks)


def _dot(dot: Dot, on: Axis, y: float, height: float) -> list[Markup]:
    """An estimate at a height of its row, with its interval; a ceiling crosses the row and has none."""
    value, low, high = dot.estimate.value, dot.estimate.low, dot.estimate.high
    marks = []
    if low is not None and high is not None and dot.shape != "c":
        marks.append(draw.line(on.x(low), y, on.x(high), y, f"{dot.shape}l"))
    if value is None:
        return marks
    x = on.x(value)
    if dot.shape == "c":
        return [*marks, draw.line(x, 5, x, height - 5, "cl")]
    return [*marks, draw.circle(x, y, 5 if dot.shape == "m" else 4, f"{dot.shape}f")]


def bars(shares: Bars) -> Markup:
    """Shares at each level: machine left, people right."""
    height, base, most = 220, 186, max(*shares.machine, *shares.people, 0.01)
    slot = FULL / len(shares.levels)
    numbered = len(shares.levels) <= 7
    marks = [draw.line(0, base, FULL, base, "grid")]
    sentences = []
    for index, (level, machine, people) in enumerate(zip(shares.levels, shares.machine, shares.people, strict=True)):
        for share, shape, start in ((machine, "m", 0.1), (people, "h", 0.52)):
            top = base - share / most * (base - 26)
            x, width = (index + start) * slot, 0.38 * slot
            marks.append(draw.box(x, top, width, base - top, f"{shape}f"))
            if numbered:
                marks.append(draw.text(x + width / 2, top - 6, say.share(share).removesuffix("%"), f"{shape}t"))
        marks.append(draw.text((index + 0.5) * slot, base + 18, level, "it"))
        sentences.append(f"{level}: machine {say.share(machine)}, people {say.share(people)}")
    label = f"Share of responses at each score, in per cent, {shares.scale}: {'; '.join(sentences)}"
    return draw.svg(height, marks, label)


def curve(groups: Curve) -> Markup:
    """People's mean score by the machine's, before and after calibration, beside the diagonal."""
    ends = chain.from_iterable((*groups.before, *groups.after))
    plot = square(axis([groups.low, groups.high, *ends]))
    marks = [*plot.frame("machine's score"), plot.diagonal()]
    before, after = plot.places(groups.before), plot.places(groups.after)
    marks += draw.polyline(before, "gl dash") + draw.polyline(after, "ml")
    marks += [draw.square(x, y) for x, y in before]
    marks += [draw.circle(x, y, 4.5, "mf") for x, y in after]
    labels = [
        draw.Label("after calibration", "mt", _beside(after)),
        draw.Label("before", "", _beside(before)),
        PERFECT,
    ]
    marks += draw.placed(labels, before + after)
    label = "People's mean score in equal groups of the machine's score; "
    label += f"after calibration: {_listed(groups.after)}; before: {_listed(groups.before)}"
    return plot.svg(marks, label)


def reliability(bins: Sequence[tuple[float, Estimate]]) -> Markup:
    """Share of decisions that people share by how sure the judge is, each with its interval, beside the diagonal."""
    ends = [confidence for confidence, _ in bins]
    for _, accuracy in bins:
        ends += [end for end in (accuracy.low, accuracy.high, accuracy.value) if end is not None]
    plot = square(axis(ends))
    marks = [*plot.frame("how sure the judge is, %; upwards: right, %", percent, percent), plot.diagonal()]
    for confidence, accuracy in bins:
        if accuracy.low is not None and accuracy.high is not None:
            x = plot.across.x(confidence)
            marks.append(draw.line(x, plot.y(accuracy.low), x, plot.y(accuracy.high), "ml thin"))
    defined = [(confidence, accuracy.value) for confidence, accuracy in bins if accuracy.value is not None]
    points = plot.places(defined)
    marks += [draw.circle(x, y, 4.5, "mf") for x, y in points]
    marks += draw.placed([PERFECT], points)
    sentences = [f"{say.share(confidence)} sure, {say.share(right)} right" for confidence, right in defined]
    label = f"Share of decisions that people share, by how sure the judge is: {'; '.join(sentences)}"
    return plot.svg(marks, label)


def risk(coverage: Risk) -> Markup:
    """Share of wrong scores by share released, surest first: this run, a perfect and a random order."""
    shown = [wrong for covered, wrong in coverage.machine if covered >= 0.1]
    upright = axis([0, *shown, coverage.random, coverage.target * 1.15], most=4)
    plot = Plot(Axis(0, 1, (0, 0.25, 0.5, 0.75, 1), LEFT, RIGHT), upright)
    marks = plot.frame("released, % of held-out responses", percent, percent)
    curve, best = plot.places(coverage.machine), plot.places(coverage.oracle)
    random, end = plot.y(coverage.random), plot.across.x(coverage.ends)
    marks.append(draw.line(LEFT, random, end, random, "gl dash"))
    marks += draw.polyline(best, "gl dots") + draw.polyline(curve, "ml")
    marks.append(plot.level(coverage.target, "al dash"))
    labels = [_promised_label(coverage, plot)]
    if coverage.chosen:
        ((x, y),) = plot.places([coverage.chosen])
        marks += [draw.line(x, y, x, plot.base, "ml thin"), draw.circle(x, y, 6, "mf")]
        labels.append(_chosen_label(coverage.chosen, x, y))
    labels += [_random_label(coverage, random, end), _perfect_label(plot)]
    marks += draw.placed(labels, curve)
    return plot.svg(marks, _risk_in_words(coverage))


def _promised_label(coverage: Risk, plot: Plot) -> draw.Label:
    y = plot.y(coverage.target)
    places = ((10.0, y - 6, "start"), (10.0, y + 16, "start"), (96.0, y - 6, "end"))
    return draw.Label(f"promised: at most {say.rate(coverage.target)}", "at", places)


def _chosen_label(chosen: tuple[float, float], x: float, y: float) -> draw.Label:
    """Beside the point of this run, on the side where there is more room."""
    left = [(x - 2.5, y + dy, "end") for dy in (-12, 18, -28, 34, 50)]
    right = [(x + 2.5, y + dy, "start") for dy in (-12, 18, -28, 34)]
    text = f"{say.share(chosen[0])} released, {say.share(chosen[1])} wrong"
    return draw.Label(text, "mt", tuple(left + right if x > 52 else right + left))


def _random_label(coverage: Risk, y: float, end: float) -> draw.Label:
    across = ((10, "start"), (60, "middle"), (end, "end"))
    places = [(x, y + dy, anchor) for (x, anchor), dy in product(across, (-6, 16))]
    return draw.Label(f"random order: {say.share(coverage.random)}", "", tuple(places))


def _perfect_label(plot: Plot) -> draw.Label:
    places = [(x, plot.y(0) - dy, "middle") for x, dy in product((30, 45, 60, 75), (7, 22))]
    return draw.Label("perfect order", "", tuple(places))


def _risk_in_words(coverage: Risk) -> str:
    all_wrong = say.share(coverage.machine[-1][1])
    words = f"Share of released scores that are {coverage.wrong}, surest first: {all_wrong} if all were released; "
    words += f"random order {say.share(coverage.random)}; promised at most {say.rate(coverage.target)}"
    if coverage.chosen:
        released, wrong = coverage.chosen
        words += f"; this run releases {say.share(released)} with {say.share(wrong)} wrong"
    return words


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


def _listed(points: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{say.number(x)} to {say.number(y)}" for x, y in points)


def _beside(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label along a line, in its middle first."""
    order = sorted(range(len(points)), key=lambda index: abs(index - len(points) / 2))
    places = []
    for x, y in (points[index] for index in order):
        places += [(x + dx, y + dy, anchor) for dx, dy, anchor in _OFFSETS]
    return tuple(places)
