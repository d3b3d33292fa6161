"""One Parquet file of a shard: written with checksums, and compared with its done-mark before anything is read of it.

`as_parquet`, `open_parquet` and `hold` write, open and check a file; `content` sums up its rows; `mark_bytes` and
`read_mark` write and read the sealed done-mark, so that neither the mark nor a file changes unnoticed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.contracts.schema import Frozen, Row, schema, volatile
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.files import file_digest, sealed, unsealed

LAST = "all"
"""The shard that a stage writes last: its mark names the others."""
FORMAT = ds.ParquetFileFormat(page_checksum_verification=True)
_SETTLED_S = 2.0
"""A file that changed less than so long ago may change again without a trace in its times: what is known of it is not
remembered."""
# The default pool keeps what a freed table held; the system's returns it.
pa.set_memory_pool(pa.system_memory_pool())


class MarkedTable(Frozen):
    """A done-mark's entry for one table of its shard."""

    rows: int
    content: tuple[int, int]
    """See `content`."""
    sha256: str
    """Digest of the file's bytes."""

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


def as_parquet(table: pa.Table) -> memoryview:
    """The table as a Parquet file with a checksum on every page."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return memoryview(sink.getvalue())


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file to read from, page by page checked; OSError or Arrow's errors where it is none."""
    return pq.ParquetFile(path, page_checksum_verification=True)


@contextlib.contextmanager
def reading(what: object, mend: str) -> Iterator[None]:
    """Turns errors of files, Arrow and DuckDB into a StoreError that names `what` is read, and how to mend it."""
    try:
        yield
    except (OSError, pa.ArrowException, duckdb.Error) as error:
        lost = isinstance(error, FileNotFoundError)
        rule = "is lost, and its shard is marked as done" if lost else f"cannot be read: {first_line(error)}"
        raise StoreError(f"{what} {rule}; {mend}") from error


def hold(path: Path, row: type[Row], made: MarkedTable, mend: str) -> None:
    """StoreError unless the file is the one of its done-mark: columns, number of rows, and every byte.

    A file that did not change since this process last looked is not read again.
    """
    with reading(path, mend):
        state = path.stat()
    # Its owner can set a file's time of change back, but not the time of that: st_ctime.
    times = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    look = _look if time.time() - state.st_ctime > _SETTLED_S else _look.__wrapped__
    look(path, times, row, made, mend)


@lru_cache(maxsize=1 << 16)
def _look(path: Path, times: tuple[int, ...], row: type[Row], made: MarkedTable, mend: str) -> None:
    with reading(path, mend), open_parquet(path) as file:
        rows, found = file.metadata.num_rows, file.schema_arrow
    kinds, wanted = (dict(zip(columns.names, columns.types, strict=True)) for columns in (found, schema(row)))
    if odd := [name for name in wanted | kinds if kinds.get(name) != wanted.get(name)]:
        raise StoreError(
            f"{path} was written by another version of rubricflow: its table differs in {', '.join(odd)}; "
            f"ask the run with that version, or {mend}"
        )
    if rows != made.rows:
        raise StoreError(f"{path} holds {rows} rows where {made.rows} were written; {mend}")
    with reading(path, mend):
        is_same = made.sha256 == file_digest(path)
    if not is_same:
        raise StoreError(f"{path} was changed since stage '{path.parent.name}' wrote it as done; {mend}")


def forget() -> None:
    """Makes `hold` look at every file again."""
    _look.cache_clear()


def content_of(path: Path, row: type[Row]) -> tuple[int, int]:
    """`content` of a file's rows, a part of them at a time; errors of Arrow and DuckDB."""
    high = low = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(columns=lasting(row)):
            more = content(row, pa.Table.from_batches([batch]))
            high, low = high + more[0], low + more[1]
    return high, low


def lasting(row: type[Row]) -> list[str]:
    """The columns that are not volatile."""
    return [name for name in schema(row).names if name not in volatile(row)]


def content(row: type[Row], table: pa.Table) -> tuple[int, int]:
    """Sums of the halves of each row's MD5: the same for any order and, added up, for any sharding."""
    as_json = "SELECT to_json(lasting)::VARCHAR AS j FROM lasting"
    with _database(os.getpid()).cursor() as cursor:
        cursor.register("lasting", table.select(lasting(row)))
        cursor.execute(f"SELECT sum(md5_number_upper(j)), sum(md5_number_lower(j)) FROM ({as_json})")
        high, low = cursor.fetchall()[0]
    return int(high or 0), int(low or 0)


@lru_cache(maxsize=1)
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """One database for all commits of a process: to open one takes longer than to add up a small shard."""
    return duckdb.connect()


atexit.register(_database.cache_clear)  # DuckDB complains at exit of what is still open


def mark_bytes(mark: DoneMark) -> bytes:
    """The mark as its file holds it; a folder's marks have no attempt."""
    return sealed(mark.model_dump(mode="json", exclude=None if mark.attempt else {"attempt"}))


def read_mark(path: Path, mend: str) -> DoneMark:
    """The mark in the file `<stage>/<shard>.json`; StoreError where it was changed, moved or cannot be read."""
    try:
        return mark_in(path.read_bytes(), path, mend)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error), mend) from error


def mark_in(content: bytes, path: Path, mend: str) -> DoneMark:
    """The mark that is the content of such a file, as `read_mark`."""
    shard = f"{path.parent.name}/{path.stem}"
    try:
        mark = DoneMark.model_validate(unsealed(content))
        if mark.of != shard:
            raise ValueError(f"it is that of {mark.of}")
        if not mark.tables:
            raise ValueError("it names no table")
        if unknown := sorted(set(mark.tables) - set(BY_NAME)):
            raise ValueError(f"it names tables that there are not: {', '.join(unknown)}")
    except ValueError as error:  # pydantic's are of several lines
        reason = str(error) if type(error) is ValueError else "it is no list of tables with rows and content"
        raise _unreadable(path, reason, mend) from error
    return mark


def _unreadable(path: Path, reason: str, mend: str) -> StoreError:
    return StoreError(f"{path}: this done-mark cannot be read: {reason}; {mend}")
