"""A worker of a cluster as it judges: what its process keeps from one shard to the next."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import ShardInputs
from rubricflow.tasks.core.llm.ask import OnOpen, Wave, ignore_open, ignore_wave
from rubricflow.tasks.core.llm.budget import Budgeted, TokenBudget
from rubricflow.tasks.core.llm.foreign import foreign_scores
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.llm.terms import (
    PieceCounts,
    Sharing,
    opened_ledger,
    shared,
    spending,
    terms_of,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.objects import requests_sent
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.store.workers import Desks, refuse_stranger
from rubricflow.tasks.grading.judge.assignment import Assignment, SentAssignment, counts_of
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.keep import keeping_of
from rubricflow.tasks.grading.judge.rater import repeated, signal_recorded
from rubricflow.tasks.grading.judge.rows import Case, Graded, Rater, Sheet, case_of, in_shard_order, sheets_of
from rubricflow.tasks.grading.judge.teaching import People, teaching_of

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger


_OF_ONE = ("too_long", "deadline", "empty", "not_recorded")
"""Kinds of errors that concern one answer, or come again."""


class ShardJudge:
    """A rater with all that it needs beside a shard's cases; made once for many shards."""

    def __init__(
        self,
        assignment: Assignment,
        rater: Rater,
        replies: Replies,
        on_wave: Callable[[Wave], None] = ignore_wave,
        on_open: OnOpen = ignore_open,
    ) -> None:
        """on_open, on_wave: are told of the beginning and the end of each wave of calls. InputError where an example is
        lacking, or what the study keeps of is not there."""
        plan, people = assignment.plan, assignment.people
        self._assignment, self._rater, self._replies = assignment, rater, replies
        self._on_wave, self._on_open = on_wave, on_open
        self._teaching = teaching_of(
            assignment.run,
            plan.examples,
            assignment.items,
            assignment.responses,
            assignment.bundles,
            People(*people, assignment.target) if people else None,
        )
        self._recorded = foreign_scores(plan.foreign, assignment.base) if plan.foreign else {}
        self._keeping = keeping_of(assignment.run, plan, rater.rater_id)

    def judge(self, name: str, cases: list[Case], budget: TokenBudget | None = None) -> list[Graded]:
        """Grades the cases of a shard and writes its tables, the done-mark last; each repetition by itself.

        budget: pays for the calls; BudgetSpent where it does not suffice.
        """
        plan = self._assignment.plan
        rater = self._rater if budget is None else within(budget, self._rater)
        shown = self._teaching(self._keeping(cases))
        graded = [
            grade_batch(shown, sample, self._replies, self._on_wave, self._on_open)
            for sample in repeated(rater, plan.samples)
        ]
        if plan.foreign:
            signal_recorded(graded, self._recorded, plan.foreign)
        self._refuse_silence(graded)
        self._write(name, graded)
        return graded

    def _refuse_silence(self, graded: list[Graded]) -> None:
        """BackendError where no call of the stage has brought a reply until now, for reasons that lie with no answer:
        its shard is not written, so that the same command asks again."""
        last = [called.answer.attempts[-1].reply for sample in graded for called in sample.called]
        errors = Counter(reply.error for reply in last if reply.error and not reply.error.startswith(_OF_ONE))
        if last and errors.total() == len(last) and not self._assignment.run.shards(self._assignment.stage):
            ((said, count),) = errors.most_common(1)
            raise BackendError(f"Nothing was scored: none of {len(last):,} calls brought a reply; of {count:,}: {said}")

    def _write(self, name: str, graded: list[Graded]) -> None:
        parts = [sample.tables() for sample in graded]
        tables = {row: pa.concat_tables([part[row] for part in parts]) for row in parts[0]}
        self._assignment.run.commit(self._assignment.stage, name, tables)


SHARD = 2_000
"""Responses in a shard: some whole small items, or a part of a large one."""
SIDE_BY_SIDE = 20_000
"""Responses in a shard where an item remembers what was graded of it and so is never cut: as many whole items as that,
for their rounds go side by side; a larger item is a shard of its own."""


class Shard(NamedTuple):
    """A shard of judging."""

    name: str
    responses: int
    done: bool
    """Whether its done-mark is there."""


OpenRater = Callable[[Assignment, Replies], Rater]


class _Desk(NamedTuple):
    """What one command's shards are judged with."""

    judge: ShardJudge
    sheets: dict[str, Sheet]
    ledger: CallLedger | None


class ShardWorker:
    """Judges shards as they come; a model is loaded and a rubric read for the first one alone. Threads may share it."""

    def __init__(self, desks: Desks) -> None:
        """desks: of the process."""
        self._desks = desks

    def judge(self, pickled: bytes, shard: str, open_rater: OpenRater) -> PieceCounts:
        """Judges a shard and writes its tables; nothing where they are there already. pickled: the assignment as sent.

        BackendError where this worker has another version of the code, or another warehouse; BudgetSpent where the
        run's tokens do not suffice.
        """
        earlier = requests_sent()
        counts = self._judge(pickled, shard, open_rater)
        return counts._replace(requests=requests_sent().since(earlier).total)

    def _judge(self, pickled: bytes, shard: str, open_rater: OpenRater) -> PieceCounts:
        sent: SentAssignment = pickle.loads(pickled)
        assignment = sent.assignment
        refuse_stranger(assignment.run, sent.inputs, shard, sent.terms.code)
        if assignment.run.done(assignment.stage, shard):
            return PieceCounts()
        desk = self._desks.desk(pickled, lambda: _opened(sent, open_rater))
        cases = cases_of_shard(assignment.run, sent.inputs, shard, desk.sheets)
        with spending(sent.terms, desk.ledger) as budget:
            return counts_of(desk.judge.judge(shard, cases, budget))


def _opened(sent: SentAssignment, open_rater: OpenRater) -> _Desk:
    assignment, ledger = sent.assignment, opened_ledger(sent.terms)
    replies = replies_for(assignment.plan, assignment.run.warehouse)
    with shared(Sharing(sent.terms.workers, ledger)):
        rater = open_rater(assignment, replies)
    sheets = sheets_of(assignment.run, assignment.items, assignment.bundles)
    return _Desk(ShardJudge(assignment, rater, replies), sheets, ledger)


# What each shard judges, written once: a worker of a cluster then reads its own shard and no other file of answers.


def cut_stage(responses: TableRef, whole_items: bool) -> str:
    """Under which name the inputs of shards are written: of these responses, cut in one of two ways."""
    return f"cut-{'items-' if whole_items else ''}{responses.digest[:12]}"


def cut(run: Run, responses: TableRef, stage: str, shards: Sequence[Shard]) -> None:
    """Writes the input of every shard that is neither judged nor cut. shards: all of them, in order."""
    to_judge = {shard.name for shard in shards if not shard.done}
    lacking = to_judge - run.finished(stage, to_judge)
    if not lacking:
        return
    rows = in_shard_order(run, responses)
    for shard in shards:
        mine = list(islice(rows, shard.responses))
        if shard.name in lacking:
            run.commit(stage, shard.name, {ShardInputs: mine})


def cases_of_shard(run: Run, stage: str, name: str, sheets: dict[str, Sheet]) -> list[Case]:
    """The cases of a shard that was cut, in order; StoreError where it is not there."""
    rows = run.shard(ShardInputs, stage, name).to_pylist()
    return [case_of(row["response_id"], row["text"], *sheets[row["item_id"]], row["made_from"]) for row in rows]


# Shards of judging shared out to workers: what is sent.


def sent_off(assignment: Assignment, shards: Sequence[Shard], workers: int, token_budget: int | None) -> SentAssignment:
    """The assignment as workers get it: its shards are cut, and the budget is in the ledger's budget."""
    run = with_absolute_paths(assignment.run)
    inputs = cut_stage(assignment.responses, bool(assignment.plan.consistency_memory))
    cut(run, assignment.responses, inputs, shards)
    return SentAssignment(
        assignment=replace(assignment, run=run, base=assignment.base.resolve()),
        inputs=inputs,
        terms=terms_of(assignment.plan, run, assignment.stage, workers, token_budget),
    )


# How responses are cut into shards.


def shards(counts: Mapping[str, int], size: int = SHARD) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """(name, parts as (item, first position, number of responses)) of every shard, items in the order of their ids."""
    packed: list[list[tuple[str, int, int]]] = []
    room = 0
    for item_id in sorted(counts):
        for first in range(0, counts[item_id], size):
            count = min(size, counts[item_id] - first)
            if count > room:
                packed.append([])
                room = size
            packed[-1].append((item_id, first, count))
            room -= count
    return [(f"{number:05d}", parts) for number, parts in enumerate(packed)]


def whole_items(counts: Mapping[str, int], size: int = SIDE_BY_SIDE) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """The same with no item cut: as many whole items to a shard as make up `size` responses, one at least."""
    packed: list[list[tuple[str, int, int]]] = []
    room = 0
    for item_id in sorted(counts):
        if not packed or counts[item_id] > room:
            packed.append([])
            room = size
        packed[-1].append((item_id, 0, counts[item_id]))
        room -= counts[item_id]
    return [(f"{number:05d}", parts) for number, parts in enumerate(packed)]


@contextmanager
def libraries_aside() -> Iterator[None]:
    """A shard makes so many objects that Python looks through all there are, those of the libraries too, once a shard:
    a quarter of the time. What is there before the first shard is left out of that."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


# Judges one shard after another with one rater, on whatever machine.


def within(budget: TokenBudget, rater: Rater) -> Rater:
    """The rater with its backends on one budget."""
    mender = rater.mender and Budgeted(rater.mender, budget)
    return replace(rater, backend=Budgeted(rater.backend, budget), mender=mender)


def replies_for(plan: Judge, warehouse: Warehouse) -> Replies:
    """The store of a judge's replies. It keeps nothing of a file of recorded replies, which stands alone: what the
    warehouse keeps may be of another recording; and nothing of an encoder where that would need a database."""
    is_free = warehouse.mirrored and not is_generative(plan)
    return open_replies(":memory:" if plan.replies or is_free else warehouse.replies)
