"""Tables of a run as rewarding reads them, and those that it makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.reward import Aggregation, Learn, Reward
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.reward import EdgeCases, Rewards
from tasks.reward.aggregate import aggregate
from tasks.reward.compare import AGGREGATIONS, Wiring, ablations, against, figures
from tasks.reward.factors import HumanScores, human_scores
from tasks.reward.figures import Record
from tasks.reward.leakage import edge_cases
from tasks.reward.local import Locals, local_scores
from tasks.reward.rows import cases, rewards
from tasks.reward.wire import Wired
from tasks.stats.arrays import Floats
from tasks.stats.target import target_scores
from tasks.store.shards import give_back
from tasks.store.warehouse import Run

_JUDGED = ["response_id", "criterion_id", "rater_id", "sample", "decision", "level_probabilities", "action"]


def write_rewards(
    run: Run, judged: Locals, wiring: Wiring, study: Study, settings: Reward, scores: pa.Table
) -> list[Record]:
    """Commit the rewards of every aggregation and its dependency cases, a part of the responses to a shard; the rows of
    `diagnostics` about them and who else scored.

    scores: as `against` takes them.
    """
    diagnostics: list[Record] = []
    reward_of: dict[Aggregation, Floats] = {}
    for nth, name in enumerate(AGGREGATIONS):
        worth = aggregate(
            judged.batch,
            name,
            threshold=settings.threshold,
            inference=settings.inference,
            unscored=study.judge.unscored,
        )
        leaks = edge_cases(judged.batch, worth.marginal, settings.threshold)
        tables = zip(rewards(judged, worth, name, settings), cases(judged, leaks, name), strict=True)
        for number, (paid, dependencies) in enumerate(tables):
            run.commit("reward", f"{nth}-{name}-{number:05d}", {Rewards: paid, EdgeCases: dependencies})
        diagnostics += figures(judged, name, worth, settings)
        reward_of[name] = worth.reward
    diagnostics += ablations(judged, wiring, settings, study.judge.unscored)
    return diagnostics + against(judged, reward_of, scores, settings)


def judged_responses(
    run: Run,
    items: TableRef,
    responses: TableRef,
    judgments: TableRef,
    locked: Mapping[str, Bundle],
    wired: Mapping[str, Wired],
    settings: Reward,
) -> Locals:
    """The local scores of the responses that are rewarded."""
    rubric_of = _pairs(run.read(items, ["item_id", "rubric_id"]))
    item_of = _pairs(run.read(responses, ["response_id", "item_id"]))
    rows = _judged_rows(run, judgments, settings)
    return local_scores(rows, item_of, rubric_of, locked, wired, settings.local)


def _judged_rows(run: Run, judgments: TableRef, settings: Reward) -> pa.Table:
    """The judgments that are rewarded."""
    if settings.rater is None:
        return _coded(run.read(judgments, _JUDGED))
    theirs = run.read(judgments, _JUDGED, ds.field("rater_id") == settings.rater)
    if not theirs.num_rows:
        there = ", ".join(sorted(pc.unique(run.read(judgments, ["rater_id"])["rater_id"]).to_pylist())) or "none"
        rule = f"rater '{settings.rater}' judged no criterion of any response"
        raise InputError(rule, field="reward.rater", hint=f"there are {there}")
    return _coded(theirs)


def _coded(rows: pa.Table) -> pa.Table:
    """The rows with every id once and numbers in its place: half the memory."""
    for name in ("response_id", "criterion_id", "rater_id"):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].dictionary_encode())
        give_back()
    return rows


def _pairs(table: pa.Table) -> dict[str, str]:
    """A table of two columns as a mapping, of the second each string once."""
    first, second = (column.to_pylist() for column in table.columns)
    return dict(zip(first, map(sys.intern, second), strict=True))


def scores_to_learn(
    run: Run, judged: Locals, responses: TableRef, scores: pa.Table, locked: Mapping[str, Bundle], plan: Learn
) -> HumanScores:
    """The human scores to learn from."""
    scales = {bundle.scale.bounds for bundle in locked.values()}
    if len(scales) > 1:
        raise InputError(f"the rubrics have {len(scales)} scales; factors are learned on one", field="reward.learn")
    authors = run.read(responses, ["response_id", "author_id", "split"])
    return human_scores(judged, target_scores(scores, plan.target), authors, scales.pop())
