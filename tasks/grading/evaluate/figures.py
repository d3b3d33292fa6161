"""Every figure of the evaluation, as rows of `metrics` and `verdicts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.metrics import METRICS, Metric
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.grading.evaluate.agree import agree, pairs
from rubricflow.tasks.grading.evaluate.gates import gates
from rubricflow.tasks.grading.evaluate.groups import fairness
from rubricflow.tasks.grading.evaluate.length import against_length
from rubricflow.tasks.grading.evaluate.marks import again, level_shares, spread, validity, variety
from rubricflow.tasks.grading.evaluate.other_runs import against_others
from rubricflow.tasks.grading.evaluate.people import beside_people, lost_over_items, rater_effects
from rubricflow.tasks.grading.evaluate.released import released
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, group_slices, narrowed, slices
from rubricflow.tasks.grading.evaluate.standing import against_text, standing

_OF_GROUPS = (TARGET, "raw", "calibrated", "low", "high", "risk", "route", "row", "item_id", "author_id", "cluster")
"""Columns of the score frame that figures of groups are made of, beside the groups' and the raters' own."""


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
    frame, groups, raters, likely = scores
    if not frame["target"].notna().any():
        return [], []
    target, draws, seed = evaluation.target, evaluation.draws, evaluation.seed
    records = agree(frame, groups, scales, pairs(raters, machine), draws, seed, metrics=metrics)
    of_raters, of_groups = (f"human:{name}" for name in raters), (f"group:{name}" for name in groups)
    with_groups = narrowed(frame, [*_OF_GROUPS, *of_raters, *of_groups])
    for part in chain(slices(frame, scales), group_slices(with_groups, groups, scales)):
        records += released(part, scales, likely, release, machine, draws=draws, seed=seed)
        records += beside_people(part, scales, raters, machine, target, draws=draws, seed=seed)
        if part.slice in ("all", "item"):
            records += spread(part, scales, machine)
            records += variety(part, machine)
            records += again(part, machine, draws, seed)
            records += validity(part, scales, machine, draws, seed)
    whole_set = next(slices(frame, scales))
    reliability = [row for row in records if (row["metric"], row["slice"]) == ("reliability", "all")]
    reliable = Stat(reliability[0]["value"]) if reliability else Stat(None, "undefined: needs two people")
    lost = _lost_by_item(records)
    records += lost_over_items(whole_set, scales, raters, machine, lost, draws=draws, seed=seed)
    for beside in (against_length, against_text, against_others):
        records += beside(whole_set, scales, machine, draws, seed)
    records += standing(whole_set, scales, raters, machine, draws, seed)
    records += level_shares(whole_set, raters, machine, target, draws, seed)
    records += fairness(whole_set, groups, scales, machine, reliable, draws=draws, seed=seed)
    records += rater_effects(whole_set, scales, raters, draws, seed)
    doubles = int((frame[[f"human:{name}" for name in raters]].notna().sum(axis=1) >= 2).sum())
    return records, list(gates(conform(Metrics, records).to_pandas(), groups, scales, release, doubles, metrics))


def _lost_by_item(records: list[Record]) -> dict[str, Stat]:
    rows = [row for row in records if row["metric"] == "degradation_qwk" and row["slice"] == "item"]
    return {row["value_of"]: Stat(row["value"]) for row in rows}
