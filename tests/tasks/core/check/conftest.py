"""A run whose judge has written gradings, with faults that the store would not let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.plain_checks import use_plain_checks
from builders.rows import grading, item, response

from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Judged = Callable[..., tuple[Run, TableRef]]


@pytest.fixture
def graded(tmp_path: Path) -> Judged:
    """A function (name of the warehouse, row number → what is wrong with it) → run and reference; shards of 4 rows."""

    def make(name: str = "warehouse", faults: Mapping[int, Mapping[str, Any]] | None = None, rows: int = 6) -> Any:
        run = Warehouse.open(tmp_path / name).run("one")
        responses = [response(f"r{i}", author_id="a1") for i in range(rows)]
        run.commit("ingest", "all", {Items: [item()], Responses: responses})
        folder = run.folder / "gradings" / "judge"
        folder.mkdir(parents=True)
        records = [
            grading(f"r{i}", score=float(i), trait_scores={"sense": 1.0}) | dict((faults or {}).get(i, {}))
            for i in range(rows)
        ]
        loose = pa.schema([field.with_nullable(True) for field in schema(Gradings)])
        for start in range(0, rows, 4):
            table = pa.Table.from_pylist(records[start : start + 4], schema=loose)
            pq.write_table(table, folder / f"{start:06d}.parquet")
        path = str(folder.relative_to(run.warehouse.root))
        return run, TableRef(table="gradings", stage="judge", path=path, digest="0" * 64, rows=rows)

    return make


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are held by plain pandas, as in flow tests."""
    use_plain_checks(monkeypatch)
