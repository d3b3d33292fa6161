"""A range of values with round ticks: the one axis of all charts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from rubricflow.tasks.core.display import say


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
