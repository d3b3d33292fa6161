"""A process of a cluster as it works on pieces that ask a model: where it counts, and who pays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tasks.llm.budget import SharedPurse
from tasks.llm.terms import Terms

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger


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
