"""Raters by the many-facet model: severity, fit, drift and halo of each, and who needs retraining, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.comparison import Effect, Raters
from rubricflow.tasks.grading.report.sections import listed

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Reason:
    """The figure that a flag rests on: columns of its row, and how it reads."""

    column: str
    unit: Unit
    words: str


LENIENCY = _Reason("leniency", "signed", "{} steps")
APART = _Reason("discrimination", "number", "discrimination {}")
REASONS = {
    "strict": (LENIENCY,),
    "lenient": (LENIENCY,),
    "erratic": (_Reason("infit", "number", "infit {}"), APART),
    "central": (APART,),
    "halo": (_Reason("halo", "signed", "traits correlate {} more than with other persons' marks"),),
}


def with_effects(section: Raters, effects: Sequence[Row]) -> Raters:
    """The section with what the model says of the score, and a sentence for each rater with a flag on it or a trait.

    effects: rows of `rater_effects`.
    """
    overall = [row for row in effects if row["slice"] == "all" and row["trait"] == ""]
    overall.sort(key=lambda row: (not row["flags"], row["leniency"] is None, row["leniency"] or 0.0, row["rater_id"]))
    flagged = sorted({row["rater_id"] for row in effects if row["flags"]})
    training = tuple(_sentence(name, effects) for name in flagged)
    rows = listed([_effect(row, effects) for row in overall])
    if not flagged:
        return replace(section, effects=rows)
    return replace(section, title=f"{_names(flagged)} retraining", effects=rows, training=training)


def _names(flagged: Sequence[str]) -> str:
    """Who is flagged, and a verb for as many: 'anna and ben need'."""
    names = ", ".join(say.name(name) for name in flagged[:3])
    more = f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
    return f"{names}{more} {'needs' if len(flagged) == 1 else 'need'}"


def _effect(row: Row, effects: Sequence[Row]) -> Effect:
    drifts = [other for other in _periods(effects, row["rater_id"], "") if other["leniency"] is not None]
    drift = max(drifts, key=lambda other: abs(other["leniency"]), default=None)
    return Effect(
        name=say.name(row["rater_id"]),
        leniency=_estimate(row, "leniency"),
        infit=_estimate(row, "infit"),
        discrimination=_estimate(row, "discrimination"),
        drift=_estimate(drift, "leniency") if drift else Estimate(None, note="no period is given"),
        period=say.name(drift["value_of"]) if drift else "",
        halo=_estimate(row, "halo"),
        flagged=bool(row["flags"]),
    )


def _periods(effects: Sequence[Row], name: str, trait: str) -> list[Row]:
    return [row for row in effects if (row["rater_id"], row["trait"], row["slice"]) == (name, trait, "period")]


def _sentence(name: str, effects: Sequence[Row]) -> str:
    """Every flag of a rater in words."""
    rows = [row for row in effects if row["rater_id"] == name]
    clauses: list[str] = []
    for row in rows:
        clauses += [_clause(row, flag, rows) for flag in row["flags"]]
    return f"{say.name(name)} {'; '.join(clauses)}."


def _clause(row: Row, flag: str, rows: Sequence[Row]) -> str:
    where = f" on {say.name(row['trait'])}" if row["trait"] else ""
    if flag == "drift":
        periods = _periods(rows, row["rater_id"], row["trait"])
        worst = max(periods, key=lambda other: abs(other["leniency"] or 0.0))
        figure = f"{_figure(worst, 'leniency', 'signed')} steps in {say.name(worst['value_of'])}"
    else:
        figure = ", ".join(each.words.format(_figure(row, each.column, each.unit)) for each in REASONS[flag])
    return f"{RATER_FLAGS[flag]}{where}: {figure}"


def _figure(row: Row, column: str, unit: Unit) -> str:
    estimate = _estimate(row, column)
    return f"{say.figure(estimate.value or 0.0, unit)} ({say.interval(estimate, unit)})"


def _estimate(row: Row, column: str) -> Estimate:
    ends = ("low", "high") if column == "leniency" else (f"{column}_low", f"{column}_high")
    low, high = (row.get(end) for end in ends)
    return Estimate(row[column], low, high, n=row["ratings"], note=row["note"] or "")
