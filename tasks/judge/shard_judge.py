"""Judges one shard after another with one rater, on whatever machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tasks.contracts.backends import speaks
from tasks.contracts.errors import BackendError
from tasks.contracts.settings.judge import Judge
from tasks.judge.assignment import Assignment
from tasks.judge.grade import grade_batch
from tasks.judge.rater import repeated, signal_recorded
from tasks.judge.rows import Case, Graded, Rater
from tasks.judge.standing import keeping_of
from tasks.judge.teaching import People, teaching_of
from tasks.llm.ask import OnOpen, Wave, quiet, unheard
from tasks.llm.budget import Budgeted, Purse
from tasks.llm.foreign import foreign_scores
from tasks.llm.reply_store import Replies
from tasks.llm.stores import open_replies
from tasks.store.warehouse import Warehouse

_OF_ONE = ("too_long", "deadline", "empty", "not_recorded")
"""Kinds of errors that concern one answer, or come again."""


class ShardJudge:
    """A rater with all that it needs beside a shard's cases; made once for many shards."""

    def __init__(
        self,
        assignment: Assignment,
        rater: Rater,
        replies: Replies,
        on_wave: Callable[[Wave], None] = quiet,
        on_open: OnOpen = unheard,
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

    def judge(self, name: str, cases: list[Case], purse: Purse | None = None) -> list[Graded]:
        """Grades the cases of a shard and writes its tables, the done-mark last; each repetition by itself.

        purse: pays for the calls; BudgetSpent where it does not suffice.
        """
        plan = self._assignment.plan
        rater = self._rater if purse is None else within(purse, self._rater)
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


def within(purse: Purse, rater: Rater) -> Rater:
    """The rater with its backends on one purse."""
    mender = rater.mender and Budgeted(rater.mender, purse)
    return replace(rater, backend=Budgeted(rater.backend, purse), mender=mender)


def replies_for(plan: Judge, warehouse: Warehouse) -> Replies:
    """The store of a judge's replies. It keeps nothing of a file of recorded replies, which stands alone: what the
    warehouse keeps may be of another recording; and nothing of an encoder where that would need a database."""
    is_free = warehouse.mirrored and not speaks(plan)
    return open_replies(":memory:" if plan.replies or is_free else warehouse.replies)
