"""What the workers of one command have in common while they ask a model: its code, a ledger, a budget."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import Choice, is_generative
from rubricflow.tasks.core.llm.budget import SharedCap, Unit, present_budget, spending
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run

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


_STEPS = 16
"""Steps in which a worker draws its equal part of a budget."""


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


def terms_of(choice: Choice, run: Run, stage: str, workers: int) -> Terms:
    """The terms of so many workers. Makes their ledger, with what is left of the present budget.

    The ledger is in the database of the replies, else in a file next to them; none where nobody is asked.
    """
    ledger: Path | str | None = None
    caps: dict[Unit, tuple[str, int]] = {}
    replies = run.warehouse.replies
    if not run.warehouse.mirrored or is_generative(choice):
        ledger = str(replies) if is_database(replies) else Path(replies).absolute().with_name("ledger.sqlite")
        with closing(CallLedger(ledger)) as made:
            made.make()
            for unit, cap in present_budget().items():
                left = max(0, cap.limit - cap.spent)
                caps[unit] = f"{run.run_id} {stage} {unit} {secrets.token_hex(8)}", max(1, left // (_STEPS * workers))
                made.fill(caps[unit][0], left)
    return Terms(workers=workers, ledger=ledger, caps=caps, code=code_digest())


def count_drawn(terms: Terms) -> None:
    """Counts against the present budget what the workers drew and did not give back: what they spent, unless one was
    killed."""
    if terms.caps and terms.ledger is not None:
        with closing(CallLedger(terms.ledger)) as ledger:
            for unit, (name, _) in terms.caps.items():
                present_budget()[unit].spent += ledger.drawn(name)[0]


@contextmanager
def sharing_as(terms: Terms) -> Iterator[Mapping[Unit, SharedCap]]:
    """What a worker opens within the block counts and spends with the others; gives its part of their budget."""
    ledger = None if terms.ledger is None else CallLedger(terms.ledger)
    caps = {unit: SharedCap(ledger, name, step) for unit, (name, step) in terms.caps.items() if ledger}
    with shared(Sharing(terms.workers, ledger)), spending(caps):
        yield caps
