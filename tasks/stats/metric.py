"""What is known of a metric of the evaluation besides its values: function, unit, words and gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from tasks.stats.agreement import Stat
from tasks.stats.arrays import Floats
from tasks.stats.pair_sums import Scale

Unit = Literal["number", "share", "signed", "signed_share", "count"]
"""How a figure is written: 0.82; 58%; +0.13; −4.9%; 1,198."""
Bound = float | str | Mapping[int, float] | None
"""A number; a field of the study's `release`; or by the number of levels, where all scales have as many."""


class Gate(NamedTuple):
    """A threshold for a metric: a flag for a person to look at."""

    name: str
    source: str
    """Whose flag it is."""
    if_missed: str
    """What to do then."""
    least: Bound = None
    most: Bound = None
    question: str = ""
    """What is asked, to people; '' for the metric's title."""
    stage: str = "calibrated"
    """Of `metrics`; '' where a single run cannot answer."""
    slices: tuple[str, ...] = ("all",)
    """Slices that it is asked of; 'items' for the mean over several items, 'group' for every group variable."""
    always: bool = False
    """Whether it is asked, and not known, where nothing was measured."""
    to_show: bool = False
    """Whether it has to be shown: missed, and not undecided, wherever the estimate itself lies outside."""


class Metric(NamedTuple):
    """What is known of a metric besides its values."""

    name: str
    """As in `metrics`."""
    title: str
    unit: Unit = "number"
    section: str = ""
    """Section of the grading report that lists it; '' where one asks for it by name, or none shows it."""
    meaning: str = ""
    of: Callable[[Floats, Floats, Scale], Stat] | None = None
    """Of human and machine scores, each (n,), on a scale (low, high, step)."""
    of_totals: Callable[[Floats], Floats] | None = None
    """The same of sums of `pair_terms`, (draws, columns), in every draw, (draws,): without it, and if it is none of
    `statistics_of_totals`, it has no interval and leaves its gates unknown."""
    gates: tuple[Gate, ...] = ()

    def gated(self, *gates: Gate) -> Metric:
        """The metric with its gates."""
        return self._replace(gates=gates)
