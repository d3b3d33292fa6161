"""Tables of a run as rewarding reads them, and those that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.reward import Learn, Reward
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from tasks.reward.aggregate import aggregate
from tasks.reward.compare import AGGREGATIONS, Wiring, against, figures
from tasks.reward.factors import HumanScores, Lesson, human_scores
from tasks.reward.leakage import edge_cases
from tasks.reward.local import Locals
from tasks.reward.rows import cases, rewards
from tasks.stats.target import target_scores
from tasks.store.shards import Rows
from tasks.store.warehouse import Run

_JUDGED = ["response_id", "criterion_id", "rater_id", "sample", "decision", "level_probabilities", "action"]


def reward_tables(
    judged: Locals, wiring: Wiring, study: Study, settings: Reward, scores: pa.Table, lesson: Lesson
) -> dict[type[Row], Rows]:
    """The rewards of every aggregation, where they differ, what leaks, and what was learned."""
    reward_of = partial(
        aggregate,
        judged.batch,
        threshold=settings.threshold,
        inference=settings.inference,
        unscored=study.judge.unscored,
    )
    aggregated = {name: reward_of(name) for name in AGGREGATIONS}
    reward_parts, case_parts = [], []
    for name, worth in aggregated.items():
        reward_parts.append(rewards(judged, worth, name, settings))
        leaks = edge_cases(judged.batch, worth.marginal, settings.threshold)
        case_parts.append(cases(judged, leaks, name))
    diagnostics = [
        *figures(judged, aggregated, wiring, settings, study.judge.unscored),
        *against(judged, aggregated, scores, settings),
        *lesson.diagnostics,
    ]
    return {
        Rewards: pa.concat_tables(reward_parts),
        EdgeCases: pa.concat_tables(case_parts),
        Diagnostics: diagnostics,
        Retentions: lesson.retentions,
    }


def judged_rows(run: Run, judgments: TableRef, settings: Reward) -> pa.Table:
    """The judgments that are rewarded."""
    if settings.rater is None:
        return run.read(judgments, _JUDGED)
    theirs = run.read(judgments, _JUDGED, ds.field("rater_id") == settings.rater)
    if not theirs.num_rows:
        there = ", ".join(sorted(pc.unique(run.read(judgments, ["rater_id"])["rater_id"]).to_pylist())) or "none"
        rule = f"rater '{settings.rater}' judged no criterion of any response"
        raise InputError(rule, field="reward.rater", hint=f"there are {there}")
    return theirs


def scores_to_learn(
    run: Run, judged: Locals, responses: TableRef, scores: pa.Table, locked: Mapping[str, Bundle], plan: Learn
) -> HumanScores:
    """The human scores to learn from."""
    scales = {bundle.scale.bounds for bundle in locked.values()}
    if len(scales) > 1:
        raise InputError(f"the rubrics have {len(scales)} scales; factors are learned on one", field="reward.learn")
    authors = run.read(responses, ["response_id", "author_id", "split"])
    return human_scores(judged, target_scores(scores, plan.target), authors, scales.pop())


def pairs(table: pa.Table) -> dict[str, str]:
    """A table of two columns as a mapping."""
    first, second = (column.to_pylist() for column in table.columns)
    return dict(zip(first, second, strict=True))
