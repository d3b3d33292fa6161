"""How many workers ask one server side by side: whoever opens a client of it takes its share of what the server bears.

What a run may ask at once, within a minute and in all is said of the run, not of one of its processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger


@dataclass(frozen=True)
class Sharing:
    """What a worker shares with the others of its run."""

    workers: int = 1
    """How many there are at most at any time."""
    ledger: CallLedger | None = None
    """Where calls are counted together; None where there is one process."""

    def part(self, concurrency: int) -> int:
        """Of so many calls at once those of this worker; at least one."""
        return max(1, concurrency // self.workers)


ALONE = Sharing()
_sharing: ContextVar[Sharing] = ContextVar("sharing", default=ALONE)


@contextmanager
def shared(sharing: Sharing) -> Iterator[None]:
    """Clients that are opened within the block share so."""
    token = _sharing.set(sharing)
    try:
        yield
    finally:
        _sharing.reset(token)


def sharing() -> Sharing:
    """How a client that is opened here shares."""
    return _sharing.get()
