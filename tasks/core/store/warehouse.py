"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard.

A shard's files are written first and its done-mark last, so a shard exists whole or not at all, and a killed run
continues where it stopped. In a folder one run is written to by one process at a time. In a bucket every attempt has
files of its own, and the first of several writers sets the mark.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import Row, TableRef, conform, schema
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.store.files import locked
from rubricflow.tasks.core.store.objects import Home
from rubricflow.tasks.core.store.part import (
    DONE,
    LAST,
    DoneMark,
    MarkedTable,
    Marks,
    as_parquet,
    content,
    hold,
    listed_once,
    look_again,
    mark_bytes,
    reading,
)
from rubricflow.tasks.core.store.part import FORMAT as PARQUET
from rubricflow.tasks.core.text.digest import text_digest

Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]
Tables: TypeAlias = dict[type[Row], Rows]
"""What a stage wrote of each of its tables."""
EXPERIMENTS, ARMS = "experiments", "arms.json"
"""Where a warehouse keeps what was made of several runs, and each experiment the ids of its arms' runs."""


@dataclass(frozen=True)
class Warehouse(Home):
    """Holds runs and, in a folder, the reply store."""

    @property
    def keeps_replies(self) -> bool:
        """Whether there is a store of replies: one that somebody names or, next to the runs of a folder, a file."""
        return bool(self.replies_named) or not self.mirrored

    @property
    def replies(self) -> str | Path:
        """Where replies are kept: the file or `postgresql://…` of RUBRICFLOW_REPLIES, else a file of the folder.

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
        if not self.mirrored:
            manifests = sorted(self.root.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
            return [path.parent.name for path in manifests]
        manifests = [self.root / name / "manifest.json" for name in self.objects.names("") if not name.startswith(".")]
        self.fetch_all(manifests)
        written = {path.parent.name: json.loads(path.read_bytes())["written"] for path in manifests if path.is_file()}
        return sorted(written, key=lambda name: (written[name], name))

    def begun(self) -> list[str]:
        """Ids of the runs, finished or not, by name."""
        names = self.objects.names("")
        return [name for name in names if not {DONE, "manifest.json"}.isdisjoint(self.objects.names(name))]

    def arms(self) -> set[str]:
        """Ids of the runs that are arms of an experiment, none of which is meant by the latest run."""
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


@dataclass(frozen=True)
class Run(Marks):
    """One run's part of the warehouse."""

    warehouse: Warehouse

    def fetched(self, name: str) -> Path:
        """The file of this name in the run's folder, as it is now; where there is none, there is no file."""
        return self.warehouse.fetch(self.folder / name)

    def done(self, stage: str, shard: str) -> bool:
        """Whether this shard of this stage is finished; StoreError where it is not as its done-mark has it.

        In a bucket the mark alone is looked at: it was written after the files, and those never change.
        """
        mark = self._mark(stage, shard)
        if mark is None:
            return False
        if shard == LAST:
            self._done_marks(stage)
        if not self.warehouse.mirrored:
            self._hold(self._files(stage, {shard: mark}))
        return True

    def finished(self, stage: str, names: Iterable[str]) -> set[str]:
        """Those of a stage's shards that are `done`; in a bucket by one listing, however many they are."""
        if self.warehouse.mirrored:
            return self._done_marks(stage).keys() & set(names)
        return {name for name in names if self.done(stage, name)}

    def once(self, stage: str, make: Callable[[], Mapping[type[Row], Rows]]) -> None:
        """Write a stage that has a single shard, unless it is there already."""
        if not self.done(stage, LAST):
            self.commit(stage, LAST, make())

    def commit(self, stage: str, shard: str, tables: Mapping[type[Row], Rows]) -> None:
        """Write one shard whole: every table conformed to its contract, then the done-mark.

        A finished shard of the same content stays as it is: another run of the study may be reading it.
        """
        files = {}
        marked = {}
        for row, rows in tables.items():
            table = conform(row, rows)
            files[row.table] = file = as_parquet(table)
            digest = hashlib.sha256(file).hexdigest()
            marked[row.table] = MarkedTable(rows=table.num_rows, content=content(row, table), sha256=digest)
        with self.alone():
            listing = self._listing()  # a mark that it lacks will be set only where there is none
            is_unlisted = listing is not None and self._mark_path(stage, shard) not in listing
            if is_unlisted or not self._is_stored(stage, shard, marked):
                write = self._write_to_bucket if self.warehouse.mirrored else self._write_to_folder
                write(stage, shard, files, marked)
        give_back()

    def drop(self, stage: str) -> None:
        """Remove all that a stage has written, marks first: what it wrote stands elsewhere now."""
        with self.alone():
            look_again(self.folder)
            marks = self._marks(self.folder / DONE / stage)
            files = self._files(stage, {path.stem: mark for path, mark in marks.items()})
            self.warehouse.delete([*marks, self.folder / "_index" / f"{stage}.json"])
            self.warehouse.delete(files)
            look_again(self.folder)
            for folder in {path.parent for path in (*marks, *files)}:
                shutil.rmtree(folder, ignore_errors=True)

    def copy_to(self, other: Run) -> int:
        """Write the same shards and pages into a run of a folder, files held against their marks, and marks last; gives
        how many files. The manifest is the caller's. What is there is written anew, so a killed copy goes on."""
        marks = self._marks(self.folder / DONE)
        copies = dict[Path, Path]()
        for mark_path, mark in marks.items():
            stage, shard = mark_path.parent.name, mark_path.stem
            files = self._files(stage, {shard: mark})
            self._hold(files)
            copies |= {other.file(row.table, stage, shard): path for path, (row, _) in files.items()}
        own = {path.relative_to(other.folder).parts[0] for path in copies} | {DONE, "_index", "manifest.json"}
        stored = self.warehouse.versions(self.folder)
        pages = [name for name in stored if Path(name).parts[0] not in own and not name.startswith(".")]
        self.warehouse.fetch_all(self.folder / name for name in pages)
        for path, source in (copies | {other.folder / name: self.folder / name for name in pages}).items():
            other.warehouse.write(path, source.read_bytes())
        for path in sorted(marks, key=lambda path: path.stem == LAST):  # a stage's last mark names the others
            mark = marks[path].model_copy(update={"attempt": ""})
            other.warehouse.write(other._mark_path(path.parent.name, path.stem), mark_bytes(mark))
        return len(copies) + len(pages)

    def sweep(self, older_s: float) -> int:
        """Remove tables' files that no done-mark names and that are older than so many seconds: what killed writers
        left, and nobody will mark; gives how many."""
        marked = {path for paths in self.all_parts().values() for path in paths}
        old = self.warehouse.older(self.folder, older_s)
        left = [path for path in old if path.suffix == ".parquet" and path not in marked]
        self.warehouse.delete(left)
        return len(left)

    def _write_to_folder(
        self, stage: str, shard: str, files: Mapping[str, memoryview], marked: dict[str, MarkedTable]
    ) -> None:
        mark = self._mark_path(stage, shard)
        # Without its mark first: between other files and an old mark a kill would leave a shard that is neither.
        mark.unlink(missing_ok=True)
        _sweep(mark.parent)
        for table, file in files.items():
            path = self.file(table, stage, shard)
            _sweep(path.parent)
            self.warehouse.write(path, file)
        others = tuple(path.stem for path in sorted(mark.parent.glob("*.json"))) if shard == LAST else ()
        self.warehouse.write(mark, mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=marked, others=others)))

    def _write_to_bucket(
        self, stage: str, shard: str, files: Mapping[str, memoryview], marked: dict[str, MarkedTable]
    ) -> None:
        """Files under names that nobody else uses, then the mark, which the first of several writers sets."""
        attempt = secrets.token_hex(6)
        path = self._mark_path(stage, shard)
        for table, file in files.items():
            self.warehouse.write(self.file(table, stage, shard, attempt), file)
        others = tuple(name for name in self._done_marks(stage) if name != LAST) if shard == LAST else ()
        mark = mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=marked, others=others, attempt=attempt))
        if not self.warehouse.write_new(path, mark):
            if self._is_stored(stage, shard, marked):
                return
            self.warehouse.write(path, mark)
        self._note(path, mark)

    def _is_stored(self, stage: str, shard: str, marked: Mapping[str, MarkedTable]) -> bool:
        """Whether a shard is finished with these rows and all its files are as they were written."""
        try:
            if not self.done(stage, shard):
                return False
            mark = self._mark_of_finished(stage, shard)
            self._hold(self._files(stage, {shard: mark}))
        except StoreError:  # it is broken, and written anew
            return False
        there = mark.tables
        return there.keys() == marked.keys() and all(of.same_rows(there[table]) for table, of in marked.items())

    def alone(self) -> AbstractContextManager[None]:
        """While no other process writes to this run: the lock of a killed process is free again."""
        return locked(self.folder)

    def shards(self, stage: str) -> dict[str, dict[str, MarkedTable]]:
        """The finished shards of a stage by name, each with its entry for each table.

        StoreError for a done-mark that cannot be read, or one that is lost of those that the stage's last one names.
        """
        return {shard: mark.tables for shard, mark in self._done_marks(stage).items()}

    def file(self, table: str, stage: str, shard: str, attempt: str = "") -> Path:
        """Where a shard's rows of a table are; attempt: that of its done-mark."""
        return self.folder / table / stage / f"{shard}{f'.{attempt}' if attempt else ''}.parquet"

    def ref(self, row: type[Row], stage: str) -> TableRef:
        """Reference to what a stage wrote of a table; StoreError if it wrote nothing, or not all of it is there."""
        parts = self.parts(row, stage).values()
        if not parts:
            rule = f"stage '{stage}' holds no table '{row.table}'"
            raise StoreError(
                f"run {self.run_id}: {rule}: it was not written, or its mark _done/{stage}/all.json is lost"
            )
        rows = sum(made.rows for made in parts)
        high, low = (sum(made.content[half] for made in parts) % 2**64 for half in (0, 1))
        text = f"{row.table}:{schema(row).to_string(show_field_metadata=False)}:{rows}:{high}:{low}"
        digest = text_digest(text)
        path = f"{self.run_id}/{row.table}/{stage}"
        return TableRef(table=row.table, stage=stage, path=path, digest=digest, rows=rows)

    def stages(self, row: type[Row]) -> list[str]:
        """The stages that finished something of a table, by name."""
        if self.warehouse.mirrored:  # one listing for all of them
            marks = self._marks(self.folder / DONE)
            return sorted({path.parent.name for path, mark in marks.items() if row.table in mark.tables})
        stages = self.warehouse.names(self.folder / row.table)
        return [stage for stage in stages if any(row.table in made for made in self.shards(stage).values())]

    def all_parts(self) -> dict[str, list[Path]]:
        """Name of a table → its files of all stages, as `parts`."""
        files: dict[str, list[Path]] = {}
        with listed_once():
            for stage in sorted({path.parent.name for path in self.marks()}):
                held = self._files(stage, self._done_marks(stage))
                self._hold(held)
                for path, (row, _) in held.items():
                    files.setdefault(row.table, []).append(path)
        return files

    def parts(self, row: type[Row], stage: str) -> dict[Path, MarkedTable]:
        """The files of a table that a stage finished, in name order, with their entries in the done-marks.

        StoreError for a file that is lost or cut off, or that is not byte for byte the one of its done-mark.
        """
        files = self._files(stage, self._done_marks(stage), row)
        self._hold(files)
        return {path: made for path, (_, made) in files.items()}

    def files(self, table: str, stage: str) -> list[Path]:
        """The files of a table that belong to finished shards of a stage, in name order; a lost one is left out."""
        files = list(self._files(stage, self._done_marks(stage), BY_NAME[table]))
        self.warehouse.fetch_missing(files)
        return [file for file in files if file.is_file()]

    def read(self, ref: TableRef, columns: list[str] | None = None, where: ds.Expression | None = None) -> pa.Table:
        """The rows behind a reference, shards in name order; StoreError if they are not all there."""
        with reading(ref.path, self.mend()):
            return self._dataset(ref).to_table(columns=columns, filter=where)

    def table(
        self, row: type[Row], stage: str, columns: list[str] | None = None, where: ds.Expression | None = None
    ) -> pa.Table:
        """The rows that a stage wrote of a table, as `read`."""
        return self.read(self.ref(row, stage), columns, where)

    def shard(self, row: type[Row], stage: str, name: str) -> pa.Table:
        """The rows of a table that one finished shard holds, whatever other shards of the stage finish meanwhile;
        StoreError if it holds none, or they are not as they were written."""
        files = self._files(stage, {name: self._mark_of_finished(stage, name)}, row)
        if not files:
            raise StoreError(f"run {self.run_id}: shard '{name}' of stage '{stage}' holds no table '{row.table}'")
        self._hold(files)
        with reading(f"{self.place}/{row.table}/{stage}/{name}", self.mend()):
            return ds.dataset(list(files), format=PARQUET, schema=schema(row)).to_table()

    def batches(
        self, ref: TableRef, columns: list[str] | None = None, rows: int = 50_000, where: ds.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows behind a reference in batches of at most `rows`; StoreError if they are not all there."""
        with reading(ref.path, self.mend()):
            yield from self._dataset(ref).to_batches(columns=columns, filter=where, batch_size=rows)

    def _dataset(self, ref: TableRef) -> ds.Dataset:
        # Where there are finished shards, a file without a mark is what a killed writer left.
        files = self.files(ref.table, ref.stage) or sorted((self.warehouse.root / ref.path).glob("*.parquet"))
        dataset = ds.dataset(files, format=PARQUET, schema=schema(BY_NAME[ref.table]))
        rows = dataset.count_rows()
        if rows != ref.rows:
            raise StoreError(f"{ref.path} holds {rows} rows where {ref.rows} were written; {self.mend()}")
        return dataset

    def _mark_of_finished(self, stage: str, shard: str) -> DoneMark:
        """The mark of a finished shard, of a stage's last one only where the others are there too; StoreError where it
        is not finished."""
        mark = self._done_marks(stage).get(shard) if shard == LAST else self._mark(stage, shard)
        if mark is None:
            raise StoreError(f"run {self.run_id}: shard '{shard}' of stage '{stage}' is not finished; {self.mend()}")
        return mark

    def _files(
        self, stage: str, marks: Mapping[str, DoneMark], row: type[Row] | None = None
    ) -> dict[Path, tuple[type[Row], MarkedTable]]:
        """The files of marks, of one table or of all, each with its table and its entry in the mark."""
        files = {}
        for shard, mark in marks.items():
            for table, marked in mark.tables.items():
                if row is None or row.table == table:
                    files[self.file(table, stage, shard, mark.attempt)] = (BY_NAME[table], marked)
        return files

    def _hold(self, files: Mapping[Path, tuple[type[Row], MarkedTable]]) -> None:
        """StoreError unless every file is the one of its done-mark."""
        self.warehouse.fetch_missing(files)
        for path, (row, marked) in files.items():
            with self.warehouse.naming():
                try:
                    hold(path, row, marked, self.mend())
                except StoreError:
                    if not self.warehouse.mirrored:
                        raise
                    # What is broken may be the mirror's alone.
                    hold(self.warehouse.fetch(path), row, marked, self.mend())


def give_back() -> None:
    """Return to the system what freed tables held: a long run then needs no more memory than its largest stage."""
    pa.default_memory_pool().release_unused()


@cache
def _sweep(folder: Path) -> None:
    """Remove what a killed writer left half-written in a folder of a run that no other process writes to."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def pairs(table: pa.Table) -> list[tuple[Any, Any]]:
    """The rows of a table of two columns."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def counted(run: Run, ref: TableRef, column: str) -> dict[str, int]:
    """Value -> number of its rows, for a column of texts without nulls; StoreError if they are not all there."""
    counts: Counter[str] = Counter()
    for batch in run.batches(ref, [column]):
        for row in pc.value_counts(batch[column]).to_pylist():
            counts[row["values"]] += row["counts"]
    return dict(counts)
