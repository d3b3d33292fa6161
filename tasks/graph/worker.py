"""A worker of a cluster as it asks about rubrics: what its process keeps from one pack to the next."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tasks.contracts.settings.graph import Graphs
from tasks.graph.annotator import Annotator
from tasks.graph.packs import AnsweredPack, RubricPack, SentGraphAssignment, answered_pack
from tasks.graph.rows import rubric_subjects
from tasks.graph.subject import GraphSubject
from tasks.llm.backend import Backend
from tasks.llm.budget import Budgeted
from tasks.llm.reply_store import Replies
from tasks.llm.sharing import Sharing, shared
from tasks.llm.stores import open_replies
from tasks.llm.worker import opened_ledger, paying
from tasks.store.traffic import requests_sent
from tasks.store.workers import Desks, refuse_stranger

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger

OpenBackend = Callable[[Graphs, Path, Replies], Backend]


class _RubricDesk(NamedTuple):
    """What one command's packs are worked with."""

    subjects: dict[str, GraphSubject]
    backend: Backend
    replies: Replies
    ledger: CallLedger | None


class RubricWorker:
    """Asks about packs as they come; a model is loaded and the rubrics are read for the first one alone. Threads may
    share it."""

    def __init__(self, desks: Desks) -> None:
        """desks: of the process."""
        self._desks = desks

    def ask(self, pickled: bytes, pack: RubricPack, open_backend: OpenBackend) -> AnsweredPack:
        """Asks what a pack's graphs are made of, so that every reply is in the store. pickled: what was sent.

        BackendError where this worker has another version of the code, or another warehouse; BudgetSpent where the
        run's tokens do not suffice.
        """
        earlier = requests_sent()
        sent: SentGraphAssignment = pickle.loads(pickled)
        run, plan, *_, bundles = sent.assignment
        refuse_stranger(run, bundles.stage, "all", sent.terms.code)
        desk = self._desks.desk(pickled, lambda: _opened(sent, open_backend))
        with paying(sent.terms, desk.ledger) as purse:
            backend = Budgeted(desk.backend, purse) if purse else desk.backend
            answered = answered_pack(pack, desk.subjects, backend, lambda asked: Annotator(asked, desk.replies, plan))
        requests = requests_sent().since(earlier).total
        return answered._replace(counts=answered.counts._replace(requests=requests))


def _opened(sent: SentGraphAssignment, open_backend: OpenBackend) -> _RubricDesk:
    run, plan, base, items, bundles = sent.assignment
    ledger, replies = opened_ledger(sent.terms), open_replies(run.warehouse.replies)
    with shared(Sharing(sent.terms.workers, ledger)):
        backend = open_backend(plan, base, replies)
    return _RubricDesk(rubric_subjects(run, items, bundles), backend, replies, ledger)
