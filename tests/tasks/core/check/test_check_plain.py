"""What Great Expectations and DuckDB find in tables, a few lines of pandas and Arrow find as well: they stand in for
them in flow tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import plain_checks
from builders.plain_checks import plain_across, plain_validator

from rubricflow.tasks.core.check import checkpoint, suite
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Responses


def damaged(row: type[Row], luck: random.Random, rows: int) -> pa.Table:
    """Rows of luck: each value is one that a rule allows, one that none does, or null."""
    columns = {}
    for field in (schema(row).field(name) for name in suite.columns(row)):
        allowed: list[Any] = [None]
        of = [rule for rule in suite.rules(row) if rule.columns[0] == field.name and rule.value is not None]
        if pa.types.is_string(field.type):
            allowed += ["", " \n", "word", *(value for rule in of for value in rule.value)]
        elif pa.types.is_integer(field.type):
            allowed += [-1, 0, 1, 2, 10**6]
        elif pa.types.is_floating(field.type):
            allowed += [-0.5, 0.0, 0.5, 1.0, 1.5, float("inf"), float("-inf"), float("nan")]
        elif pa.types.is_boolean(field.type):
            allowed += [True, False]
        weights = [luck.random() ** 3 + 0.01 for _ in allowed]
        columns[field.name] = pa.array(luck.choices(allowed, weights, k=rows), field.type)
    return pa.table(columns)


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.table)
def test_great_expectations_finds_what_a_few_lines_of_pandas_find(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = damaged(row, random.Random(row.table), rows=50)
    found = suite.check_values(row, table.to_batches())
    monkeypatch.setattr(suite, "_validator", plain_validator)
    assert found == suite.check_values(row, table.to_batches())
    assert any(finding.unexpected for finding in found)


@pytest.mark.parametrize("among", [5, 10**9])
@pytest.mark.parametrize("known", [None, 0, 1, 2])
def test_duckdb_finds_across_files_what_arrow_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, among: int, known: int | None
) -> None:
    """Keys that come twice or not, and items of which so many are there."""
    luck, paths = random.Random(among), {name: tmp_path / f"{name}.parquet" for name in ("own", "other", "items")}
    for name in ("own", "other"):
        keys = [str(luck.randrange(among)) for _ in range(6)]
        pq.write_table(pa.table({"response_id": keys, "item_id": ["i0", "i1", None] * 2}), paths[name])
    pq.write_table(pa.table({"item_id": pa.array([f"i{n}" for n in range(known or 0)], pa.string())}), paths["items"])
    parts = {"responses": [paths["own"], paths["other"]], "items": [paths["items"]] if known is not None else []}
    given = Responses, checkpoint.footers([paths["own"]]), parts.__getitem__, "d", lambda: duckdb.connect()
    found = checkpoint.check_across(*given)
    is_broken = any(finding.unexpected for finding in found)
    assert is_broken == (among == 5 or known != 2)
    asked = []
    monkeypatch.setattr(plain_checks, "_REAL", [None, None, lambda *_: asked.append(1) or found])
    assert (plain_across(*given), bool(asked)) == (found, is_broken)
