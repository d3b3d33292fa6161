"""The shards of a run: their files, and the done-marks by which they count.

A shard's files are written first and its done-mark last, so a shard exists whole or not at all, and a killed run
continues where it stopped. In a folder one run is written to by one process at a time. In a bucket every attempt has
files of its own, and the first of several writers sets the mark.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import Row, conform
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.files import cannot_write
from rubricflow.tasks.core.store.home import Home
from rubricflow.tasks.core.store.listing import DONE, is_unlisted, listed_marks, listed_paths, note_mark, single_mark
from rubricflow.tasks.core.store.part import (
    LAST,
    DoneMark,
    MarkedTable,
    as_parquet,
    content,
    hold,
    mark_bytes,
    read_mark,
)

Rows: TypeAlias = pa.Table | Iterable[Mapping[str, object]]
Files: TypeAlias = Mapping[str, memoryview]
"""Name of a table → its file's bytes."""
TableMarks: TypeAlias = dict[str, MarkedTable]
"""Name of a table → what its done-mark says of it."""
MarkedFiles: TypeAlias = Mapping[Path, tuple[type[Row], MarkedTable]]
"""File → its table, and what its done-mark says of it."""


@dataclass(frozen=True)
class Shards:
    """What a run has finished."""

    warehouse: Home
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
        mark = self._single_mark(stage, shard)
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

    def commit(self, stage: str, shard: str, tables: Mapping[type[Row], Rows]) -> None:
        """Write one shard whole: every table conformed to its contract, then the done-mark.

        A finished shard of the same content stays as it is: another run of the study may be reading it.
        """
        files, marked = {}, {}
        for row, rows in tables.items():
            table = conform(row, rows)
            files[row.table] = file = as_parquet(table)
            digest = hashlib.sha256(file).hexdigest()
            marked[row.table] = MarkedTable(rows=table.num_rows, content=content(row, table), sha256=digest)
        with self.alone():
            if not self._stood(stage, shard, marked):
                write = self._write_there if self.warehouse.mirrored else self._write_here
                write(stage, shard, files, marked)
        give_back()

    def _write_here(self, stage: str, shard: str, files: Files, marked: TableMarks) -> None:
        mark = self._mark(stage, shard)
        paths = {self.file(table, stage, shard): file for table, file in files.items()}
        # Without its mark first: between other files and an old mark a kill would leave a shard that is neither.
        mark.unlink(missing_ok=True)
        for folder in {path.parent for path in (*paths, mark)}:
            _sweep(folder)
        for path, file in paths.items():
            self.warehouse.write(path, file)
        others = tuple(path.stem for path in self._mark_files(stage)) if shard == LAST else ()
        self.warehouse.write(mark, mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=marked, others=others)))

    def _write_there(self, stage: str, shard: str, files: Files, marked: TableMarks) -> None:
        """Files under names that nobody else uses, then the mark, which the first of several writers sets."""
        attempt, path = secrets.token_hex(6), self._mark(stage, shard)
        for table, file in files.items():
            self.warehouse.write(self.file(table, stage, shard, attempt), file)
        others = tuple(name for name in self._done_marks(stage) if name != LAST) if shard == LAST else ()
        mark = mark_bytes(DoneMark(of=f"{stage}/{shard}", tables=marked, others=others, attempt=attempt))
        if self.warehouse.write_new(path, mark):
            self._note(path, mark)
        elif not self._stands(stage, shard, marked):
            self.warehouse.write(path, mark)
            self._note(path, mark)

    def shards(self, stage: str) -> dict[str, dict[str, MarkedTable]]:
        """The finished shards of a stage by name, each with what it holds of each table.

        StoreError for a done-mark that cannot be read, or one that is lost of those that the stage's last one names.
        """
        return {shard: mark.tables for shard, mark in self._done_marks(stage).items()}

    def marks(self) -> list[Path]:
        """The done-marks of all stages, `<stage>/<shard>.json`."""
        if self.warehouse.mirrored:
            with self.warehouse.naming():
                return listed_paths(self.warehouse, self.folder, self.mend())
        return sorted((self.folder / DONE).glob("*/*.json"))

    def file(self, table: str, stage: str, shard: str, attempt: str = "") -> Path:
        """Where a shard's rows of a table are; attempt: what its done-mark says of it."""
        return self._folder(table, stage) / f"{shard}{f'.{attempt}' if attempt else ''}.parquet"

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

    def _stood(self, stage: str, shard: str, marked: TableMarks) -> bool:
        """Whether it `_stands` before anything is written of it; a bucket is not asked for what its listing lacks, as
        its done-mark will be set only where there is none."""
        unlisted = self.warehouse.mirrored and is_unlisted(self.folder, self._mark(stage, shard))
        return not unlisted and self._stands(stage, shard, marked)

    def _stands(self, stage: str, shard: str, marked: TableMarks) -> bool:
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

    def _mark_of_finished(self, stage: str, shard: str) -> DoneMark:
        """The mark of a finished shard, of a stage's last one only where the others are there too; StoreError where it
        is not finished."""
        mark = self._done_marks(stage).get(shard) if shard == LAST else self._single_mark(stage, shard)
        if mark is None:
            raise StoreError(f"run {self.run_id}: shard '{shard}' of stage '{stage}' is not finished; {self.mend()}")
        return mark

    def _single_mark(self, stage: str, shard: str) -> DoneMark | None:
        """The mark of a shard; None where there is none."""
        path = self._mark(stage, shard)
        if not self.warehouse.mirrored:
            return read_mark(path, self.mend()) if path.exists() else None
        with self.warehouse.naming():
            return single_mark(self.warehouse, self.folder, path, self.mend())

    def _note(self, path: Path, mark: bytes) -> None:
        """A mark that this process has written into a bucket."""
        note_mark(self.warehouse, self.folder, path, mark, self.mend())

    def _done_marks(self, stage: str) -> dict[str, DoneMark]:
        """The marks of a stage by the name of their shard, in name order; see `shards`."""
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
        with self.warehouse.naming():
            return listed_marks(self.warehouse, self.folder, folder, self.mend())

    def _files(self, stage: str, marks: Mapping[str, DoneMark], row: type[Row] | None = None) -> MarkedFiles:
        """The files that marks speak of, of one table or of all, each with its table and what its mark says."""
        return {
            self.file(table, stage, shard, mark.attempt): (BY_NAME[table], marked)
            for shard, mark in marks.items()
            for table, marked in mark.tables.items()
            if row is None or row.table == table
        }

    def _hold(self, files: MarkedFiles) -> None:
        """StoreError unless every file is the one that its done-mark speaks of."""
        house = self.warehouse
        house.fetch_missing(files)
        for path, (row, marked) in files.items():
            with house.naming():
                try:
                    hold(path, row, marked, self.mend())
                except StoreError:
                    if not house.mirrored:
                        raise
                    # What is broken may be the mirror's alone.
                    hold(house.fetch(path), row, marked, self.mend())

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.place} and grade the study again (replies that arrived are kept, and not asked for again)"

    def _folder(self, table: str, stage: str) -> Path:
        return self.folder / table / stage

    def _mark(self, stage: str, shard: str) -> Path:
        return self.folder / DONE / stage / f"{shard}.json"

    def _mark_files(self, stage: str) -> list[Path]:
        return sorted((self.folder / DONE / stage).glob("*.json"))


def give_back() -> None:
    """Return to the system what freed tables held: a long run then needs no more memory than its largest stage."""
    pa.default_memory_pool().release_unused()


@cache
def _sweep(folder: Path) -> None:
    """Remove what a killed writer left half-written in a folder of a run that is written to by nobody else."""
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)
