"""Every figure of the evaluation, as rows of `metrics`; and those held against thresholds, as rows of `verdicts`: flags
for a person to look at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.stats.agreement import Stat, level_count
from rubricflow.tasks.core.stats.metrics import METRICS, Bound, Gate, Metric
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.core.stats.verdict import labels_needed, margin, verdict
from rubricflow.tasks.grading.evaluate.agree import agree, pairs
from rubricflow.tasks.grading.evaluate.baselines import against_length, against_others, against_text, rank_raters
from rubricflow.tasks.grading.evaluate.people import (
    FEWEST,
    again,
    compare_with_people,
    fairness,
    level_shares,
    lost_over_items,
    rater_effects,
    spread,
    validity,
    variety,
)
from rubricflow.tasks.grading.evaluate.slices import (
    TARGET,
    Record,
    ScaleBounds,
    Setting,
    group_slices,
    narrowed,
    released,
    slices,
)

_OF_GROUPS = (TARGET, "raw", "calibrated", "low", "high", "risk", "route", "row", "item_id", "author_id", "cluster")
"""Columns of the score frame that figures of groups are made of, with the groups' and the raters' own."""
FEWEST_OF_A_GROUP = 100
"""Responses below which a group's difference stays undecided."""
DOUBLES = "doubles"
"""The metric that is counted for its gate and is in no row of `metrics`."""
ITEM_MEAN = "mean over items"
"""In `verdicts` what a figure is of that is over all items and pools none of them."""
NOTHING: dict[Hashable, Any] = {
    **dict.fromkeys(("value", "low", "high", "clusters")),
    "n": 0,
    "slice": "all",
    "value_of": "all",
}
"""The figure of a gate that nothing was measured for."""


def figures(
    scores: ScoreFrame,
    scales: Mapping[str, ScaleBounds],
    machine: str,
    evaluation: Evaluation,
    release: Release,
    metrics: Sequence[Metric] = METRICS,
) -> tuple[list[Record], list[Record]]:
    """(rows of `metrics`, rows of `verdicts`); nothing without a human score. metrics: what pairs of
    raters are compared by, and every gate."""
    frame, groups, people, likely = scores
    if not frame["target"].notna().any():
        return [], []
    on = Setting(scales, machine, people, evaluation.target, evaluation.draws, evaluation.seed)
    marks = [f"human:{name}" for name in people]
    records = agree(frame, groups, pairs(people, machine), on, metrics)
    with_groups = narrowed(frame, [*_OF_GROUPS, *marks, *(f"group:{name}" for name in groups)])
    for part in chain(slices(frame, scales), group_slices(with_groups, groups, scales)):
        records += released(part, likely, release, on)
        records += compare_with_people(part, on)
        if part.slice in ("all", "item"):
            for of_part in (spread, variety, again, validity):
                records += of_part(part, on)
    whole_set = next(slices(frame, scales))
    found = {(row["metric"], row["slice"], row["value_of"]): row["value"] for row in records}
    lost = {
        item: value for (metric, part, item), value in found.items() if (metric, part) == ("degradation_qwk", "item")
    }
    records += lost_over_items(whole_set, lost, on)
    for of_set in (against_length, against_text, against_others, rank_raters, level_shares):
        records += of_set(whole_set, on)
    reliability = Stat(None, "undefined: needs two people")
    if ("reliability", "all", "all") in found:
        reliability = Stat(found["reliability", "all", "all"])
    records += fairness(whole_set, groups, reliability, on)
    records += rater_effects(whole_set, on)
    doubles = int((frame[marks].notna().sum(axis=1) >= 2).sum())
    return records, list(gates(conform(Metrics, records).to_pandas(), groups, scales, release, doubles, metrics))


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
    items = metrics.loc[metrics["slice"] == "item", "value_of"].nunique()
    for metric in registered:
        rows = metrics[metrics["metric"].isin([metric.name, f"{metric.name}_item_mean"])]
        for gate in metric.gates:
            bounds = _bound(gate.least, plan, levels), _bound(gate.most, plan, levels)
            figures = list(_figures(rows, metric.name, gate, groups, items)) if len(rows) else []
            if metric.name == DOUBLES:
                figures = [(double_count, False)]
            if gate.always and not figures:
                figures = [(NOTHING, False)]
            if gate.always or bounds != (None, None):
                yield from (_row(gate, metric.name, bounds, figure, doubtful) for figure, doubtful in figures)


def _figures(
    metrics: pd.DataFrame, metric: str, gate: Gate, groups: list[str], items: int
) -> Iterator[tuple[Mapping[Hashable, Any], bool]]:
    """The figures that a gate is held against, and whether too few responses are behind one to decide."""
    kinds = []
    for part in gate.slices:
        if part != "items":
            kinds += groups if part == "group" else [part]
    for kind in kinds:
        for _, rows in _judged_rows(metrics, metric, gate, kind).groupby("value_of", sort=True):
            # Of several pairs of people the one that agrees least counts.
            worst = rows.sort_values("value").iloc[0].to_dict()
            if kind not in groups:
                yield worst, False
            elif worst["n"] >= FEWEST:
                yield worst, worst["n"] < FEWEST_OF_A_GROUP
    if "items" in gate.slices:
        # The mean over several items, next to the figure that pools them and so flatters.
        rows = _judged_rows(metrics, f"{metric}_item_mean", gate, "all")
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
    ends = (figure[name] for name in ("value", "low", "high"))
    estimate, low, high = (None if end is None or pd.isna(end) else float(end) for end in ends)
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
