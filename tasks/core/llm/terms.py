"""What the workers of one command have in common while they ask a model: its code, a ledger, a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import Choice, is_generative
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.llm.budget import SharedCap, Unit, budget_of, present_budget, spending
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

# What the workers of one command share while they ask a model.


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


_STEPS = 16
"""Steps in which a worker draws its equal part of a budget."""
_PARTS = 100
"""Of a budget, in which one process draws it: what is lost where it is killed, besides its calls under way."""


class Terms(NamedTuple):
    """What every worker gets with each piece."""

    workers: int
    """How many work at the same time."""
    ledger: Path | str | None
    """Where they count together; None for an encoder in a bucket, which asks nobody."""
    caps: Mapping[Unit, tuple[str, int]]
    """The ledger's caps that pay, and how much a worker draws from each together; empty without a budget."""
    code: str
    """Digest of the code that sends it: a worker of another version refuses its piece."""


def concurrency(choice: Choice, slots: int, pieces: int) -> int:
    """How many pieces are worked at the same time: as many as there are slots, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice.engine else slots
    return max(1, min(slots, pieces, calls))


def terms_of(choice: Choice, run: Run, workers: int) -> Terms:
    """The terms of so many workers. Makes their ledger, from which they draw the present budget of the run themselves;
    none where nobody is asked."""
    if run.warehouse.mirrored and not is_generative(choice):
        return Terms(workers, ledger=None, caps={}, code=code_digest())
    place, caps = ledger_of(run.warehouse), {}
    with closing(CallLedger(place)) as made:
        made.make()
    for unit, cap in present_budget().items():
        if not isinstance(cap, SharedCap):
            raise TypeError("workers draw on a kept budget")
        cap.give_back()
        drawn, limit = cap.drawn()
        caps[unit] = cap.name, max(1, (limit - drawn) // (_STEPS * workers))
    return Terms(workers=workers, ledger=place, caps=caps, code=code_digest())


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


@contextmanager
def sharing_as(terms: Terms) -> Iterator[Mapping[Unit, SharedCap]]:
    """What a worker opens within the block counts and spends with the others; gives its part of their budget."""
    ledger = None if terms.ledger is None else CallLedger(terms.ledger)
    caps = {unit: SharedCap(ledger, name, step) for unit, (name, step) in terms.caps.items() if ledger}
    with shared(Sharing(terms.workers, ledger)), spending(caps):
        yield caps
