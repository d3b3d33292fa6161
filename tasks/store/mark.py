"""Done-marks: what a finished shard holds, sealed, so that neither the mark nor a file changes unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from tasks.contracts.errors import StoreError
from tasks.contracts.schema import Frozen
from tasks.contracts.tables.catalogue import BY_NAME
from tasks.store.digest import sealed, unsealed

LAST = "all"
"""The shard that a stage writes last: its mark says which others there are."""


class MarkedTable(Frozen):
    """What a done-mark says of one table of its shard."""

    rows: int
    content: tuple[int, int]
    """See `tasks.store.part.content`."""
    sha256: str | None = None
    """Digest of the file's bytes; None in a mark of an earlier version."""

    def same_rows(self, other: MarkedTable) -> bool:
        """Whether both hold the same rows, volatile columns aside, in whatever bytes."""
        return (self.rows, self.content) == (other.rows, other.content)


class DoneMark(Frozen):
    """A done-mark."""

    of: str
    """<stage>/<shard>."""
    tables: dict[str, MarkedTable]
    others: tuple[str, ...] = ()
    """Names of the stage's shards that were there before its last one; none in any other mark."""
    attempt: str = ""
    """In a bucket: part of its files' names, so that no two writers ever write one file."""


_EARLIER = TypeAdapter(dict[str, MarkedTable])


def mark_bytes(mark: DoneMark) -> bytes:
    """The mark as its file holds it."""
    record = mark.model_dump(mode="json")
    if not mark.attempt:  # a folder's marks have none
        del record["attempt"]
    return sealed(record)


def read_mark(path: Path, mend: str) -> DoneMark:
    """The mark in the file `<stage>/<shard>.json`; StoreError where it was changed, moved or cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error), mend) from error
    return mark_in(content, path, mend)


def mark_in(content: bytes, path: Path, mend: str) -> DoneMark:
    """The mark that is the content of such a file, as `read_mark`."""
    shard = f"{path.parent.name}/{path.stem}"
    try:
        record, has_seal = unsealed(content)
        mark = (
            DoneMark.model_validate(record) if has_seal else DoneMark(of=shard, tables=_EARLIER.validate_python(record))
        )
        if mark.of != shard:
            raise ValueError(f"it is that of {mark.of}")
        _refuse_odd(mark.tables)
    except ValueError as error:  # pydantic's are of several lines
        reason = str(error) if type(error) is ValueError else "it is no list of tables with rows and content"
        raise _unreadable(path, reason, mend) from error
    return mark


def _refuse_odd(tables: Mapping[str, MarkedTable]) -> None:
    if not tables:
        raise ValueError("it names no table")
    if unknown := sorted(set(tables) - set(BY_NAME)):
        raise ValueError(f"it names tables that there are not: {', '.join(unknown)}")


def _unreadable(path: Path, reason: str, mend: str) -> StoreError:
    return StoreError(f"{path}: this done-mark cannot be read: {reason}; {mend}")
