"""A process of a cluster as it works on pieces that ask a model: what it keeps, what it refuses and who pays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tasks.contracts.errors import BackendError
from tasks.llm.budget import SharedPurse
from tasks.llm.terms import Terms
from tasks.store.manifest import code_digest
from tasks.store.warehouse import Run

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger

Desk = TypeVar("Desk")


class Desks:
    """What one command's pieces are worked with, kept from piece to piece. Threads may share it."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._kept: dict[bytes, Any] = {}

    def desk(self, sent: bytes, opened: Callable[[], Desk]) -> Desk:
        """What the first piece that was sent with the same bytes was worked with, or else what `opened` gives."""
        with self._gate:
            if sent not in self._kept:
                self._kept.clear()  # a worker that outlives a stage or a command lets go of its model
                self._kept[sent] = opened()
            return cast(Desk, self._kept[sent])


DESKS = Desks()
"""Of this process: whichever room's pieces it takes, it holds one model."""


def refuse_stranger(code: str, run: Run, stage: str, shard: str) -> None:
    """BackendError where this worker has other code than the command, or does not see a shard that is in its run."""
    host = socket.gethostname()
    if code_digest() != code:
        raise BackendError(
            f"the worker on {host} has another version of rubricflow than this command: install the same one on every "
            "machine, and start the workers again"
        )
    if not run.done(stage, shard):
        raise BackendError(
            f"the worker on {host} does not see {run.folder}: workers need the same warehouse, so name a folder that "
            "all machines share, or an object store"
        )


def opened_ledger(terms: Terms) -> CallLedger | None:
    """Where this worker counts with the others."""
    if terms.ledger is None:
        return None
    from tasks.llm.ledger import CallLedger  # and so SQLAlchemy, which no run of one process needs

    return CallLedger(terms.ledger)


@contextmanager
def paying(terms: Terms, ledger: CallLedger | None) -> Iterator[SharedPurse | None]:
    """What pays for a piece, None without a budget; what the piece leaves of it is given back."""
    if terms.purse is None or ledger is None:
        yield None
        return
    purse = SharedPurse(ledger, terms.purse, terms.step)
    try:
        yield purse
    finally:
        purse.give_back()
