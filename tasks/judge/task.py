"""The door of judge: items, responses and bundles in; judgments, gradings and attempts out, a shard at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.dataset as ds
from prefect.blocks.system import Secret

from tasks.contracts.backends import speaks
from tasks.contracts.errors import BackendError, InputError
from tasks.contracts.grader import Grader
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.judge import Judge
from tasks.contracts.tables.judging import Attempts, Gradings, Judgments
from tasks.judge.grade import grade_batch
from tasks.judge.progress import Progress
from tasks.judge.rater import rater, repeated, signal_recorded
from tasks.judge.rows import Rater
from tasks.judge.shards import libraries_aside, shards, whole_items
from tasks.judge.simulated import known
from tasks.judge.standing import keeping_of
from tasks.judge.tables import item_counts, shard_cases
from tasks.judge.teaching import People, teaching_of
from tasks.llm.budget import Budgeted, Purse
from tasks.llm.calls import looking
from tasks.llm.foreign import foreign_scores
from tasks.llm.kept import Replies
from tasks.llm.stores import open_replies
from tasks.monitor.artifacts import ProgressBar
from tasks.monitor.runs import is_watched, log, task
from tasks.stats.target import MEAN
from tasks.store.naming import named
from tasks.store.warehouse import Run

_NAMED = "PREFECT_API_URL names the one that is asked"


class Judged(NamedTuple):
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
) -> Judged:
    """Grade every response, shard by shard; finished shards are passed over, and no reply is asked for twice.

    token_budget: tokens of prompts and replies that may be asked for now; BudgetSpent where they do not suffice.
    people: human gradings and judgments, for the simulated rater and for worked examples. grader: the trained grader,
    where the plan's backend is one. target: the human score that examples show, see `Evaluation.target`. stage: under
    which name the tables are written. InputError where there is no response, or no example for an item.
    """
    if not responses.rows:
        hint = "the sources give items alone; name those of the responses beside them"
        raise InputError("there are no responses to judge", field="data.sources", hint=hint)
    counts = item_counts(run, responses)
    parted = whole_items(counts) if plan.consistency_memory else shards(counts)
    cut = [(name, sum(count for *_, count in parts), run.done(stage, name)) for name, parts in parted]
    if not all(done for *_, done in cut):
        # A file of recorded replies stands alone: what the warehouse keeps may be of another recording.
        with (
            open_replies(run.warehouse.replies if speaks(plan) and not plan.replies else ":memory:") as replies,
            libraries_aside(),
        ):
            progress = Progress(plan.samples * sum(count for _, count, done in cut if not done), _say(run, stage))
            who = progress.watch(_within(token_budget, _rater(run, plan, base, replies, people, grader)))
            teaching = teaching_of(
                run, plan.examples, items, responses, bundles, People(*people, target) if people else None
            )
            recorded = foreign_scores(plan.foreign, base) if plan.foreign else {}
            keeping = keeping_of(run, plan, who.rater_id)
            with looking(progress.look):
                for name, some in shard_cases(run, items, responses, bundles, cut):
                    cases = teaching(keeping(some))
                    graded = [
                        grade_batch(cases, one, replies, progress.wave, progress.opened)
                        for one in repeated(who, plan.samples)
                    ]
                    if plan.foreign:
                        signal_recorded(graded, recorded, plan.foreign)
                    parts = [one.tables() for one in graded]
                    run.commit(stage, name, {row: pa.concat_tables([part[row] for part in parts]) for row in parts[0]})
                    for one in graded:
                        progress.graded(one)
            progress.end()
    return Judged(*(run.ref(row, stage) for row in (Judgments, Gradings, Attempts)))


def credential(name: str) -> str | None:
    """The value of an environment variable, or of a Prefect secret block for `block:NAME`; None where the variable is
    not set, BackendError where there is no such block."""
    if not name.startswith("block:"):
        return os.environ.get(name)
    block = name.removeprefix("block:")
    if not is_watched():
        raise BackendError(f"secret block '{block}' (judge.engine.key) is kept by a server of Prefect's: {_NAMED}")
    try:
        return str(cast(Secret[Any], Secret.load(block)).get())
    except ValueError:
        raise BackendError(f"Prefect has no secret block named '{block}' (judge.engine.key): {_NAMED}") from None


def _rater(
    run: Run,
    plan: Judge,
    base: Path,
    replies: Replies,
    people: tuple[TableRef, TableRef] | None,
    grader: Grader | None,
) -> Rater:
    """The study's rater; the simulated one gets to know what its human rater said."""
    if plan.truth is None or people is None:
        return rater(plan, base, replies, credential, grader)
    theirs = ds.field("rater_id") == plan.truth.rater
    gradings, judgments = people
    scores = run.read(gradings, ["response_id", "item_id", "score", "trait_scores"], theirs)
    marks = run.read(judgments, ["response_id", "criterion_id", "decision"], theirs)
    said = known(scores.to_pylist(maps_as_pydicts="strict"), marks.to_pylist())
    return rater(plan, base, replies, credential, grader, said)


def _within(token_budget: int | None, who: Rater) -> Rater:
    """The rater with its backends on one purse, where there is a budget."""
    if token_budget is None:
        return who
    purse = Purse(token_budget)
    mender = who.mender and Budgeted(who.mender, purse)
    return replace(who, backend=Budgeted(who.backend, purse), mender=mender)


def _say(run: Run, stage: str) -> Callable[[str, float], None]:
    """Logs a line and shows the share done in Prefect's UI."""
    bar = ProgressBar(run.run_id, f"{stage}-progress")

    def say(line: str, share: float) -> None:
        log(line)
        bar.show(share, line)

    return say
