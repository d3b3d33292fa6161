"""The gates: figures held against thresholds, as flags for a person to look at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import level_count
from rubricflow.tasks.core.stats.metrics import METRICS, Bound, Gate, Metric
from rubricflow.tasks.core.stats.verdict import labels_needed, margin, verdict
from rubricflow.tasks.grading.evaluate.groups import HIDDEN
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds

FEWEST_OF_A_GROUP = 100
"""Responses below which a group's difference stays undecided."""
DOUBLES = "doubles"
"""The metric that is counted for its gate and is in no row of `metrics`."""
ITEM_MEAN = "mean over items"
"""In `verdicts` what a figure is of that is over all items and pools none of them."""
NOTHING: dict[Hashable, Any] = {
    **dict.fromkeys(("value", "low", "high", "clusters")),
    **{"n": 0, "slice": "all", "value_of": "all"},
}
"""The figure of a gate that nothing was measured for."""


def gates(
    metrics: pd.DataFrame,
    groups: list[str],
    scales: Mapping[str, ScaleBounds],
    plan: Release,
    doubles: int,
    registered: Sequence[Metric] = METRICS,
) -> Iterator[Record]:
    """Rows of `verdicts`.

    metrics: rows of `metrics` as a frame; doubles: held-out responses that two people scored; registered: whose gates
    are asked.
    """
    double_count = NOTHING | dict.fromkeys(("value", "low", "high"), float(doubles)) | {"n": doubles}
    levels = {level_count(*scale) for scale in scales.values()}
    for metric in registered:
        for gate in metric.gates:
            bounds = _bound(gate.least, plan, levels), _bound(gate.most, plan, levels)
            figures = list(_figures(metrics, metric.name, gate, groups))
            if metric.name == DOUBLES:
                figures = [(double_count, False)]
            if gate.always and not figures:
                figures = [(NOTHING, False)]
            if gate.always or bounds != (None, None):
                yield from (_row(gate, metric.name, bounds, figure, doubtful) for figure, doubtful in figures)


def _figures(
    metrics: pd.DataFrame, metric: str, gate: Gate, groups: list[str]
) -> Iterator[tuple[Mapping[Hashable, Any], bool]]:
    """The figures that a gate is held against, and whether too few responses are behind one to decide."""
    kinds = list[str]()
    for part in gate.slices:
        if part != "items":
            kinds += groups if part == "group" else [part]
    for kind in kinds:
        for _, rows in _judged_rows(metrics, metric, gate, kind).groupby("value_of", sort=True):
            # Of several pairs of people the one that agrees least speaks.
            worst = rows.sort_values("value").iloc[0].to_dict()
            if kind not in groups:
                yield worst, False
            elif worst["n"] >= HIDDEN:
                yield worst, worst["n"] < FEWEST_OF_A_GROUP
    if "items" in gate.slices:
        yield from _over_items(metrics, metric, gate)


def _over_items(metrics: pd.DataFrame, metric: str, gate: Gate) -> Iterator[tuple[Mapping[Hashable, Any], bool]]:
    """The mean over several items, beside the figure that pools them and so flatters; nothing where it speaks for that
    already."""
    rows = _judged_rows(metrics, f"{metric}_item_mean", gate, "all")
    items = metrics.loc[metrics["slice"] == "item", "value_of"].nunique()
    pooled = "all" not in gate.slices or _judged_rows(metrics, metric, gate, "all")["metric"].eq(metric).any()
    if len(rows) and items > 1 and pooled:
        yield rows.sort_values("value").iloc[0].to_dict() | {"value_of": ITEM_MEAN}, False


def _bound(bound: Bound, plan: Release, levels: set[int]) -> float | None:
    """The number that a bound stands for; None where it stands for none."""
    if isinstance(bound, str):
        return float(getattr(plan, bound))
    if isinstance(bound, Mapping):
        return bound.get(next(iter(levels))) if len(levels) == 1 else None
    return bound


def _judged_rows(metrics: pd.DataFrame, metric: str, gate: Gate, kind: str) -> pd.DataFrame:
    """The rows of `metrics` that a gate looks at; over the whole set the mean over items, where items have different
    scales and nothing can be pooled."""
    of_stage = metrics[(metrics["stage"] == gate.stage) & (metrics["slice"] == kind)]
    if gate.stage != "human":
        with_itself = of_stage["rater_a"] == of_stage["rater_b"]
        of_stage = of_stage[of_stage["rater_a"].isin([TARGET, "people"]) | with_itself]
    rows, over_items = (of_stage[of_stage["metric"] == name] for name in (metric, f"{metric}_item_mean"))
    return over_items if kind == "all" and rows["value"].isna().all() and len(over_items) else rows


def _row(
    gate: Gate, metric: str, bounds: tuple[float | None, float | None], figure: Mapping[Hashable, Any], doubtful: bool
) -> Record:
    estimate, low, high = (_number(figure[name]) for name in ("value", "low", "high"))
    outcome = verdict(estimate, low, high, *bounds)
    if doubtful and outcome != "unknown":
        outcome = "undecided"
    more = labels_needed(estimate, low, high, int(figure["n"]), *bounds)
    if gate.to_show and outcome == "undecided" and margin(estimate, *bounds) < 0:
        outcome, more = "fail", None
    if doubtful:
        more = max(more or 0, FEWEST_OF_A_GROUP - int(figure["n"]))
    return {
        "gate": gate.name,
        "slice": figure["slice"],
        "value_of": figure["value_of"],
        "metric": metric,
        "estimate": estimate,
        "low": low,
        "high": high,
        "clusters": None if pd.isna(figure["clusters"]) else int(figure["clusters"]),
        "n": int(figure["n"]),
        "least": bounds[0],
        "most": bounds[1],
        "outcome": outcome,
        "labels_needed": more,
        "source": gate.source,
        "if_missed": gate.if_missed,
    }


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
