"""The run's metrics, looked up by name; what is missing comes with its reason. And sums over rows of counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import Figure, Named
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.metrics import METRICS, Metric, Unit
from rubricflow.tasks.core.stats.verdict import Estimate

ALL = "all"
NOTHING_SCORED = "no held-out response has both a human and a machine score"
STAGES = ("released", "calibrated", "human", "raw", "")
"""Stages of gates, the weightiest first: what goes out, then every score, then people."""


@dataclass(frozen=True)
class NamedCount:
    """A count under a name."""

    name: str
    count: int


class Figures:
    """Rows of `metrics` by metric, stage, slice and value."""

    def __init__(self, rows: Rows, metrics: Sequence[Metric] = METRICS) -> None:
        self.metrics = {metric.name: metric for metric in metrics}
        """What is known of each metric, by name."""
        gates = [(gate, gate.question or metric.title) for metric in metrics for gate in metric.gates]
        gates.sort(key=lambda pair: STAGES.index(pair[0].stage))
        self.questions = {gate.name: question for gate, question in gates}
        """Gates in words, the weightiest first."""
        self.pairs = [
            (row["rater_a"], row["rater_b"])
            for row in rows
            if (row["metric"], row["stage"], row["slice"]) == ("qwk", "human", ALL)
        ]
        """Pairs of persons with a QWK over the whole set."""
        resampled = [row["resampled"] for row in rows if row["resampled"] in ("author", "response")]
        self.resampled = resampled[-1] if resampled else ""
        """What the intervals resample."""
        self.undefined_draws = max((row["undefined_draws"] for row in rows), default=0)
        """Most bootstrap draws in which one of the metrics was undefined."""
        self.cautions: tuple[str, ...] = tuple(cautions(row["clusters"] for row in rows))
        """What to know of intervals that are marked."""
        undefined = [row for row in rows if (row["metric"], row["slice"], row["value"]) == ("qwk", ALL, None)]
        self._why = undefined[-1]["note"] or "" if undefined else ""
        self._rows: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
        self._values: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for row in rows:
            self._rows[row["metric"], row["stage"], row["slice"], row["value_of"]].append(row)
            self._values[row["metric"], row["slice"]][row["value_of"]] = None

    def unit(self, metric: str) -> Unit:
        """How a metric's figures are written; those of a mean over items as those of the items."""
        registered = self.metrics.get(metric.removesuffix("_item_mean"))
        return registered.unit if registered else "number"

    def listed(self, section: str) -> list[Metric]:
        """The metrics that a section lists."""
        return [metric for metric in self.metrics.values() if metric.section == section]

    def named(self, metric: str, estimate: Estimate) -> tuple[Named, Figure]:
        """An estimate of a metric under its title."""
        known = self.metrics[metric]
        return Named(known.title, known.meaning), Figure(estimate, known.unit)

    def values(self, metric: str, part: str) -> list[str]:
        """The values of a slice that a metric is given for."""
        return [*self._values[metric, part]]

    def machine(self, metric: str, stage: str = "calibrated", part: str = ALL, value: str = ALL) -> Estimate:
        """The machine with the target (else with people together) at a stage."""
        rows = self._rows.get((metric, stage, part, value), [])
        for reference in ("target", "people"):
            for row in rows:
                if row["rater_a"] == reference:
                    return _estimate(row)
        return _estimate(rows[0]) if len(rows) == 1 else self._missing()

    def people(self, metric: str, part: str = ALL, value: str = ALL) -> Estimate:
        """People with each other: of several pairs the mean, which has no interval."""
        rows = self._rows.get((metric, "human", part, value), [])
        defined = [row for row in rows if row["value"] is not None]
        if not rows:
            return self._missing("" if self.pairs else "no two people scored")
        if len(rows) == 1 or not defined:
            return _estimate(rows[0])
        mean = fmean(row["value"] for row in defined)
        return Estimate(mean, n=max(row["n"] for row in defined), note=f"mean of {len(defined)} pairs of people")

    def raters(self, metric: str, stage: str = "calibrated") -> list[str]:
        """Whose figures of the whole set there are, in order."""
        return [row["rater_b"] for row in self._rows.get((metric, stage, ALL, ALL), [])]

    def rater(self, metric: str, name: str, stage: str = "calibrated") -> Estimate:
        """A rater's figure of the whole set; '' for the only one of a stage."""
        rows = self._rows.get((metric, stage, ALL, ALL), [])
        return next((_estimate(row) for row in rows if name in ("", row["rater_b"])), self._missing())

    def over_items(self, stage: str = "calibrated") -> str:
        """Behind a QWK that pools several items their mean, in words: pooling flatters; '' with one item."""
        mean = self.people("qwk_item_mean") if stage == "human" else self.machine("qwk_item_mean", stage)
        several = len(self.values("qwk", "item")) > 1
        return f" ({say.number(mean.value)} in the mean over items)" if several and mean.value is not None else ""

    def people_like(self, machine: Estimate, metric: str, part: str = ALL, value: str = ALL) -> Estimate:
        """People with each other, where each pair scored as many answers as the machine is compared on; None with the
        reason where they did not: figures on other answers do not compare."""
        rows = self._rows.get((metric, "human", part, value), [])
        on = {row["n"] for row in rows if row["value"] is not None}
        if on <= {machine.n}:
            return self.people(metric, part, value)
        return Estimate(None, note=f"no two people scored all of these answers, but {max(on):,} of {machine.n:,}")

    def pair(self, metric: str, first: str, second: str) -> Estimate:
        """Two persons with each other."""
        rows = self._rows.get((metric, "human", ALL, ALL), [])
        found = (_estimate(row) for row in rows if {row["rater_a"], row["rater_b"]} == {first, second})
        return next(found, self._missing("no response has both scores"))

    def any(self, metric: str, part: str = ALL, value: str = ALL) -> Estimate:
        """A metric that has one stage only, whichever it is."""
        for stage in ("calibrated", "human", "released", "raw"):
            if (metric, stage, part, value) in self._rows:
                return self.machine(metric, stage, part, value)
        return self._missing()

    def _missing(self, why: str = "") -> Estimate:
        if not self._rows:
            return Estimate(None, note="there are no human scores to compare with")
        return Estimate(None, note=why or self._why or "not measured for these scores")


def _estimate(row: Row) -> Estimate:
    value = row["value"]
    note = row["note"] or ("" if value is not None else "undefined")
    return Estimate(value, row["low"], row["high"], clusters=row["clusters"], n=row["n"], note=note)


def total(rows: Iterable[Row], where: Callable[[Row], Any] = bool) -> int:
    """Responses in the rows of a count that a condition holds for."""
    return sum(row["n"] for row in rows if where(row))


def reasons(rows: Iterable[Row], column: str, names: Mapping[str, str]) -> tuple[NamedCount, ...]:
    """Responses by reason, most first."""
    counts = Counter[str]()
    for row in rows:
        counts[row[column] or "reason not given"] += row["n"]
    largest_first = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return tuple(NamedCount(names.get(reason, say.worded(reason)), counts[reason]) for reason in largest_first)


def first_names(names: Sequence[str]) -> str:
    """The first three of some names, and how many more there are: anna, ben, cem and 2 more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(map(say.name, names[:3]))}{more}"
