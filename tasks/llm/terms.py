"""What the workers of one command have in common while they ask a model: its code, a ledger, a purse."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tasks.contracts.backends import Choice, speaks
from tasks.llm.places import is_database
from tasks.store.manifest import code_digest
from tasks.store.warehouse import Run, Warehouse
from tasks.store.workers import from_anywhere

_STEPS = 16
"""Steps in which a worker draws its equal part of a token budget."""


class Terms(NamedTuple):
    """What every worker is told, whatever piece it takes."""

    workers: int
    """How many work side by side."""
    ledger: Path | str | None
    """Where they count together; None for an encoder in a bucket, which asks nobody."""
    purse: str | None
    """The ledger's purse that pays; None without a budget."""
    step: int
    """Tokens that a worker draws from it together."""
    code: str
    """Digest of the code that sends it: a worker of another version refuses its piece."""


def at_once(choice: Choice, room: int, pieces: int) -> int:
    """How many pieces are worked side by side: as many as there is room for, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice.engine else room
    return max(1, min(room, pieces, calls))


def terms_of(choice: Choice, run: Run, stage: str, workers: int, token_budget: int | None) -> Terms:
    """The terms of so many workers. Makes their ledger, with a purse that holds the budget where there is one."""
    ledger = ledger_place(choice, run.warehouse)
    purse = None
    if token_budget is not None and ledger is not None:
        purse = f"{run.run_id} {stage} {secrets.token_hex(8)}"
    _make_ledger(ledger, purse, token_budget or 0)
    step = max(1, (token_budget or 0) // (_STEPS * workers))
    return Terms(workers=workers, ledger=ledger, purse=purse, step=step, code=code_digest())


def ledger_place(choice: Choice, warehouse: Warehouse) -> Path | str | None:
    """Where workers count together: in the database of the replies, else in a file beside them. None where there is
    none, and nobody is asked."""
    if warehouse.mirrored and not speaks(choice):
        return None
    place = warehouse.replies
    return str(place) if is_database(place) else Path(place).absolute().with_name("ledger.sqlite")


def tokens_drawn(terms: Terms) -> int:
    """Tokens that the workers took out of their purse and did not give back: what they spent, unless one was killed."""
    if terms.purse is None or terms.ledger is None:
        return 0
    from tasks.llm.ledger import CallLedger  # and so SQLAlchemy, which no run of one process needs

    ledger = CallLedger(terms.ledger)
    drawn, _ = ledger.drawn(terms.purse)
    ledger.close()
    return drawn


def with_replies_from_anywhere(run: Run) -> Run:
    """The same run and its replies, found from any working directory."""
    run = from_anywhere(run)
    named = run.warehouse.replies_named
    if not named or is_database(named):
        return run
    return replace(run.warehouse, replies_named=str(Path(named).absolute())).run(run.run_id)


def _make_ledger(place: Path | str | None, purse: str | None, tokens: int) -> None:
    """Makes the ledger, with a purse that holds the budget where there is one."""
    if place is None:
        return
    from tasks.llm.ledger import CallLedger

    ledger = CallLedger(place)
    ledger.make()
    if purse is not None:
        ledger.fill(purse, tokens)
    ledger.close()
