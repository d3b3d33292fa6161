"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard.

A shard's files are written first (temporary name, then rename) and its done-mark last, so a shard exists whole or not
at all, and a killed run continues where it stopped.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tasks.contracts.errors import StoreError
from tasks.contracts.table import Row, conform, schema, volatile
from tasks.contracts.tables import BY_NAME, TableRef

FORMAT = 1
MARKER = ".rubricflow.json"
Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]


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
                if folder.exists() and any(not path.name.startswith(f".{MARKER}.") for path in folder.iterdir()):
                    raise StoreError(
                        f"{folder} holds other things and is no rubricflow warehouse; name an empty or new folder"
                    )
                folder.mkdir(parents=True, exist_ok=True)
                write_atomically(marker, json.dumps({"format": FORMAT}).encode())
            found = json.loads(marker.read_bytes())["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"warehouse {folder} cannot be used: {error}") from error
        if found != FORMAT:
            raise StoreError(f"warehouse {folder} has format {found}; this version reads format {FORMAT}")
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
        """Write one shard whole: every table conformed to its contract, then the done-mark."""
        entries = {}
        for row, rows in tables.items():
            table = conform(row, rows)
            path = self._folder(row.table, stage) / f"{shard}.parquet"
            _write_parquet(path, table)
            entries[row.table] = {"rows": table.num_rows, "content": _content(row, table)}
        write_atomically(self._mark(stage, shard), json.dumps(entries, sort_keys=True).encode())

    def once(self, stage: str, make: Callable[[], Mapping[type[Row], Rows]]) -> None:
        """Write a stage that has a single shard, unless it is there already."""
        if not self.done(stage, "all"):
            self.commit(stage, "all", make())

    def ref(self, row: type[Row], stage: str) -> TableRef:
        """Reference to what a stage wrote of a table; StoreError if it wrote nothing."""
        rows, high, low = 0, 0, 0
        entries = [made[row.table] for made in self.shards(stage).values() if row.table in made]
        if not entries:
            raise StoreError(f"run {self.run_id}: stage '{stage}' holds no table '{row.table}'")
        for entry in entries:
            rows, high, low = rows + entry["rows"], high + entry["content"][0], low + entry["content"][1]
        text = f"{row.table}:{schema(row).to_string(show_field_metadata=False)}:{rows}:{high % 2**64}:{low % 2**64}"
        path = self._folder(row.table, stage).relative_to(self.warehouse.root)
        return TableRef(
            table=row.table, stage=stage, path=str(path), digest=hashlib.sha256(text.encode()).hexdigest(), rows=rows
        )

    def shards(self, stage: str) -> dict[str, dict[str, Any]]:
        """The finished shards of a stage by name, each with its tables' number of rows and content sums."""
        marks = sorted((self.folder / "_done" / stage).glob("*.json"))
        try:
            return {mark.stem: json.loads(mark.read_bytes()) for mark in marks}
        except (OSError, ValueError) as error:
            raise StoreError(f"run {self.run_id}: a done-mark of stage '{stage}' cannot be read: {error}") from error

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
                raise StoreError(
                    f"{ref.path} holds {found} rows where {ref.rows} were written; remove run {self.run_id}"
                )
            return dataset.to_table(columns=columns, filter=where)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{ref.path} cannot be read: {error}") from error

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


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or the new one, never half of it; StoreError if it cannot be."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def _write_parquet(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


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
