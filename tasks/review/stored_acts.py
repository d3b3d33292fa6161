"""What people have said of a study, as the ledger of its warehouse holds it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tasks.contracts.errors import StoreError
from tasks.review.ledger import Ledger, Stored
from tasks.store.digest import digest_of
from tasks.store.marker import mirrored_by

LEDGER = "votes.sqlite"


class Spoken(NamedTuple):
    """What people have said of a study up to a moment."""

    until: int
    """Number of the last act; 0 for none."""
    digest: str
    """SHA-256 of the acts."""


def ledger_file(house: Path) -> Path:
    """Where votes are written; StoreError for a warehouse in a bucket."""
    if bucket := mirrored_by(house):
        rule = "votes are kept in a SQLite file, which an object store cannot hold"
        raise StoreError(f"{bucket.url}: {rule}; review a study whose warehouse is a folder")
    return house / LEDGER


def spoken(house: Path, study: str) -> Spoken:
    """What people have said of a study until now, in a warehouse that may not be there yet."""
    acts = acts_of(house, study)
    content = [[act.act_id, act.kind, act.value, act.comment, act.digest, act.undoes] for act in acts]
    return Spoken(max((act.number for act in acts), default=0), digest_of(content))


def acts_of(house: Path, study: str) -> list[Stored]:
    """The acts on a study in their order; none where nobody has said anything."""
    if not (house / LEDGER).exists():
        return []
    with Ledger(house / LEDGER) as ledger:
        return ledger.acts(study)
