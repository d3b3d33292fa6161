"""Rubrics in packs, which workers of a cluster ask about: every reply goes into the store, and the command builds the
graphs of what it finds there."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.backends.replay import UnansweredError
from rubricflow.tasks.core.llm.budget import Budgeted
from rubricflow.tasks.core.llm.calls import Watched
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.llm.request import Reply, Request, digest
from rubricflow.tasks.core.llm.terms import PieceCounts, Sharing, Terms, opened_ledger, shared, spending
from rubricflow.tasks.core.store.objects import requests_sent
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.store.workers import Desks, refuse_stranger
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.build import Built, build, rubric_subjects
from rubricflow.tasks.rewards.graph.subject import GraphSubject
from rubricflow.tasks.rewards.graph.votes import Vote

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger


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
        with spending(sent.terms, desk.ledger) as budget:
            backend = Budgeted(desk.backend, budget) if budget else desk.backend
            answered = answered_pack(pack, desk.subjects, backend, lambda asked: Annotator(asked, desk.replies, plan))
        requests = requests_sent().since(earlier).total
        return answered._replace(counts=answered.counts._replace(requests=requests))


PACK = 50
"""Rubrics of a pack: of HealthBench's size they take some 500 calls."""
_NO_REPLY = "no_reply: the backend gave no reply"


class RubricPack(NamedTuple):
    """Rubrics that one worker asks about, by id."""

    rubric_ids: tuple[str, ...]
    votes: tuple[Vote, ...]
    """On their roles, which decide what pairs there are. Those on edges change no request."""

    @property
    def name(self) -> str:
        """As people and Prefect see it."""
        return f"{self.rubric_ids[0]} to {self.rubric_ids[-1]}"


class GraphAssignment(NamedTuple):
    """What is annotated, how, and where it is: everything by name and reference."""

    run: Run
    plan: Graphs
    base: Path
    items: TableRef
    bundles: TableRef


class SentGraphAssignment(NamedTuple):
    """An assignment on its way to workers, the same for all packs."""

    assignment: GraphAssignment
    terms: Terms
    """What the workers have in common."""


class AnsweredPack(NamedTuple):
    """What came of a pack beside the replies."""

    counts: PieceCounts
    errors: Mapping[str, str]
    """Digest of a request that got no reply → why: the reply store keeps no errors."""


def packs_of(rubric_ids: Iterable[str], votes: Iterable[Vote], size: int) -> list[RubricPack]:
    """The rubrics in packs of at most so many, in their order."""
    on_roles: dict[str, list[Vote]] = {}
    for vote in votes:
        if len(vote.on) == 1:
            on_roles.setdefault(vote.rubric_id, []).append(vote._replace(comment=None))
    names = list(rubric_ids)
    parts = [tuple(names[start : start + size]) for start in range(0, len(names), size)]
    return [RubricPack(part, tuple(vote for name in part for vote in on_roles.get(name, ()))) for part in parts]


def built_pack(pack: RubricPack, subjects: Mapping[str, GraphSubject], annotator: Annotator) -> list[Built]:
    """The graphs of a pack's rubrics, but for votes on edges."""
    return build({name: subjects[name] for name in pack.rubric_ids}, {}, pack.votes, annotator)


def is_answered(pack: RubricPack, subjects: Mapping[str, GraphSubject], settled: Annotator) -> bool:
    """Whether the reply store holds all that a pack asks for. settled: asks nobody."""
    try:
        built_pack(pack, subjects, settled)
    except UnansweredError:
        return False
    return True


def answered_pack(
    pack: RubricPack,
    subjects: Mapping[str, GraphSubject],
    backend: Backend,
    annotating: Callable[[Backend], Annotator],
) -> AnsweredPack:
    """Asks for all that a pack's graphs are made of. annotating: the annotator that asks a backend."""
    told: dict[str, Reply] = {}

    def tell(request: Request, reply: Reply) -> None:
        told[digest(request, backend.model, backend.by_subject)] = reply

    graphs = built_pack(pack, subjects, annotating(Watched(backend, tell)))
    calls = [call for built in graphs for call in built.draft.calls]
    lacking = [call["request_digest"] for call in calls if call["reply"] is None]
    errors = {key: (told[key].error if key in told else None) or _NO_REPLY for key in lacking}
    return AnsweredPack(_counts(pack, len(calls), list(told.values()), len(errors)), errors)


def _counts(pack: RubricPack, attempts: int, paid: Sequence[Reply], failed: int) -> PieceCounts:
    tokens = sum((reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for reply in paid)
    return PieceCounts(len(pack.rubric_ids), failed, len(paid), attempts - len(paid), tokens)


# A worker of a cluster as it asks about rubrics: what its process keeps from one pack to the next.


def _opened(sent: SentGraphAssignment, open_backend: OpenBackend) -> _RubricDesk:
    run, plan, base, items, bundles = sent.assignment
    ledger, replies = opened_ledger(sent.terms), open_replies(run.warehouse.replies)
    with shared(Sharing(sent.terms.workers, ledger)):
        backend = open_backend(plan, base, replies)
    return _RubricDesk(rubric_subjects(run, items, bundles), backend, replies, ledger)
