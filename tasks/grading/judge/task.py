"""The door of judge: items, responses and bundles in; judgments, gradings and attempts out, a shard at a time."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import Grader
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.budget import TokenBudget
from rubricflow.tasks.core.llm.calls import looking
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.terms import PieceCounts, PieceNames, PieceProgress, concurrency
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.crew import Crew
from rubricflow.tasks.core.monitor.engines import on_engine
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.store.workers import DESKS, refuse_unseen
from rubricflow.tasks.grading.judge.assignment import Assignment
from rubricflow.tasks.grading.judge.progress import Progress
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Rater, item_counts, shard_cases
from rubricflow.tasks.grading.judge.simulated import human_marks
from rubricflow.tasks.grading.judge.worker import (
    Shard,
    ShardJudge,
    ShardWorker,
    libraries_aside,
    replies_for,
    sent_off,
    shards,
    whole_items,
    within,
)

_WORKER = ShardWorker(DESKS)


class JudgedTables(NamedTuple):
    """What judge writes."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


@task(task_run_name=named("judge"), pauses_s=(60, 300, 900))
def judge(
    run: Run,
    plan: Judge,
    base: Path,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    token_budget: int | None = None,
    people: tuple[TableRef, TableRef] | None = None,
    grader: Grader | None = None,
    target: str = MEAN,
    stage: str = "judge",
    placement: Placement = HERE,
) -> JudgedTables:
    """Grade every response, shard by shard; finished shards are passed over; no reply that arrived is asked for again.

    token_budget: tokens of prompts and replies that may be asked for now; BudgetSpent where they do not suffice.
    people: human gradings and judgments, for the simulated rater and for worked examples. grader: the trained grader,
    where the plan's backend is one. target: the human score that examples show, see `Evaluation.target`. stage: under
    which name the tables are written. placement: who judges the shards. InputError where there is no response, or no
    example for an item.
    """
    if not responses.rows:
        hint = "the sources give items alone; name those of the responses beside them"
        raise InputError("there are no responses to judge", field="data.sources", hint=hint)
    counts = item_counts(run, responses)
    parted = whole_items(counts) if plan.consistency_memory else shards(counts)
    finished = run.finished(stage, [name for name, _ in parted])
    ordered = [Shard(name, sum(count for *_, count in parts), name in finished) for name, parts in parted]
    if not all(shard.done for shard in ordered):
        assignment = Assignment(
            run=run,
            plan=plan,
            base=base,
            items=items,
            responses=responses,
            bundles=bundles,
            people=people,
            target=target,
            stage=stage,
        )
        if placement.is_local:
            _judge_here(assignment, ordered, token_budget, grader)
        else:
            _share_out(assignment, ordered, token_budget, grader, placement)
    return JudgedTables(*(run.ref(row, stage) for row in (Judgments, Gradings, Attempts)))


def _judge_here(
    assignment: Assignment, ordered: Sequence[Shard], token_budget: int | None, grader: Grader | None
) -> None:
    """Judges the shards that are not done one after the other, in this process."""
    run, plan = assignment.run, assignment.plan
    with replies_for(plan, run.warehouse) as replies, libraries_aside():
        open_ = sum(shard.responses for shard in ordered if not shard.done)
        progress = Progress(plan.samples * open_, saying(run.run_id, assignment.stage))
        study_rater = _rater(assignment, replies, grader)
        if token_budget is not None:
            study_rater = within(TokenBudget(token_budget), study_rater)
        shard_judge = ShardJudge(assignment, progress.watch(study_rater), replies, progress.wave, progress.opened)
        with looking(progress.look):
            cases_of = shard_cases(run, assignment.items, assignment.responses, assignment.bundles, ordered)
            for name, cases in cases_of:
                for graded in shard_judge.judge(name, cases):
                    progress.graded(graded)
        progress.end()


def _share_out(
    assignment: Assignment,
    ordered: Sequence[Shard],
    token_budget: int | None,
    grader: Grader | None,
    placement: Placement,
) -> None:
    """Has the workers of a cluster judge the shards that are not done."""
    run, stage = assignment.run, assignment.stage
    if grader is not None:
        rule = "a trained grader judges where the command runs: other machines' processors may round its sums otherwise"
        raise InputError(rule, field="run.engine", hint="take engine: local")
    open_ = [shard for shard in ordered if not shard.done]
    words = PieceNames(stage, "shards", "responses", "unscored")
    total = assignment.plan.samples * sum(shard.responses for shard in open_)
    progress = PieceProgress(words, len(open_), total, saying(run.run_id, stage))

    def done(name: str, counts: PieceCounts) -> None:
        if not progress.pieces_ended:
            refuse_unseen(run, stage, [name.split()[-1]])
        progress.ended(counts)

    def work(crew: Crew) -> None:
        workers = concurrency(assignment.plan, crew.room, len(open_))
        sent = pickle.dumps(sent_off(assignment, ordered, workers, token_budget))
        pieces = {f"{stage} {shard.name}": (sent, stage, shard.name) for shard in open_}
        crew.each(judge_shard, pieces, workers, done)

    on_engine(placement, f"{stage} shards", work)
    refuse_unseen(run, stage, [shard.name for shard in open_])


def judged_shard(sent: bytes, stage: str, shard: str) -> PieceCounts:
    """Judge one shard, wherever this runs.

    sent: the pickled `SentAssignment`, for Prefect looks into other parameters.
    """
    with libraries_aside():
        return _WORKER.judge(sent, shard, _rater)


# A name of its own, so that the function travels by its name and meets what its module keeps from shard to shard.
judge_shard = task(task_run_name="{stage} {shard}")(judged_shard)


def _rater(assignment: Assignment, replies: Replies, grader: Grader | None = None) -> Rater:
    """The study's rater; the simulated one gets to know what its human rater said."""
    run, plan, base = assignment.run, assignment.plan, assignment.base
    if plan.truth is None or assignment.people is None:
        return rater(plan, base, replies, credential, grader)
    theirs = ds.field("rater_id") == plan.truth.rater
    gradings, judgments = assignment.people
    scores = run.read(gradings, ["response_id", "item_id", "score", "trait_scores"], theirs)
    marks = run.read(judgments, ["response_id", "criterion_id", "decision"], theirs)
    human = human_marks(scores.to_pylist(maps_as_pydicts="strict"), marks.to_pylist())
    return rater(plan, base, replies, credential, grader, human)
