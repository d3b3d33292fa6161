"""The door of judge: items, responses and bundles in; judgments, gradings and attempts out, a shard at a time."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.blocks.system import Secret
from prefect.context import TaskRunContext

from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.errors import BackendError, InputError
from tasks.contracts.grader import Grader
from tasks.contracts.protocols import PROTOCOLS, protocols_where
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.judge import Judge
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Attempts, Gradings, Judgments
from tasks.contracts.tables.rubrics import Bundles
from tasks.judge import keep, simulated
from tasks.judge.grade import grade_batch
from tasks.judge.progress import Progress
from tasks.judge.rater import foreign_scores, rater, rescale
from tasks.judge.rows import Case, Rater
from tasks.judge.shards import shards, whole_items
from tasks.llm.budget import Budgeted, Purse
from tasks.llm.replies import ReplyStore
from tasks.store.naming import named
from tasks.store.ordered import in_order
from tasks.store.recorded import read_manifest
from tasks.store.warehouse import Run
from tasks.text.units import units

_KEPT_OF = ((Judgments, "judge"), (Responses, "ingest"), (Items, "ingest"), (Bundles, "lock"))


class Judged(NamedTuple):
    """What judge writes."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


@task(task_run_name=named("judge"))
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
    stage: str = "judge",
) -> Judged:
    """Grade every response, shard by shard; finished shards are passed over, and no reply is asked for twice.

    token_budget: tokens of prompts and replies that may be asked for now; BudgetSpent where they do not suffice.
    people: human gradings and judgments, for the simulated rater. grader: the trained grader, where the plan's backend
    is one. stage: under which name the tables are written. InputError where there is no response.
    """
    if not responses.rows:
        hint = "the sources give items alone; name those of the responses beside them"
        raise InputError("there are no responses to judge", field="data.sources", hint=hint)
    counts = {row["values"]: row["counts"] for row in _item_counts(run, responses)}
    parted = whole_items(counts) if plan.consistency_memory else shards(counts)
    cut = [(name, sum(count for *_, count in parts), run.done(stage, name)) for name, parts in parted]
    if not all(done for *_, done in cut):
        with ReplyStore(run.warehouse.replies) as replies, _libraries_aside():
            progress = Progress(plan.samples * sum(count for _, count, done in cut if not done), _say())
            who = progress.watch(_within(token_budget, _rater(run, plan, base, replies, people, grader)))
            recorded = foreign_scores(plan.foreign, base) if plan.foreign else {}
            sheets = _sheets(run, items, bundles)
            keeping = _keeping(run, plan, who.rater_id)
            rows = _rows(run, responses)
            for name, count, done in cut:
                mine = list(islice(rows, count))
                if done:
                    continue
                cases = keeping([_case(response_id, text, *sheets[item_id]) for item_id, response_id, text in mine])
                graded = [grade_batch(cases, one, replies, progress.wave) for one in repeated(who, plan.samples)]
                for made in (grading for one in graded for grading in one.gradings):
                    case = made.case
                    if plan.foreign and (value := recorded.get(case.response_id)) is not None:
                        made.signals["recorded"] = rescale(value, plan.foreign, case.item_id, case.bundle.scale)
                parts = [one.tables() for one in graded]
                run.commit(stage, name, {row: pa.concat_tables([part[row] for part in parts]) for row in parts[0]})
                for one in graded:
                    progress.graded(one)
            progress.end()
    return Judged(*(run.ref(row, stage) for row in (Judgments, Gradings, Attempts)))


def repeated(rater: Rater, samples: int) -> list[Rater]:
    """The rater as it asks for each of its samples: with another seed."""
    seeds = range(rater.sampling.seed, rater.sampling.seed + samples)
    return [
        replace(rater, sample=sample, sampling=rater.sampling.model_copy(update={"seed": seed}))
        for sample, seed in enumerate(seeds)
    ]


def credential(name: str) -> str | None:
    """The value of an environment variable, or of a Prefect secret block for `block:NAME`; None where the variable is
    not set, BackendError where there is no such block."""
    if not name.startswith("block:"):
        return os.environ.get(name)
    block = name.removeprefix("block:")
    try:
        return str(cast(Secret[Any], Secret.load(block)).get())
    except ValueError:
        there = "blocks are kept by the server that PREFECT_API_URL names"
        raise BackendError(f"Prefect has no secret block named '{block}' (judge.engine.key); {there}") from None


def _rater(
    run: Run,
    plan: Judge,
    base: Path,
    replies: ReplyStore,
    people: tuple[TableRef, TableRef] | None,
    grader: Grader | None,
) -> Rater:
    """The study's rater; the simulated one gets to know what its human rater said."""
    if plan.backend != "simulated" or plan.truth is None or people is None:
        return rater(plan, base, replies, credential, grader)
    theirs = ds.field("rater_id") == plan.truth.rater
    gradings, judgments = people
    scores = run.read(gradings, ["response_id", "item_id", "score", "trait_scores"], theirs)
    marks = run.read(judgments, ["response_id", "criterion_id", "decision"], theirs)
    return simulated.rater(plan, simulated.known(scores.to_pylist(maps_as_pydicts="strict"), marks.to_pylist()))


def _within(token_budget: int | None, who: Rater) -> Rater:
    """The rater with its backends on one purse, where there is a budget."""
    if token_budget is None:
        return who
    purse = Purse(token_budget)
    mender = who.mender and Budgeted(who.mender, purse)
    return replace(who, backend=Budgeted(who.backend, purse), mender=mender)


def _keeping(run: Run, plan: Judge, rater_id: str) -> Callable[[list[Case]], list[Case]]:
    """Gives cases what stands of the run that the study keeps of; the same cases where it keeps of none.

    InputError for a protocol of which single decisions cannot stand, a run that is not there, and another rater.
    """
    if plan.keep is None:
        return lambda cases: cases
    if not PROTOCOLS[plan.protocol].keeps_decisions:
        rule = f"protocol '{plan.protocol}' decides no single criteria"
        raise InputError(rule, field="judge.keep", hint=f"use {protocols_where(lambda of: of.keeps_decisions)}")
    if plan.keep not in run.warehouse.runs():
        there = f"there are {', '.join(run.warehouse.runs()) or 'none'}"
        raise InputError(f"the warehouse holds no finished run '{plan.keep}'", field="judge.keep", hint=there)
    earlier = run.warehouse.run(plan.keep)
    refs = [earlier.ref(row, at) for row, at in _KEPT_OF]
    differing = keep.differing(read_manifest(earlier)["identity"]["study"]["judge"], plan)
    raters = pc.unique(earlier.read(refs[0], ["rater_id"])["rater_id"]).to_pylist()
    others = [name for name in raters if name != rater_id]
    if differing or others:
        what = f"it differs in {', '.join(differing)}" if differing else f"that was '{others[0]}', this is '{rater_id}'"
        raise InputError(f"run '{plan.keep}' was judged by another rater", field="judge.keep", hint=what)
    judgments, responses, items, bundles = refs
    sheets = _sheets(earlier, items, bundles)
    known = {name: keep.Earlier(of, row["question"], row["context"]) for name, (row, of, _) in sheets.items()}

    def keeping(cases: list[Case]) -> list[Case]:
        mine = ds.field("response_id").isin([case.response_id for case in cases])
        texts = earlier.read(responses, ["response_id", "text"], mine)
        said = dict(zip(texts["response_id"].to_pylist(), texts["text"].to_pylist(), strict=True))
        return keep.with_kept(cases, known, said, earlier.read(judgments, where=mine).to_pylist())

    return keeping


def _say() -> Callable[[str, float], None]:
    """Says a line and, in a run of Prefect's, the share done in its UI."""
    shown = create_progress_artifact(0.0, key="judge-progress") if TaskRunContext.get() else None

    def say(line: str, share: float) -> None:
        print(line)
        if shown is not None:
            update_progress_artifact(cast(UUID, shown), progress=100 * share, description=line)

    return say


@contextmanager
def _libraries_aside() -> Iterator[None]:
    """A shard makes so many objects that Python looks through all there are, those of the libraries too, once a shard:
    a quarter of the time. What is there before the first shard is left out of that."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def cases_of(
    run: Run, responses: TableRef, item: dict[str, Any], locked: dict[str, Any], at: int = 0, count: int | None = None
) -> list[Case]:
    """The cases of an item from position `at` of its responses in the order of their ids.

    ContractError for a bundle that was changed.
    """
    rows = run.read(responses, ["response_id", "text"], ds.field("item_id") == item["item_id"])
    bundle = Bundle.unlock(locked["bundle_id"], locked["content"])
    chosen = rows.sort_by("response_id").slice(at, count).to_pylist()
    return [_case(row["response_id"], row["text"], item, bundle, locked["bundle_id"]) for row in chosen]


def _case(response_id: str, text: str, item: dict[str, Any], bundle: Bundle, bundle_id: str) -> Case:
    return Case(
        response_id=response_id,
        item_id=item["item_id"],
        text=text,
        units=tuple(units(text)),
        question=item["question"],
        context=item["context"],
        bundle=bundle,
        bundle_id=bundle_id,
        reference_answer=item["reference_answer"],
        key_elements=tuple(item["key_elements"]),
    )


def _item_counts(run: Run, responses: TableRef) -> list[dict[str, Any]]:
    """Item and number of its responses."""
    found: list[dict[str, Any]] = pc.value_counts(run.read(responses, ["item_id"])["item_id"]).to_pylist()
    return found


def _sheets(run: Run, items: TableRef, bundles: TableRef) -> dict[str, tuple[dict[str, Any], Bundle, str]]:
    """Item → its row, its bundle and the bundle's id; ContractError for a bundle that was changed."""
    rows = run.read(bundles).to_pylist()
    bundle, bundle_id = unlocked(rows), {row["rubric_id"]: row["bundle_id"] for row in rows}
    return {
        item["item_id"]: (item, bundle[item["rubric_id"]], bundle_id[item["rubric_id"]])
        for item in run.read(items).to_pylist()
    }


def _rows(run: Run, responses: TableRef) -> Iterator[tuple[str, str, str]]:
    """(item, response, text) in the order in which shards are cut."""
    for batch in in_order(run, responses, ("item_id", "response_id", "text"), ("item_id", "response_id")):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
