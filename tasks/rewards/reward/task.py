"""The entry point of reward: judgments, bundles and graphs in; rewards, dependency cases and their figures out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import GIVEN
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, Tables, give_back
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph
from rubricflow.tasks.rewards.reward.factors import Lesson, read_factors, split_of, taught, taught_by_marks
from rubricflow.tasks.rewards.reward.rows import judged_responses, scores_to_learn, write_rewards


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
    marks: TableRef,
    evaluated: TableRef | None = None,
) -> Paid:
    """Reward every judged response by every aggregation, say what leaks, and learn factors where the study says so.

    gradings: what people gave the responses, to learn from and to compare with; marks: what they gave single criteria;
    evaluated: what the evaluation's own judge gave the responses, to compare with, where there is one.
    The study has a section `reward`. InputError where the rater that it names judged nothing, or a table of factors
    does not fit the graphs.
    """

    def make() -> Tables:
        settings = study.reward
        assert settings is not None  # the flow asks for it
        locked = unlocked(run.read(bundles).to_pylist())
        by_rubric = {
            row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in run.read(graphs).to_pylist()
        }
        factors = read_factors(base / settings.edge_retention, by_rubric) if settings.edge_retention else {}

        def compile_at(eta: float) -> Mapping[str, CompiledGraph]:
            return {
                name: compile_graph(name, locked[name], graph, settings.retention, eta, factors.get(name))
                for name, graph in by_rubric.items()
            }

        judged = judged_responses(run, items, responses, judgments, locked, compile_at(settings.eta), settings)
        give_back()
        scores = run.read(gradings, GIVEN)
        lesson = Lesson([], [])
        if settings.learn:
            plain = {
                name: compile_graph(name, locked[name], graph, settings.retention) for name, graph in by_rubric.items()
            }
            if settings.learn.by == "marks":
                theirs = settings.model_copy(update={"rater": settings.learn.target, "local": "decision"})
                people = judged_responses(run, items, responses, marks, locked, plain, theirs)
                split = split_of(judged, run.read(responses, ["response_id", "split"]))
                lesson = taught_by_marks(judged, plain, people, split, settings)
            else:
                human = scores_to_learn(run, judged, responses, scores, locked, settings.learn)
                lesson = taught(judged, plain, human, settings.learn, settings.draws)
        if evaluated:
            given = run.read(evaluated, GIVEN, ds.field("sample") == 0)
            scores = pa.concat_tables([scores, given])
        diagnostics = write_rewards(run, judged, compile_at, study, settings, scores)
        return {
            Rewards: [],
            EdgeCases: [],
            Diagnostics: [*diagnostics, *lesson.diagnostics],
            Retentions: lesson.retentions,
        }

    # The shard 'all' comes last: without it the stage is not done, and the others are written again, the same.
    run.once("reward", make)
    return Paid(*(run.ref(row, "reward") for row in (Rewards, EdgeCases, Diagnostics, Retentions)))
