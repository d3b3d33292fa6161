"""The door of reward: judgments, bundles and graphs in; rewards, dependency cases and their figures out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from prefect import task

from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.errors import InputError
from tasks.contracts.graph import Graph
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.reward import Learn, Reward
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from tasks.reward.aggregate import aggregate
from tasks.reward.compare import AGGREGATIONS, Wiring, against, figures
from tasks.reward.factors import Lesson, Scored, human_scores, read_factors, taught
from tasks.reward.leakage import edge_cases
from tasks.reward.local import Locals, local_scores
from tasks.reward.rows import cases, rewards
from tasks.reward.wire import Wired, wire
from tasks.stats.target import target_scores
from tasks.store.naming import named
from tasks.store.warehouse import Rows, Run

_JUDGED = ["response_id", "criterion_id", "rater_id", "sample", "decision", "level_probabilities", "action"]


class Paid(NamedTuple):
    """What reward writes."""

    rewards: TableRef
    edge_cases: TableRef
    diagnostics: TableRef
    retentions: TableRef


@task(task_run_name=named("reward"))
def reward(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    gradings: TableRef,
    bundles: TableRef,
    graphs: TableRef,
    judgments: TableRef,
) -> Paid:
    """Reward every judged response by every aggregation, say what leaks, and learn factors where the study says so.

    gradings: what people gave the responses, to learn from and to compare with. The study has a section `reward`.
    InputError where the rater that it names judged nothing, or a table of factors does not fit the graphs.
    """

    def make() -> dict[type[Row], Rows]:
        settings = study.reward
        assert settings is not None  # the flow asks for it
        locked = unlocked(run.read(bundles).to_pylist())
        drawn = {row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in run.read(graphs).to_pylist()}
        known = read_factors(base / settings.edge_retention, drawn) if settings.edge_retention else {}

        def wiring(eta: float) -> Mapping[str, Wired]:
            return {
                name: wire(name, locked[name], graph, settings.retention, eta, known.get(name))
                for name, graph in drawn.items()
            }

        rubric_of = _pairs(run.read(items, ["item_id", "rubric_id"]))
        item_of = _pairs(run.read(responses, ["response_id", "item_id"]))
        judged = _judged(run, judgments, settings)
        of = local_scores(judged, item_of, rubric_of, locked, wiring(settings.eta), settings.local)
        scores = run.read(gradings, ["response_id", "rater_id", "rater_kind", "score"])
        lesson = Lesson([], [])
        if settings.learn:
            plain = {name: wire(name, locked[name], graph, settings.retention) for name, graph in drawn.items()}
            given = _given(run, of, responses, scores, locked, settings.learn)
            lesson = taught(of, plain, given, settings.learn, settings.draws)
        return _tables(of, wiring, study, settings, scores, lesson)

    run.once("reward", make)
    return Paid(*(run.ref(row, "reward") for row in (Rewards, EdgeCases, Diagnostics, Retentions)))


def _tables(
    of: Locals, wiring: Wiring, study: Study, settings: Reward, scores: pa.Table, lesson: Lesson
) -> dict[type[Row], Rows]:
    found = {
        name: aggregate(
            of.batch,
            name,
            threshold=settings.threshold,
            inference=settings.inference,
            unscored=study.judge.unscored,
        )
        for name in AGGREGATIONS
    }
    met = {name: edge_cases(of.batch, one.marginal, settings.threshold) for name, one in found.items()}
    return {
        Rewards: pa.concat_tables([rewards(of, one, name, settings) for name, one in found.items()]),
        EdgeCases: pa.concat_tables([cases(of, one, name) for name, one in met.items()]),
        Diagnostics: [
            *figures(of, found, wiring, settings, study.judge.unscored),
            *against(of, found, scores, settings),
            *lesson.diagnostics,
        ],
        Retentions: lesson.retentions,
    }


def _judged(run: Run, judgments: TableRef, settings: Reward) -> pa.Table:
    """The judgments that are rewarded."""
    if settings.rater is None:
        return run.read(judgments, _JUDGED)
    theirs = run.read(judgments, _JUDGED, ds.field("rater_id") == settings.rater)
    if not theirs.num_rows:
        there = ", ".join(sorted(pc.unique(run.read(judgments, ["rater_id"])["rater_id"]).to_pylist())) or "none"
        rule = f"rater '{settings.rater}' judged no criterion of any response"
        raise InputError(rule, field="reward.rater", hint=f"there are {there}")
    return theirs


def _given(
    run: Run, of: Locals, responses: TableRef, scores: pa.Table, locked: Mapping[str, Bundle], plan: Learn
) -> Scored:
    """The human scores to learn from."""
    scales = {bundle.scale.bounds for bundle in locked.values()}
    if len(scales) > 1:
        raise InputError(f"the rubrics have {len(scales)} scales; factors are learned on one", field="reward.learn")
    who = run.read(responses, ["response_id", "author_id", "split"])
    return human_scores(of, target_scores(scores, plan.target), who, scales.pop())


def _pairs(table: pa.Table) -> dict[str, str]:
    """A table of two columns as a mapping."""
    first, second = (column.to_pylist() for column in table.columns)
    return dict(zip(first, second, strict=True))
