"""What the workers of one command have in common while they ask a model: its code, a ledger, a budget."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import Choice, is_generative
from rubricflow.tasks.core.llm.budget import SharedTokenBudget
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
"""Steps in which a worker draws its equal part of a token budget."""


class Terms(NamedTuple):
    """What every worker gets with each piece."""

    workers: int
    """How many work at the same time."""
    ledger: Path | str | None
    """Where they count together; None for an encoder in a bucket, which asks nobody."""
    budget: str | None
    """The ledger's budget that pays; None without one."""
    step: int
    """Tokens that a worker draws from it together."""
    code: str
    """Digest of the code that sends it: a worker of another version refuses its piece."""


def concurrency(choice: Choice, slots: int, pieces: int) -> int:
    """How many pieces are worked at the same time: as many as there are slots, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice.engine else slots
    return max(1, min(slots, pieces, calls))


def terms_of(choice: Choice, run: Run, stage: str, workers: int, token_budget: int | None) -> Terms:
    """The terms of so many workers. Makes their ledger, with the token budget where there is one.

    The ledger is in the database of the replies, else in a file next to them; none where nobody is asked.
    """
    ledger: Path | str | None = None
    budget = None
    replies = run.warehouse.replies
    if not run.warehouse.mirrored or is_generative(choice):
        ledger = str(replies) if is_database(replies) else Path(replies).absolute().with_name("ledger.sqlite")
        with closing(CallLedger(ledger)) as made:
            made.make()
            if token_budget is not None:
                budget = f"{run.run_id} {stage} {secrets.token_hex(8)}"
                made.fill(budget, token_budget)
    step = max(1, (token_budget or 0) // (_STEPS * workers))
    return Terms(workers=workers, ledger=ledger, budget=budget, step=step, code=code_digest())


def tokens_drawn(terms: Terms) -> int:
    """Tokens that the workers drew and did not give back: what they spent, unless one was killed."""
    if terms.budget is None or terms.ledger is None:
        return 0
    with closing(CallLedger(terms.ledger)) as ledger:
        return ledger.drawn(terms.budget)[0]


@contextmanager
def spending(terms: Terms, ledger: CallLedger | None) -> Iterator[SharedTokenBudget | None]:
    """What pays for a piece, None without a budget; what the piece leaves of it is given back."""
    if terms.budget is None or ledger is None:
        yield None
        return
    budget = SharedTokenBudget(ledger, terms.budget, terms.step)
    try:
        yield budget
    finally:
        budget.give_back()


def opened_ledger(terms: Terms) -> CallLedger | None:
    """Where this worker counts with the others."""
    return None if terms.ledger is None else CallLedger(terms.ledger)
