"""A range of values with round ticks, and the field between an axis across and one upwards.

x is in per cent of the width, y in px.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say

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
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
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

    def frame(
        self, words: str, across: Callable[[float], str] = say.level, up: Callable[[float], str] = say.level
    ) -> list[Markup]:
        """Grid, ticks as they are written, and the words that say what the axes show."""
        left, right = self.across.left, self.across.right
        marks = [draw.line(left, self.y(tick), right, self.y(tick), "grid") for tick in self.up.ticks]
        marks += [draw.text(left - 1.5, self.y(tick) + 4, up(tick), "", "end") for tick in self.up.ticks]
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
