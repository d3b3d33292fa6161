"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard.

A shard's files are written first (temporary name, then rename) and its done-mark last, so a shard exists whole or not
at all, and a killed run continues where it stopped.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from tasks.contracts.errors import StoreError
from tasks.contracts.table import Frozen, Row, conform, schema, volatile
from tasks.contracts.tables import BY_NAME, TableRef

# The default pool keeps what a freed table held; the system's gives it back.
pa.set_memory_pool(pa.system_memory_pool())
FORMAT = 1
MARKER = ".rubricflow.json"
Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]


class Made(Frozen):
    """What a done-mark says of one table of its shard."""

    rows: int
    content: tuple[int, int]
    """See `_content`."""


_MARK = TypeAdapter(dict[str, Made])


@dataclass(frozen=True)
class Warehouse:
    """A folder that holds runs and the reply store."""

    root: Path

    @classmethod
    def open(cls, root: Path | str) -> Warehouse:
        """Open or create; StoreError if the folder cannot be made or read, is foreign or is of another format."""
        folder = Path(root)
        marker = folder / MARKER
        try:
            if not marker.exists():
                foreign = folder.exists() and any(not _opening(path.name) for path in folder.iterdir())
                # Asked again: another process may have made the warehouse, and more in it, while this one looked.
                if foreign and not marker.exists():
                    raise StoreError(
                        f"{folder} holds other things and is no rubricflow warehouse; name an empty or new folder"
                    )
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(marker, json.dumps({"format": FORMAT}).encode())
            found = json.loads(marker.read_bytes())["format"]
        except OSError as error:
            raise StoreError(f"warehouse {folder} cannot be used: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"warehouse {folder} cannot be used: {marker} does not say its format") from error
        if found != FORMAT:
            raise StoreError(
                f"warehouse {folder} has format {found}; this version reads format {FORMAT}: use the version of "
                "rubricflow that made it, or name a new folder"
            )
        return cls(folder)

    @property
    def replies(self) -> Path:
        """The reply store's file."""
        return self.root / "replies.sqlite"

    def runs(self) -> list[str]:
        """Ids of the runs, oldest manifest first."""
        return [path.parent.name for path in sorted(self.root.glob("*/manifest.json"), key=lambda p: p.stat().st_mtime)]

    def run(self, run_id: str) -> Run:
        """The run of this id, existing or not."""
        return Run(self, run_id)


@dataclass(frozen=True)
class Run:
    """One run's part of the warehouse."""

    warehouse: Warehouse
    run_id: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.warehouse.root / self.run_id

    def done(self, stage: str, shard: str) -> bool:
        """Whether this shard of this stage is finished."""
        return self._mark(stage, shard).exists()

    def commit(self, stage: str, shard: str, tables: Mapping[type[Row], Rows]) -> None:
        """Write one shard whole: every table conformed to its contract, then the done-mark.

        A finished shard of the same content stays as it is: another run of the study may be reading it.
        """
        files, made = {}, {}
        for row, rows in tables.items():
            table = conform(row, rows)
            files[self._folder(row.table, stage) / f"{shard}.parquet"] = _as_parquet(table)
            made[row.table] = Made(rows=table.num_rows, content=_content(row, table))
        mark = self._mark(stage, shard)
        with self.alone():
            if self._stands(stage, shard, tables, made):
                return
            # Without its mark first: between other files and an old mark a kill would leave a shard that is neither.
            mark.unlink(missing_ok=True)
            for path, content in files.items():
                write_atomically(path, content)
            write_atomically(mark, _MARK.dump_json(made))
        give_back()

    def once(self, stage: str, make: Callable[[], Mapping[type[Row], Rows]]) -> None:
        """Write a stage that has a single shard, unless it is there already."""
        if not self.done(stage, "all"):
            self.commit(stage, "all", make())

    def ref(self, row: type[Row], stage: str) -> TableRef:
        """Reference to what a stage wrote of a table; StoreError if it wrote nothing, or not all of it is there."""
        parts = self.parts(row, stage)
        if not parts:
            raise StoreError(f"run {self.run_id}: stage '{stage}' holds no table '{row.table}'")
        rows = sum(made.rows for made in parts.values())
        high, low = (sum(made.content[half] for made in parts.values()) for half in (0, 1))
        text = f"{row.table}:{schema(row).to_string(show_field_metadata=False)}:{rows}:{high % 2**64}:{low % 2**64}"
        path = self._folder(row.table, stage).relative_to(self.warehouse.root)
        return TableRef(
            table=row.table, stage=stage, path=str(path), digest=hashlib.sha256(text.encode()).hexdigest(), rows=rows
        )

    def shards(self, stage: str) -> dict[str, dict[str, Made]]:
        """The finished shards of a stage by name, each with what it holds of each table."""
        marks = sorted((self.folder / "_done" / stage).glob("*.json"))
        return {mark.stem: self._read_mark(mark) for mark in marks}

    def stages(self, row: type[Row]) -> list[str]:
        """The stages that finished something of a table, by name."""
        stages = sorted(path.name for path in (self.folder / row.table).glob("*"))
        return [stage for stage in stages if any(row.table in made for made in self.shards(stage).values())]

    def parts(self, row: type[Row], stage: str) -> dict[Path, Made]:
        """The files of a table that a stage finished, in name order, with what their done-marks say of them.

        StoreError for a file that is lost or cut off, or has not the rows of its done-mark or the contract's columns.
        Only the ends of the files are read.
        """
        folder = self._folder(row.table, stage)
        made = {folder / f"{name}.parquet": shard.get(row.table) for name, shard in self.shards(stage).items()}
        parts = {path: of for path, of in made.items() if of}
        for path, of in parts.items():
            self._look_at(path, row, of.rows)
        return parts

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this run is written to by nobody else: the lock of a killed process is free again."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise _cannot_write(self.folder, error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _stands(self, stage: str, shard: str, tables: Iterable[type[Row]], made: Mapping[str, Made]) -> bool:
        """Whether a shard is finished with this content and all its files are there."""
        try:
            if not self.done(stage, shard) or self._read_mark(self._mark(stage, shard)) != made:
                return False
            for row in tables:
                self._look_at(self._folder(row.table, stage) / f"{shard}.parquet", row, made[row.table].rows)
        except StoreError:  # it is broken, and written anew
            return False
        return True

    def _read_mark(self, mark: Path) -> dict[str, Made]:
        try:
            return _MARK.validate_json(mark.read_bytes())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no list of tables with rows and content"
            raise StoreError(f"{mark}: this done-mark cannot be read: {reason}; {self.mend()}") from error

    def _look_at(self, path: Path, row: type[Row], rows: int) -> None:
        """StoreError unless the file holds so many rows in the contract's columns."""
        try:
            with pq.ParquetFile(path) as file:
                found, columns = file.metadata.num_rows, file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            lost = "is lost" if isinstance(error, FileNotFoundError) else f"cannot be read: {_first_line(error)}"
            raise StoreError(f"{path} {lost}, and its shard is marked as done; {self.mend()}") from error
        kinds, wanted = {field.name: field.type for field in columns}, _kinds(row)
        if odd := [name for name in wanted | kinds if kinds.get(name) != wanted.get(name)]:
            raise StoreError(
                f"{path} was written by another version of rubricflow: its table differs in {', '.join(odd)}; "
                f"ask the run with that version, or remove {self.folder} and grade the study again"
            )
        if found != rows:
            raise StoreError(f"{path} holds {found} rows where {rows} were written; {self.mend()}")

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.folder} and grade the study again (replies are kept beside it: none is asked for twice)"

    def files(self, table: str, stage: str) -> list[Path]:
        """The files of a table that belong to finished shards of a stage, in name order; a lost one is left out."""
        finished = [shard for shard, tables in self.shards(stage).items() if table in tables]
        files = [self._folder(table, stage) / f"{shard}.parquet" for shard in finished]
        return [file for file in files if file.is_file()]

    def read(self, ref: TableRef, columns: list[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        """The rows behind a reference, shards in name order; StoreError if they are not all there."""
        try:
            dataset = self._dataset(ref)
            found = dataset.count_rows()
            if found != ref.rows:
                raise StoreError(f"{ref.path} holds {found} rows where {ref.rows} were written; {self.mend()}")
            return dataset.to_table(columns=columns, filter=where)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{ref.path} cannot be read: {_first_line(error)}; {self.mend()}") from error

    def batches(self, ref: TableRef, columns: list[str] | None = None, rows: int = 50_000) -> Iterator[pa.RecordBatch]:
        """The rows behind a reference in batches of at most `rows`."""
        yield from self._dataset(ref).to_batches(columns=columns, batch_size=rows)

    def _dataset(self, ref: TableRef) -> ds.Dataset:
        # Beside a finished shard, a file without a mark is what a killed writer left.
        files = self.files(ref.table, ref.stage) or sorted((self.warehouse.root / ref.path).glob("*.parquet"))
        return ds.dataset(files, format="parquet", schema=schema(BY_NAME[ref.table]))

    def _folder(self, table: str, stage: str) -> Path:
        return self.folder / table / stage

    def _mark(self, stage: str, shard: str) -> Path:
        return self.folder / "_done" / stage / f"{shard}.json"


def give_back() -> None:
    """Return to the system what freed tables held: a long run then needs no more memory than its largest stage."""
    pa.default_memory_pool().release_unused()


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is either the old one or the new one, never half of it; StoreError if it cannot be."""
    # A name of its own for every write: threads of one process, and machines that share a disk, may write one path.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {path}: {error.strerror}; what is finished stays: mend that and start again")


@cache
def _kinds(row: type[Row]) -> dict[str, pa.DataType]:
    """Type of each column."""
    return {field.name: field.type for field in schema(row)}


def _opening(name: str) -> bool:
    """Whether a file is the marker of a warehouse, or on its way to be it."""
    return name == MARKER or (name.startswith(f".{MARKER}.") and name.endswith(".tmp"))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _as_parquet(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return memoryview(sink.getvalue())


def _content(row: type[Row], table: pa.Table) -> tuple[int, int]:
    """Sums of the halves of each row's MD5: the same for any order and, added up, for any sharding."""
    as_json = "SELECT to_json(lasting)::VARCHAR AS j FROM lasting"
    with _database(os.getpid()).cursor() as cursor:
        cursor.register("lasting", table.drop_columns(volatile(row)))
        high, low = cursor.execute(
            f"SELECT sum(md5_number_upper(j)), sum(md5_number_lower(j)) FROM ({as_json})"
        ).fetchall()[0]
    return int(high or 0), int(low or 0)


@lru_cache(maxsize=1)
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """One database for all commits of a process: to open one takes longer than to add up a small shard."""
    return duckdb.connect()


atexit.register(_database.cache_clear)  # DuckDB complains at exit of what is still open
