"""Charts as SVG, on one axis or a field between two: bars, each with its value and interval; shares of responses at
each level of a scale; and lines over what was set or counted. x is in per cent of the width, y in px."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, cycle, product
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.table import LevelShares, Panel

TOP, BASE, LEFT, RIGHT = 14, 242, 9.0, 97.0
"""Px of the upper and lower edge, and the edges in per cent of the width."""


class Axis(NamedTuple):
    """A range of values, the ticks in it, and the share of the width before and after it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    left: float = 0.0
    right: float = 100.0

    def x(self, value: float) -> float:
        """Position in per cent; values outside the range stand at its edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def upright(self, value: float, top: float, bottom: float, style: str) -> Markup:
        """A line from top to bottom at a value."""
        return draw.line(self.x(value), top, self.x(value), bottom, style)

    def grid(self, top: float, bottom: float) -> list[Markup]:
        """An upright at every tick."""
        return [self.upright(tick, top, bottom, "grid zero" if tick == 0 else "grid") for tick in self.ticks]

    def span(self, low: float | None, high: float | None, y: float, style: str) -> list[Markup]:
        """A line from end to end of an interval; nothing where there is none."""
        return [] if low is None or high is None else [draw.line(self.x(low), y, self.x(high), y, style)]

    def written(self, tick: float) -> str:
        """A tick with the digits of their step."""
        digits = len(f"{self.ticks[1] - self.ticks[0]:.10f}".rstrip("0").partition(".")[2])
        return say.number(tick, digits)


def axis(values: Iterable[float], most: int = 5, left: float = 0.0, right: float = 100.0) -> Axis:
    """A range with round ticks around the finite values; 0 to 1 where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = tuple(round(index * step, 10) for index in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks, left, right)


class Plot(NamedTuple):
    """Where values stand."""

    across: Axis
    up: Axis
    base: float = BASE

    def y(self, value: float) -> float:
        """Position in px; values outside the range stand at its edge."""
        share = (min(max(value, self.up.low), self.up.high) - self.up.low) / (self.up.high - self.up.low)
        return self.base - share * (self.base - TOP)

    def places(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(self.across.x(x), self.y(y)) for x, y in points]

    def frame(self, words: str, across: Callable[[float], str] = say.level) -> list[Markup]:
        """Grid, ticks as they are written, and the words that say what the axes show."""
        left = self.across.left
        right = self.across.right
        marks = [draw.line(left, self.y(tick), right, self.y(tick), "grid") for tick in self.up.ticks]
        marks += [draw.text(left - 1.5, self.y(tick) + 4, say.level(tick), "", "end") for tick in self.up.ticks]
        marks += [draw.text(self.across.x(tick), self.base + 18, across(tick), "") for tick in self.across.ticks]
        return [*marks, draw.text(right, self.base + 36, words, "", "end")]

    def upright(self, x: float, low: float | None, high: float | None, style: str) -> list[Markup]:
        """A line from end to end of an interval, at x in per cent; nothing where there is none."""
        return [] if low is None or high is None else [draw.line(x, self.y(low), x, self.y(high), style)]

    def level(self, value: float, style: str) -> Markup:
        """A line across at a value."""
        return draw.line(self.across.left, self.y(value), self.across.right, self.y(value), style)

    def diagonal(self) -> Markup:
        """Where both axes, of one range, say the same."""
        ends = self.places([(self.across.low, self.up.low), (self.across.high, self.up.high)])
        return draw.line(*ends[0], *ends[1], "gl dots")

    def svg(self, marks: Iterable[Markup], label: str) -> Markup:
        return draw.svg(self.base + 42, list(marks), label)


def square(on: Axis) -> Plot:
    """The same axis across and upwards."""
    return Plot(on._replace(left=LEFT, right=RIGHT), on)


ROW, HEAD = 26, 20
LABELS, VALUES = 34.0, 86.0
"""Per cent of the width before the axis and up to its end: labels stand left of it, values right."""
ARM_STYLES = ("ml", "al", "cl", "gl", "ml dash", "al dash", "cl dash", "gl dash")


def rows(on: Axis, figures: Sequence[tuple[str, str]], head: float = HEAD) -> tuple[float, list[Markup]]:
    """The height of as many rows, and their marks: the axis above them, and each row's label and figure.

    figures: label and figure of each. head: px above the first row.
    """
    height = head + ROW * len(figures)
    marks = on.grid(head - 4, height) + [draw.text(on.x(tick), 11, on.written(tick), "") for tick in on.ticks]
    for index, (label, figure) in enumerate(figures):
        y = middle(index, head) + 4
        marks.append(draw.text(on.left - 1.5, y, say.cut(label, 34), "it", "end"))
        marks.append(draw.text(100, y, figure, "", "end"))
    return height, marks


def middle(index: int, head: float = HEAD) -> float:
    """Px of the middle of a row."""
    return head + ROW * (index + 0.5)


def bar_chart(panel: Panel) -> Markup:
    """Horizontal bars from 0, the interval as a line through the end of each; what people reach as a dashed upright."""
    people = [] if panel.people is None else [panel.people]
    ends = chain.from_iterable((bar.value, bar.low, bar.high) for bar in panel.bars)
    shown = [end for end in ends if end is not None]
    on = axis([0.0, *shown, *people], most=4, left=LABELS, right=VALUES)
    head = HEAD + 18 * len(people)
    figures = [(bar.label, bar.shown or say.number(bar.value, 3)) for bar in panel.bars]
    height, marks = rows(on, figures, head)
    for index, bar in enumerate(panel.bars):
        start, end = sorted((on.x(0.0), on.x(bar.value)))
        marks.append(draw.box(start, middle(index, head) - 5, end - start, 10, "bf"))
        marks += on.span(bar.low, bar.high, middle(index, head), "cl")
    words = [f"{label} {figure}" for label, figure in figures]
    for level in people:
        words.append(f"people {say.number(level)}")
        marks.append(on.upright(level, head - 4, height, "hl"))
        marks.append(draw.text(on.x(level), head - 8, words[-1], "ht halo"))
    return draw.svg(height, marks, f"{panel.title}: {'; '.join(words)}")


def share_chart(panel: LevelShares) -> Markup:
    """People's shares as hollow bars, one line for each arm."""
    height, base = 240, 200
    most = max((*panel.people, *chain.from_iterable(panel.arms.values()), 0.01))
    slot = 94.0 / len(panel.levels)

    def x(index: int) -> float:
        return 4.0 + slot * (index + 0.5)

    def y(share: float) -> float:
        return base - share / most * (base - 24)

    marks = [draw.line(4, base, 98, base, "grid"), draw.text(4, 14, f"at most {say.share(most)}", "", "start")]
    for index, (level, share) in enumerate(zip(panel.levels, panel.people, strict=True)):
        marks.append(draw.box(x(index) - 0.35 * slot, y(share), 0.7 * slot, base - y(share), "hf"))
        marks.append(draw.text(x(index), base + 18, level, "it"))
    for style, shares in zip(cycle(ARM_STYLES), panel.arms.values(), strict=False):
        marks += draw.polyline([(x(level), y(share)) for level, share in enumerate(shares)], style)
    words = f"{panel.title}, share of responses at each level; people: {_listed(panel.people)}"
    words += "".join(f"; {name}: {_listed(shares)}" for name, shares in panel.arms.items())
    return draw.svg(height, marks, words)


def _listed(shares: Sequence[float]) -> str:
    return ", ".join(map(say.share, shares))


def legend(panel: LevelShares) -> Markup:
    """Whose shares they are: people's, and each arm's with a piece of its line."""
    line = '<svg class="shape" style="width:28px" viewBox="0 0 28 14" aria-hidden="true">{}</svg>{}'
    stroke = '<line class="{}" x1="0" y1="7" x2="28" y2="7"/>'
    styles = zip(cycle(ARM_STYLES), panel.arms, strict=False)
    arms = (Markup(line).format(Markup(stroke).format(style), arm) for style, arm in styles)
    return Markup(" · ").join((Markup('<span class="h key">people</span>'), *arms))


LINE_STYLES = (("ml", "mt"), ("cl dash", "it"), ("gl", ""), ("gl dots", ""), ("ml dash", "mt"), ("cl dots", "it"))
"""Line and label of each series: told apart by stroke as well as colour."""


class ChartPoint(NamedTuple):
    """A point of a line with the ends of its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class ChartLine(NamedTuple):
    """A series with the label next to it."""

    label: str
    points: tuple[ChartPoint, ...]


def line_chart(
    title: str,
    series: Sequence[ChartLine],
    across: str,
    up: str,
    ticks: Mapping[float, str] | None = None,
    within: Iterable[float] = (),
    from_zero: bool = False,
) -> Markup:
    """Lines with an upright for each interval. across, up: what the axes show; ticks: place → label, for an axis that
    is not of round numbers; within: values that the upright axis holds too, so that charts can be compared; from_zero:
    whether the axis across begins there. At least one point in all."""
    points = list(chain.from_iterable(line.points for line in series))
    ends = [end for end in chain.from_iterable(point[1:] for point in points) if end is not None]
    tick_words: Callable[[float], str] = ticks.__getitem__ if ticks else say.level
    on = axis([*[0.0] * from_zero, *(point.x for point in points)], 8, left=LEFT, right=RIGHT)
    on = on._replace(ticks=tuple(tick for tick in on.ticks if tick == int(tick)))
    if ticks:
        on = Axis(min(ticks) - 0.3, max(ticks) + 0.3, tuple(ticks), LEFT, RIGHT)
    plot = Plot(on, axis([*ends, *within], most=5))
    marks = plot.frame(f"{across}; upwards: {up}", tick_words)
    labels, occupied, sentences = [], [], []
    shared = Counter(point.x for point in points)
    # A label stands at its line's end where it can, else along it from the right.
    offsets = ((0, -9), (0, 18), (-1.5, -22), (-1.5, 31))
    for index, line in enumerate(series):
        stroke, style = LINE_STYLES[index % len(LINE_STYLES)]
        nudge = (index - (len(series) - 1) / 2) * 0.5
        places = plot.places((point.x, point.y) for point in line.points)
        for point in line.points:
            # Intervals at the same place stand next to each other.
            aside = nudge * (shared[point.x] > 1)
            marks += plot.upright(plot.across.x(point.x) + aside, point.low, point.high, f"{stroke.split()[0]} thin")
        marks += draw.polyline(places, stroke)
        for x, y in places:  # disc, square and ring in turn
            mark = draw.circle(x, y, 3.5, "mf" if index % 3 == 0 else "sq")
            marks.append(draw.square(x, y) if index % 3 == 1 else mark)
        occupied += places
        beginnings = tuple((x + dx, y + dy, "end") for (x, y), (dx, dy) in product(reversed(places), offsets))
        labels.append(draw.Label(say.cut(line.label, 40), style, beginnings))
        told = (f"{tick_words(point.x)} {say.number(point.y, 3)}" for point in line.points)
        sentences.append(f"{line.label}: {', '.join(told)}")
    return plot.svg([*marks, *draw.place_labels(labels, occupied)], f"{title}. {'; '.join(sentences)}")
