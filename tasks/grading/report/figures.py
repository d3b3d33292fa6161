"""The run's metrics, looked up by name; what is missing comes with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from rubricflow.tasks.core.display.section import Figure, Named
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.metrics import METRICS, Metric, Unit
from rubricflow.tasks.core.stats.verdict import Estimate

ALL = "all"
NOTHING_SCORED = "no held-out response has both a human and a machine score"
STAGES = ("released", "calibrated", "human", "raw", "")
"""Stages of gates, the weightiest first: what goes out, then every score, then people."""


class Figures:
    """Rows of `metrics` by metric, stage, slice and value."""

    def __init__(self, rows: Rows, metrics: Sequence[Metric] = METRICS) -> None:
        self.metrics = {metric.name: metric for metric in metrics}
        """What is known of each metric, by name."""
        gates = [(gate, gate.question or metric.title) for metric in metrics for gate in metric.gates]
        gates.sort(key=lambda pair: STAGES.index(pair[0].stage))
        self.questions = {gate.name: question for gate, question in gates}
        """Gates in words, the weightiest first."""
        self.resampled = next((row["resampled"] for row in rows if row["resampled"] in ("author", "response")), "")
        """What the intervals resample."""
        self.cautions = tuple(cautions(row["clusters"] for row in rows))
        """What to know of intervals that are marked."""
        undefined = [row["note"] for row in rows if (row["metric"], row["slice"], row["value"]) == ("qwk", ALL, None)]
        self._why = undefined[-1] if undefined else None
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
        return [metric for metric in self.metrics.values() if metric.section == section]

    def named(self, metric: str, estimate: Estimate) -> tuple[Named, Figure]:
        known = self.metrics[metric]
        return Named(known.title, known.meaning), Figure(estimate, known.unit)

    def values(self, metric: str, part: str) -> list[str]:
        return [*self._values[metric, part]]

    def machine(self, metric: str, stage: str = "calibrated", part: str = ALL, value: str = ALL) -> Estimate:
        """The machine with the target (else with people together) at a stage."""
        rows = self._rows.get((metric, stage, part, value), [])
        for reference in ("target", "people"):
            for row in rows:
                if row["rater_a"] == reference:
                    return estimate_of(row)
        return estimate_of(rows[0]) if len(rows) == 1 else self._missing()

    def people(self, metric: str, part: str = ALL, value: str = ALL, on: int | None = None) -> Estimate:
        """People with each other: of several pairs the mean, which has no interval. on: how many answers the machine
        is compared on; None with the reason where a pair scored others, as such figures do not compare."""
        rows = self._rows.get((metric, "human", part, value), [])
        defined = [row for row in rows if row["value"] is not None]
        if not rows:
            return self._missing("no two people scored")
        if on is not None and {row["n"] for row in defined} - {on}:
            most = max(row["n"] for row in defined)
            return Estimate(None, note=f"no two people scored all of these answers, but {most:,} of {on:,}")
        if len(rows) == 1 or not defined:
            return estimate_of(rows[0])
        mean = fmean(row["value"] for row in defined)
        return Estimate(mean, n=max(row["n"] for row in defined), note=f"mean of {len(defined)} pairs of people")

    def raters(self, metric: str, stage: str = "calibrated") -> list[str]:
        """Whose figures of the whole set there are, in order."""
        return [row["rater_b"] for row in self._rows.get((metric, stage, ALL, ALL), [])]

    def rater(self, metric: str, name: str, stage: str = "calibrated") -> Estimate:
        """A rater's figure of the whole set; '' for the only one of a stage."""
        rows = self._rows.get((metric, stage, ALL, ALL), [])
        return next((estimate_of(row) for row in rows if name in ("", row["rater_b"])), self._missing())

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


def estimate_of(row: Row) -> Estimate:
    value = row["value"]
    note = row["note"] or ("" if value is not None else "undefined")
    return Estimate(value, row["low"], row["high"], clusters=row["clusters"], n=row["n"], note=note)
