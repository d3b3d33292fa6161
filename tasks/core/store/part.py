"""One Parquet file of a shard: written with checksums, and compared with its done-mark before anything is read of it.

`as_parquet`, `open_parquet` and `hold` write, open and check a file; `content` sums up its rows; `mark_bytes` and
`read_mark` write and read the sealed done-mark, so that neither the mark nor a file changes unnoticed.

A run's done-marks, by which its shards count, are files of a folder, or contents of a bucket. In a bucket a stage's
marks cost a request or two however many there are: this process remembers what it has read, and an index of each stage
holds many together. While this process alone finishes shards of a run (`listed_once`), the marks are listed once, and
those that it writes or meets are noted; a stage that others work on too is listed anew when they have ended
(`look_again`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.contracts.schema import Frozen, Row, lasting, schema
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.store.files import file_digest, sealed, unsealed
from rubricflow.tasks.core.store.objects import Home, version_of

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


def content(row: type[Row], table: pa.Table) -> tuple[int, int]:
    """Sums of the halves of each row's MD5: the same for any order and, added up, for any sharding."""
    if not table.num_rows:
        return 0, 0
    as_json = "SELECT to_json(lasting)::VARCHAR AS j FROM lasting"
    with _database(os.getpid()).cursor() as cursor:
        cursor.register("lasting", table.select(lasting(row)))
        cursor.execute(f"SELECT sum(md5_number_upper(j)), sum(md5_number_lower(j)) FROM ({as_json})")
        high, low = cursor.fetchall()[0]
    return int(high), int(low)


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


DONE = "_done"
"""The folder of a run that holds its done-marks, `<stage>/<shard>.json`."""
_FEW = 8
"""So many marks are read one by one."""
_TOGETHER = 16
_MOST = 1 << 17
_seen: dict[tuple[str, Path, str], DoneMark] = {}
"""(warehouse, path, version) → mark, of this process."""
_indexed: dict[tuple[str, str], Mapping[Path, str]] = {}
"""(warehouse, key of an index) → the versions of the marks that it holds, as far as this process knows."""
_listings: ContextVar[dict[Path, dict[Path, DoneMark]] | None] = ContextVar("listings", default=None)
"""Run's folder → its marks; None where every look at them is a listing."""


def listed_once() -> AbstractContextManager[None]:
    """Within this the marks of every run in a bucket are listed once, and those noted that this process writes.

    What other processes finish meanwhile may be missing from a listing until `look_again`; a single shard that is not
    in it is asked for. In a folder nothing changes.
    """
    return scoped(_listings, {}) if _listings.get() is None else nullcontext()


def look_again(run_folder: Path) -> None:
    """Forget the listing of a run: other processes have finished shards of it."""
    (_listings.get() or {}).pop(run_folder, None)


@dataclass(frozen=True)
class Marks:
    """A run's place in its warehouse, and its done-marks."""

    warehouse: Home
    run_id: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.warehouse.root / self.run_id

    @property
    def place(self) -> str:
        """The run's address, for people."""
        return f"{self.warehouse.place}/{self.run_id}"

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.place} and grade the study again (replies that arrived are kept, and not asked for again)"

    def marks(self) -> list[Path]:
        """Where the done-marks of all stages are, `<stage>/<shard>.json`, in order; broken ones too, but StoreError for
        one in a bucket within `listed_once`."""
        folder = self.folder / DONE
        if not self.warehouse.mirrored:
            return sorted(folder.glob("*/*.json"))
        if _listings.get() is not None:
            return list(self._marks(folder))
        return sorted(folder / name for name in self.warehouse.versions(folder))

    def _mark_path(self, stage: str, shard: str) -> Path:
        return self.folder / DONE / stage / f"{shard}.json"

    def _mark(self, stage: str, shard: str) -> DoneMark | None:
        """The mark of a shard, asked for where no listing has it; None where there is none."""
        path = self._mark_path(stage, shard)
        if not self.warehouse.mirrored:
            return read_mark(path, self.mend()) if path.exists() else None
        mark = (self._listing() or {}).get(path)
        content = None if mark else self.warehouse.stored(path)
        return mark if content is None else self._note(path, content)

    def _done_marks(self, stage: str) -> dict[str, DoneMark]:
        """The marks of a stage by the name of their shard, in name order.

        StoreError for one that cannot be read, or one that is lost of those that the stage's last one names.
        """
        marks = {path.stem: mark for path, mark in self._marks(self.folder / DONE / stage).items()}
        for other in marks[LAST].others if LAST in marks else ():
            if other not in marks:
                path = f"{self.place}/_done/{stage}/{other}.json"
                raise StoreError(f"{path} is lost, and its stage is done; {self.mend()}")
        return marks

    def _marks(self, folder: Path) -> dict[Path, DoneMark]:
        """The marks below a folder, in name order."""
        if not self.warehouse.mirrored:
            return {path: read_mark(path, self.mend()) for path in sorted(folder.rglob("*.json"))}
        listings = _listings.get()
        if listings is None:
            return self._marks_in_bucket(folder)
        if self.folder not in listings:
            listings[self.folder] = self._marks_in_bucket(self.folder / DONE)
        marks = listings[self.folder]
        return {path: marks[path] for path in sorted(marks) if folder in path.parents}

    def _listing(self) -> dict[Path, DoneMark] | None:
        """The marks as they were listed once; None where they were not, and in a folder."""
        return (_listings.get() or {}).get(self.folder)

    def _note(self, path: Path, content: bytes) -> DoneMark:
        """A mark of a bucket that was written or read: noted, so that nothing is asked for it again."""
        with self.warehouse.naming():
            mark = mark_in(content, path, self.mend())
        _seen[self.warehouse.place, path, version_of(content)] = mark
        listing = self._listing()
        if listing is not None:
            listing[path] = mark
        return mark

    def _marks_in_bucket(self, folder: Path) -> dict[Path, DoneMark]:
        """The marks below a folder of a bucket, of one stage or of all, in order."""
        versions = {folder / name: version for name, version in self.warehouse.versions(folder).items()}
        if len(_seen) > _MOST:
            _seen.clear()
        with self.warehouse.naming():
            for stage in {path.parent for path in versions}:
                self._learn(stage, {path: versions[path] for path in versions if path.parent == stage})
        return {path: _seen[self.warehouse.place, path, versions[path]] for path in sorted(versions)}

    def _learn(self, stage: Path, versions: Mapping[Path, str]) -> None:
        """Take in the marks of a stage that were not seen yet, many of them from its index, `_index/<stage>.json`."""
        warehouse = self.warehouse
        mend = self.mend()
        index = f"{self.run_id}/_index/{stage.name}.json"

        def unseen() -> list[Path]:
            return [path for path, version in versions.items() if (warehouse.place, path, version) not in _seen]

        if len(unseen()) > _FEW:
            try:
                records = json.loads(warehouse.objects.get(index) or b"{}")
                texts = {path: records[path.name][1] for path in versions if records[path.name][0] == versions[path]}
            except (ValueError, TypeError, KeyError, IndexError):  # broken or not complete: written anew
                texts = {}
            _indexed[warehouse.place, index] = {path: versions[path] for path in texts}
            for path, text in texts.items():
                _seen[warehouse.place, path, versions[path]] = mark_in(text.encode(), path, mend)
        paths = unseen()
        with ThreadPoolExecutor(_TOGETHER) as pool:
            for path, content in zip(paths, pool.map(warehouse.content, paths), strict=True):
                _seen[warehouse.place, path, versions[path]] = mark_in(content, path, mend)
        known = _indexed.get((warehouse.place, index), {})
        if sum(known.get(path) != version for path, version in versions.items()) > _FEW:
            records = {
                path.name: [version, mark_bytes(_seen[warehouse.place, path, version]).decode()]
                for path, version in versions.items()
            }
            warehouse.objects.put(index, json.dumps(records, ensure_ascii=False).encode())
            _indexed[warehouse.place, index] = versions
