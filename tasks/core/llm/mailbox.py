"""Requests that are noted instead of asked: somebody carries them to a model, and brings the answers.

Under `collecting` every backend of a language model is a `Collector`. A run under it ends with WaitingForReplies, and
has then noted all that could be asked at once; it is run again when answers are in the reply store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.request import Reply, Request, digest


class WaitingForReplies(UserError):
    """A run has requests that nobody has answered yet."""

    def __init__(self, digests: frozenset[str]) -> None:
        """digests: of these requests."""
        self.digests = digests
        super().__init__(f"{len(digests):,} requests wait for replies; what is finished stays")


class NotedRequest(NamedTuple):
    """A request that waits for a reply."""

    request: Request
    model: str
    """Identity of the model that is asked, which the digest covers."""
    engine: Engine


Noted = dict[str, NotedRequest]
"""Requests by digest, in the order of asking."""


@dataclass
class Outbox:
    """What a run would ask."""

    errors: Mapping[str, Reply] = field(default_factory=dict)
    """Digest of a request that was answered with an error that stays → the error."""
    noted: Noted = field(default_factory=dict)
    """What nobody has answered."""


_outbox: ContextVar[Outbox | None] = ContextVar("outbox", default=None)


def collecting(outbox: Outbox) -> AbstractContextManager[None]:
    """Language models that are opened within the block note what they are asked."""
    return scoped(_outbox, outbox)


def open_outbox() -> Outbox | None:
    """Where requests are noted; None where models are asked."""
    return _outbox.get()


class Collector:
    """A backend that notes its requests, under the identity of the model that they are for."""

    name = "mailbox"
    reads_prose, by_subject = True, False
    batch_size = 1 << 30

    def __init__(self, outbox: Outbox, model: str, engine: Engine) -> None:
        self.model = model
        self._outbox, self._engine = outbox, engine

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields the errors that are known to stay; WaitingForReplies where there are other requests."""
        waiting = set()
        for index, request in enumerate(requests):
            key = digest(request, self.model)
            if key in self._outbox.errors:
                yield index, self._outbox.errors[key]
            else:
                self._outbox.noted[key] = NotedRequest(request, self.model, self._engine)
                waiting.add(key)
        if waiting:
            raise WaitingForReplies(frozenset(waiting))


Piece = Callable[[], AbstractContextManager[None]]


@contextmanager
def asking_together() -> Iterator[Piece]:
    """Within the block every `with piece():` asks what it can; the first WaitingForReplies among them is raised at the
    end. So one wave holds what all pieces ask."""
    waiting = []

    @contextmanager
    def piece() -> Iterator[None]:
        try:
            yield
        except WaitingForReplies as error:
            waiting.append(error)

    yield piece
    if waiting:
        raise waiting[0]
