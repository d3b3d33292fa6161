"""A field between an axis across and one upwards, with its grid: x in per cent of the width, y in px."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import Axis

TOP, BASE, LEFT, RIGHT = 14, 242, 9.0, 97.0
"""Px of the upper and lower edge, and the edges in per cent of the width."""


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
        """Where points stand."""
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

    def level(self, value: float, style: str) -> Markup:
        """A line across at a value."""
        return draw.line(self.across.left, self.y(value), self.across.right, self.y(value), style)

    def diagonal(self) -> Markup:
        """Where both axes, of one range, say the same."""
        ends = self.places([(self.across.low, self.up.low), (self.across.high, self.up.high)])
        return draw.line(*ends[0], *ends[1], "gl dots")

    def svg(self, marks: Iterable[Markup], label: str) -> Markup:
        """The whole figure."""
        return draw.svg(self.base + 42, list(marks), label)


def square(on: Axis) -> Plot:
    """The same axis across and upwards."""
    return Plot(on._replace(left=LEFT, right=RIGHT), on)


def percent(value: float) -> str:
    """A share as a tick."""
    return say.rate(value).removesuffix("%")
