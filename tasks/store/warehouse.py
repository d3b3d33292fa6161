"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard.

A shard's files are written first (temporary name, then rename) and its done-mark last, so a shard exists whole or not
at all, and a killed run continues where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

from tasks.contracts.errors import StoreError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row, conform, schema
from tasks.contracts.tables.every import BY_NAME
from tasks.store.aside import clear
from tasks.store.mark import LAST, DoneMark, MarkedTable, mark_bytes, read_mark
from tasks.store.part import FORMAT as PARQUET
from tasks.store.part import as_parquet, content, hold, reading

FORMAT = 1
MARKER = ".rubricflow.json"
EXPERIMENTS, ARMS = "experiments", "arms.json"
"""Where a warehouse keeps what was made of several runs, and each experiment the ids of its arms' runs."""
Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]


@dataclass(frozen=True)
class Warehouse:
    """A folder that holds runs and the reply store."""

    root: Path

    @classmethod
    def open(cls, root: Path | str) -> Warehouse:
        """Open or create; StoreError if the folder cannot be made or read, is foreign or is of another format.

        What killed processes put aside in it is cleared away.
        """
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
        clear(folder)
        return cls(folder)

    @property
    def replies(self) -> Path:
        """The reply store's file."""
        return self.root / "replies.sqlite"

    def runs(self) -> list[str]:
        """Ids of the runs, oldest manifest first."""
        return [path.parent.name for path in sorted(self.root.glob("*/manifest.json"), key=lambda p: p.stat().st_mtime)]

    def arms(self) -> set[str]:
        """Ids of the runs that are arms of an experiment: nobody means one of them by the latest run."""
        arms: set[str] = set()
        for path in (self.root / EXPERIMENTS).glob(f"*/{ARMS}"):
            try:
                arms |= set(json.loads(path.read_bytes()).values())
            except (ValueError, AttributeError, OSError) as error:
                raise StoreError(f"{path} cannot be read: run the experiment again, or remove it") from error
        return arms

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
        """Whether this shard of this stage is finished; StoreError where it is not what its done-mark says."""
        if not self._mark(stage, shard).exists():
            return False
        for table, of in self._tables(stage, shard).items():
            hold(self.file(table, stage, shard), BY_NAME[table], of, self.mend())
        return True

    def commit(self, stage: str, shard: str, tables: Mapping[type[Row], Rows]) -> None:
        """Write one shard whole: every table conformed to its contract, then the done-mark.

        A finished shard of the same content stays as it is: another run of the study may be reading it.
        """
        files, made = {}, {}
        for row, rows in tables.items():
            table = conform(row, rows)
            file = as_parquet(table)
            files[self.file(row.table, stage, shard)] = file
            digest = hashlib.sha256(file).hexdigest()
            made[row.table] = MarkedTable(rows=table.num_rows, content=content(row, table), sha256=digest)
        mark = self._mark(stage, shard)
        with self.alone():
            if self._stands(stage, shard, made):
                return
            # Without its mark first: between other files and an old mark a kill would leave a shard that is neither.
            mark.unlink(missing_ok=True)
            for folder in {path.parent for path in (*files, mark)}:
                _sweep(folder)
            for path, file in files.items():
                write_atomically(path, file)
            others = tuple(path.stem for path in self._mark_files(stage)) if shard == LAST else ()
            write_atomically(mark, mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=made, others=others)))
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

    def shards(self, stage: str) -> dict[str, dict[str, MarkedTable]]:
        """The finished shards of a stage by name, each with what it holds of each table.

        StoreError for a done-mark that cannot be read, or one that is lost of those that the stage's last one names.
        """
        marks = {path.stem: read_mark(path, self.mend()) for path in self._mark_files(stage)}
        for other in marks[LAST].others if LAST in marks else ():
            if other not in marks:
                raise StoreError(f"{self._mark(stage, other)} is lost, and its stage is done; {self.mend()}")
        return {shard: mark.tables for shard, mark in marks.items()}

    def marks(self) -> list[Path]:
        """The done-marks of all stages, `<stage>/<shard>.json`."""
        return sorted((self.folder / "_done").glob("*/*.json"))

    def file(self, table: str, stage: str, shard: str) -> Path:
        """Where a shard's rows of a table are."""
        return self._folder(table, stage) / f"{shard}.parquet"

    def stages(self, row: type[Row]) -> list[str]:
        """The stages that finished something of a table, by name."""
        stages = sorted(path.name for path in (self.folder / row.table).glob("*"))
        return [stage for stage in stages if any(row.table in made for made in self.shards(stage).values())]

    def parts(self, row: type[Row], stage: str) -> dict[Path, MarkedTable]:
        """The files of a table that a stage finished, in name order, with what their done-marks say of them.

        StoreError for a file that is lost or cut off, or that is not byte for byte the one its done-mark speaks of.
        """
        made = {self.file(row.table, stage, name): shard.get(row.table) for name, shard in self.shards(stage).items()}
        parts = {path: of for path, of in made.items() if of}
        for path, of in parts.items():
            hold(path, row, of, self.mend())
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

    def _stands(self, stage: str, shard: str, made: Mapping[str, MarkedTable]) -> bool:
        """Whether a shard is finished with these rows and all its files are as they were written."""
        try:
            if not self.done(stage, shard):
                return False
            there = self._tables(stage, shard)
        except StoreError:  # it is broken, and written anew
            return False
        return there.keys() == made.keys() and all(of.same_rows(there[table]) for table, of in made.items())

    def _tables(self, stage: str, shard: str) -> dict[str, MarkedTable]:
        """What a finished shard holds; of a stage's last one only where the others are there too."""
        if shard == LAST:
            return self.shards(stage)[shard]
        return read_mark(self._mark(stage, shard), self.mend()).tables

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.folder} and grade the study again (replies are kept beside it: none is asked for twice)"

    def files(self, table: str, stage: str) -> list[Path]:
        """The files of a table that belong to finished shards of a stage, in name order; a lost one is left out."""
        finished = [shard for shard, tables in self.shards(stage).items() if table in tables]
        files = [self.file(table, stage, shard) for shard in finished]
        return [file for file in files if file.is_file()]

    def read(self, ref: TableRef, columns: list[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        """The rows behind a reference, shards in name order; StoreError if they are not all there."""
        with reading(ref.path, self.mend()):
            dataset = self._dataset(ref)
            rows = dataset.count_rows()
            if rows != ref.rows:
                raise StoreError(f"{ref.path} holds {rows} rows where {ref.rows} were written; {self.mend()}")
            return dataset.to_table(columns=columns, filter=where)

    def shard(self, row: type[Row], stage: str, name: str) -> pa.Table:
        """The rows of a table that one finished shard holds, whatever other shards of the stage finish meanwhile;
        StoreError if it holds none, or they are not as they were written."""
        file = self.file(row.table, stage, name)
        made = self._tables(stage, name).get(row.table)
        if made is None:
            raise StoreError(f"run {self.run_id}: shard '{name}' of stage '{stage}' holds no table '{row.table}'")
        hold(file, row, made, self.mend())
        with reading(str(file), self.mend()):
            return ds.dataset([file], format=PARQUET, schema=schema(row)).to_table()

    def batches(self, ref: TableRef, columns: list[str] | None = None, rows: int = 50_000) -> Iterator[pa.RecordBatch]:
        """The rows behind a reference in batches of at most `rows`; StoreError if they cannot be read."""
        with reading(ref.path, self.mend()):
            yield from self._dataset(ref).to_batches(columns=columns, batch_size=rows)

    def _dataset(self, ref: TableRef) -> ds.Dataset:
        # Beside a finished shard, a file without a mark is what a killed writer left.
        files = self.files(ref.table, ref.stage) or sorted((self.warehouse.root / ref.path).glob("*.parquet"))
        return ds.dataset(files, format=PARQUET, schema=schema(BY_NAME[ref.table]))

    def _folder(self, table: str, stage: str) -> Path:
        return self.folder / table / stage

    def _mark(self, stage: str, shard: str) -> Path:
        return self.folder / "_done" / stage / f"{shard}.json"

    def _mark_files(self, stage: str) -> list[Path]:
        return sorted((self.folder / "_done" / stage).glob("*.json"))


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


@cache
def _sweep(folder: Path) -> None:
    """Remove what a killed writer left half-written in a folder of a run that is written to by nobody else."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {path}: {error.strerror}; what is finished stays: mend that and start again")


def _opening(name: str) -> bool:
    """Whether a file is the marker of a warehouse, or on its way to be it."""
    return name == MARKER or (name.startswith(f".{MARKER}.") and name.endswith(".tmp"))
