"""A warehouse of runs: `<run>/<table>/<stage>/<shard>.parquet`, and a done-mark for each finished shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.home import Home
from rubricflow.tasks.core.store.listing import DONE, listed_once
from rubricflow.tasks.core.store.part import FORMAT as PARQUET
from rubricflow.tasks.core.store.part import MarkedTable, reading
from rubricflow.tasks.core.store.shards import Rows, Shards

EXPERIMENTS, ARMS = "experiments", "arms.json"
"""Where a warehouse keeps what was made of several runs, and each experiment the ids of its arms' runs."""


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

    def begun(self) -> list[str]:
        """Ids of the runs, finished or not, by name."""
        names = self.objects.names("")
        return [name for name in names if not {"_done", "manifest.json"}.isdisjoint(self.objects.names(name))]

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
        manifests = [self.root / name / "manifest.json" for name in self.objects.names("") if not name.startswith(".")]
        self.fetch_all(manifests)
        written = {path.parent.name: json.loads(path.read_bytes())["written"] for path in manifests if path.is_file()}
        return sorted(written, key=lambda name: (written[name], name))


@dataclass(frozen=True)
class Run(Shards):
    """One run's part of the warehouse."""

    warehouse: Warehouse

    def once(self, stage: str, make: Callable[[], Mapping[type[Row], Rows]]) -> None:
        """Write a stage that has a single shard, unless it is there already."""
        if not self.done(stage, "all"):
            self.commit(stage, "all", make())

    def ref(self, row: type[Row], stage: str) -> TableRef:
        """Reference to what a stage wrote of a table; StoreError if it wrote nothing, or not all of it is there."""
        parts = self.parts(row, stage)
        if not parts:
            rule = f"stage '{stage}' holds no table '{row.table}'"
            raise StoreError(
                f"run {self.run_id}: {rule}: it was not written, or its mark _done/{stage}/all.json is lost"
            )
        rows = sum(made.rows for made in parts.values())
        high, low = (sum(made.content[half] for made in parts.values()) for half in (0, 1))
        text = f"{row.table}:{schema(row).to_string(show_field_metadata=False)}:{rows}:{high % 2**64}:{low % 2**64}"
        path = self._folder(row.table, stage).relative_to(self.warehouse.root)
        return TableRef(
            table=row.table, stage=stage, path=str(path), digest=hashlib.sha256(text.encode()).hexdigest(), rows=rows
        )

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
        """The files of a table that a stage finished, in name order, with what their done-marks say of them.

        StoreError for a file that is lost or cut off, or that is not byte for byte the one its done-mark speaks of.
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
        # Beside a finished shard, a file without a mark is what a killed writer left.
        files = self.files(ref.table, ref.stage) or sorted((self.warehouse.root / ref.path).glob("*.parquet"))
        dataset = ds.dataset(files, format=PARQUET, schema=schema(BY_NAME[ref.table]))
        rows = dataset.count_rows()
        if rows != ref.rows:
            raise StoreError(f"{ref.path} holds {rows} rows where {ref.rows} were written; {self.mend()}")
        return dataset
