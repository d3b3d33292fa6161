"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard.

A shard's files are written first (temporary name, then rename) and its done-mark last, so a shard exists whole or not
at all, and a killed run continues where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
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
from tasks.store.files import cannot_write
from tasks.store.home import Home
from tasks.store.index import marks_below
from tasks.store.mark import LAST, DoneMark, MarkedTable, mark_bytes, read_mark
from tasks.store.part import FORMAT as PARQUET
from tasks.store.part import as_parquet, content, hold, reading

EXPERIMENTS, ARMS = "experiments", "arms.json"
"""Where a warehouse keeps what was made of several runs, and each experiment the ids of its arms' runs."""
Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]
Files: TypeAlias = Mapping[str, memoryview]
"""Name of a table → its file's bytes."""
Made: TypeAlias = dict[str, MarkedTable]
"""Name of a table → what its done-mark says of it."""
Held: TypeAlias = Mapping[Path, tuple[type[Row], MarkedTable]]
"""File → its table, and what its done-mark says of it."""


@dataclass(frozen=True)
class Warehouse(Home):
    """Holds runs and, in a folder, the reply store."""

    @property
    def replies(self) -> str | Path:
        """Where replies are kept: what RUBRICFLOW_REPLIES names, a file or `postgresql://…`; else a file of the folder.

        StoreError for a bucket, which has none.
        """
        if self.replies_named:
            return self.replies_named
        if self.mirrored:
            rule = "replies are kept in a SQLite file, which an object store cannot hold"
            hint = "name a file or a database by --replies or RUBRICFLOW_REPLIES: replies.sqlite, postgresql://…"
            raise StoreError(f"{self.place}: {rule}; {hint}")
        return self.root / "replies.sqlite"

    def runs(self) -> list[str]:
        """Ids of the runs, oldest manifest first."""
        if self.mirrored:
            return self._runs_there()
        return [path.parent.name for path in sorted(self.root.glob("*/manifest.json"), key=lambda p: p.stat().st_mtime)]

    def arms(self) -> set[str]:
        """Ids of the runs that are arms of an experiment: nobody means one of them by the latest run."""
        arms: set[str] = set()
        if self.mirrored:
            self.fetch_all(self.root / EXPERIMENTS / name / ARMS for name in self.objects.names(EXPERIMENTS))
        for path in (self.root / EXPERIMENTS).glob(f"*/{ARMS}"):
            try:
                arms |= set(json.loads(path.read_bytes()).values())
            except (ValueError, AttributeError, OSError) as error:
                raise StoreError(f"{path} cannot be read: run the experiment again, or remove it") from error
        return arms

    def run(self, run_id: str) -> Run:
        """The run of this id, existing or not."""
        return Run(self, run_id)

    def _runs_there(self) -> list[str]:
        manifests = [self.root / name / "manifest.json" for name in self.objects.names("")]
        self.fetch_all(manifests)
        written = {path.parent.name: json.loads(path.read_bytes())["written"] for path in manifests if path.is_file()}
        return sorted(written, key=lambda name: (written[name], name))


@dataclass(frozen=True)
class Run:
    """One run's part of the warehouse."""

    warehouse: Warehouse
    run_id: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.warehouse.root / self.run_id

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.warehouse.place}/{self.run_id}"

    def fetched(self, name: str) -> Path:
        """The file of this name in the run's folder, as it is now; where there is none, there is no file."""
        return self.warehouse.fetch(self.folder / name)

    def done(self, stage: str, shard: str) -> bool:
        """Whether this shard of this stage is finished; StoreError where it is not what its done-mark says.

        In a bucket the mark alone is looked at: it was written after the files, and those never change.
        """
        if not self.warehouse.fetch(self._mark(stage, shard)).exists():
            return False
        mark = self._finished(stage, shard)
        if not self.warehouse.mirrored:
            self._hold(self._files(stage, {shard: mark}))
        return True

    def commit(self, stage: str, shard: str, tables: Mapping[type[Row], Rows]) -> None:
        """Write one shard whole: every table conformed to its contract, then the done-mark.

        A finished shard of the same content stays as it is: another run of the study may be reading it.
        """
        files, made = {}, {}
        for row, rows in tables.items():
            table = conform(row, rows)
            files[row.table] = file = as_parquet(table)
            digest = hashlib.sha256(file).hexdigest()
            made[row.table] = MarkedTable(rows=table.num_rows, content=content(row, table), sha256=digest)
        with self.alone():
            if not self._stands(stage, shard, made):
                write = self._write_there if self.warehouse.mirrored else self._write_here
                write(stage, shard, files, made)
        give_back()

    def _write_here(self, stage: str, shard: str, files: Files, made: Made) -> None:
        mark = self._mark(stage, shard)
        paths = {self.file(table, stage, shard): file for table, file in files.items()}
        # Without its mark first: between other files and an old mark a kill would leave a shard that is neither.
        mark.unlink(missing_ok=True)
        for folder in {path.parent for path in (*paths, mark)}:
            _sweep(folder)
        for path, file in paths.items():
            self.warehouse.write(path, file)
        others = tuple(path.stem for path in self._mark_files(stage)) if shard == LAST else ()
        self.warehouse.write(mark, mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=made, others=others)))

    def _write_there(self, stage: str, shard: str, files: Files, made: Made) -> None:
        """Files under names that nobody else uses, then the mark, which the first of several writers sets."""
        attempt, path = secrets.token_hex(6), self._mark(stage, shard)
        for table, file in files.items():
            self.warehouse.write(self.file(table, stage, shard, attempt), file)
        others = tuple(name for name in self._done_marks(stage) if name != LAST) if shard == LAST else ()
        mark = mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=made, others=others, attempt=attempt))
        if not self.warehouse.write_new(path, mark) and not self._stands(stage, shard, made):
            self.warehouse.write(path, mark)

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
        return {shard: mark.tables for shard, mark in self._done_marks(stage).items()}

    def marks(self) -> list[Path]:
        """The done-marks of all stages, `<stage>/<shard>.json`."""
        folder = self.folder / "_done"
        if self.warehouse.mirrored:
            return sorted(folder / name for name in self.warehouse.versions(folder))
        return sorted(folder.glob("*/*.json"))

    def file(self, table: str, stage: str, shard: str, attempt: str = "") -> Path:
        """Where a shard's rows of a table are; attempt: what its done-mark says of it."""
        return self._folder(table, stage) / f"{shard}{f'.{attempt}' if attempt else ''}.parquet"

    def stages(self, row: type[Row]) -> list[str]:
        """The stages that finished something of a table, by name."""
        if self.warehouse.mirrored:  # one listing for all of them
            marks = self._marks(self.folder / "_done")
            return sorted({path.parent.name for path, mark in marks.items() if row.table in mark.tables})
        stages = self.warehouse.names(self.folder / row.table)
        return [stage for stage in stages if any(row.table in made for made in self.shards(stage).values())]

    def all_parts(self) -> dict[str, list[Path]]:
        """Name of a table → its files of all stages, as `parts`."""
        files: dict[str, list[Path]] = {}
        for stage in sorted({path.parent.name for path in self.marks()}):
            held = self._files(stage, self._done_marks(stage))
            self._hold(held)
            for path, (row, _) in held.items():
                files.setdefault(row.table, []).append(path)
        return files

    def parts(self, row: type[Row], stage: str) -> dict[Path, MarkedTable]:
        """The files of a table that a stage finished, in name order, with what their done-marks say of them.

        StoreError for a file that is lost or cut off, or that is not byte for byte the one its done-mark speaks of.
        """
        files = self._files(stage, self._done_marks(stage), row)
        self._hold(files)
        return {path: made for path, (_, made) in files.items()}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this run is written to by nobody else: the lock of a killed process is free again."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _stands(self, stage: str, shard: str, made: Made) -> bool:
        """Whether a shard is finished with these rows and all its files are as they were written."""
        try:
            if not self.done(stage, shard):
                return False
            mark = self._finished(stage, shard)
            self._hold(self._files(stage, {shard: mark}))
        except StoreError:  # it is broken, and written anew
            return False
        there = mark.tables
        return there.keys() == made.keys() and all(of.same_rows(there[table]) for table, of in made.items())

    def _finished(self, stage: str, shard: str) -> DoneMark:
        """The mark of a finished shard; of a stage's last one only where the others are there too."""
        if shard == LAST:
            return self._done_marks(stage)[shard]
        return self._read_mark(self.warehouse.fetch(self._mark(stage, shard)))

    def _done_marks(self, stage: str) -> dict[str, DoneMark]:
        """The marks of a stage by the name of their shard, in name order; see `shards`."""
        marks = {path.stem: mark for path, mark in self._marks(self.folder / "_done" / stage).items()}
        for other in marks[LAST].others if LAST in marks else ():
            if other not in marks:
                path = f"{self.place}/_done/{stage}/{other}.json"
                raise StoreError(f"{path} is lost, and its stage is done; {self.mend()}")
        return marks

    def _marks(self, folder: Path) -> dict[Path, DoneMark]:
        """The marks below a folder, in name order."""
        if not self.warehouse.mirrored:
            return {path: read_mark(path, self.mend()) for path in sorted(folder.rglob("*.json"))}
        with self.warehouse.naming():
            return marks_below(self.warehouse, folder, self.mend())

    def _read_mark(self, path: Path) -> DoneMark:
        with self.warehouse.naming():
            return read_mark(path, self.mend())

    def _files(self, stage: str, marks: Mapping[str, DoneMark], row: type[Row] | None = None) -> Held:
        """The files that marks speak of, of one table or of all, each with its table and what its mark says."""
        return {
            self.file(table, stage, shard, mark.attempt): (BY_NAME[table], made)
            for shard, mark in marks.items()
            for table, made in mark.tables.items()
            if row is None or row.table == table
        }

    def _hold(self, files: Held) -> None:
        """StoreError unless every file is the one that its done-mark speaks of."""
        house = self.warehouse
        house.fetch_missing(files)
        for path, (row, made) in files.items():
            with house.naming():
                try:
                    hold(path, row, made, self.mend())
                except StoreError:
                    if not house.mirrored:
                        raise
                    # What is broken may be the mirror's alone.
                    hold(house.fetch(path), row, made, self.mend())

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.place} and grade the study again (replies are kept beside it: none is asked for twice)"

    def files(self, table: str, stage: str) -> list[Path]:
        """The files of a table that belong to finished shards of a stage, in name order; a lost one is left out."""
        files = list(self._files(stage, self._done_marks(stage), BY_NAME[table]))
        self.warehouse.fetch_missing(files)
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
        files = self._files(stage, {name: self._finished(stage, name)}, row)
        if not files:
            raise StoreError(f"run {self.run_id}: shard '{name}' of stage '{stage}' holds no table '{row.table}'")
        self._hold(files)
        with reading(f"{self.place}/{row.table}/{stage}/{name}", self.mend()):
            return ds.dataset(list(files), format=PARQUET, schema=schema(row)).to_table()

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


@cache
def _sweep(folder: Path) -> None:
    """Remove what a killed writer left half-written in a folder of a run that is written to by nobody else."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)
