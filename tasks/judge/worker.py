"""A worker of a cluster as it judges: what its process keeps from one shard to the next."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tasks.judge.assignment import Assignment, SentAssignment, counts_of
from tasks.judge.cut import cases_of_shard
from tasks.judge.rows import Rater
from tasks.judge.shard_judge import ShardJudge, replies_for
from tasks.judge.tables import Sheet, sheets_of
from tasks.llm.pieces import PieceCounts
from tasks.llm.reply_store import Replies
from tasks.llm.sharing import Sharing, shared
from tasks.llm.worker import opened_ledger, paying
from tasks.store.traffic import requests_sent
from tasks.store.workers import Desks, refuse_stranger

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger

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
        with paying(sent.terms, desk.ledger) as purse:
            return counts_of(desk.judge.judge(shard, cases, purse))


def _opened(sent: SentAssignment, open_rater: OpenRater) -> _Desk:
    assignment, ledger = sent.assignment, opened_ledger(sent.terms)
    replies = replies_for(assignment.plan, assignment.run.warehouse)
    with shared(Sharing(sent.terms.workers, ledger)):
        rater = open_rater(assignment, replies)
    sheets = sheets_of(assignment.run, assignment.items, assignment.bundles)
    return _Desk(ShardJudge(assignment, rater, replies), sheets, ledger)
