"""What the processes of one run have in common while they ask a model: a ledger, a budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.llm.budget import SharedCap, budget_of, spending
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.store.warehouse import Warehouse


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


_ALONE = Sharing()
_sharing: ContextVar[Sharing] = ContextVar("sharing", default=_ALONE)


def shared(sharing: Sharing) -> AbstractContextManager[None]:
    """Clients that are opened within the block share so."""
    return scoped(_sharing, sharing)


def sharing() -> Sharing:
    """How a client that is opened here shares."""
    return _sharing.get()


_PARTS = 100
"""Of a budget, in which one process draws it: what is lost where it is killed, besides its calls under way."""


def ledger_of(warehouse: Warehouse) -> Path | str:
    """In the database of the replies, else in a file next to them."""
    replies = warehouse.replies
    return str(replies) if is_database(replies) else Path(replies).absolute().with_name("ledger.sqlite")


@contextmanager
def kept_budget(warehouse: Warehouse, name: str, tokens: int | None, usd: float | None) -> Iterator[None]:
    """Within the block no more is spent than a budget that holds for all commands of that name together: what they
    spent stands in the ledger, also that of one that was killed. name: a run's id."""
    limits = budget_of(tokens, usd)
    if not limits:
        yield
        return
    with closing(CallLedger(ledger_of(warehouse))) as ledger:
        ledger.make()
        caps = {unit: SharedCap(ledger, f"{name} {unit}", max(1, cap.limit // _PARTS)) for unit, cap in limits.items()}
        for unit, cap in caps.items():
            ledger.fill(cap.name, limits[unit].limit)
        try:
            with spending(caps):
                yield
        finally:
            for cap in caps.values():
                cap.give_back()
