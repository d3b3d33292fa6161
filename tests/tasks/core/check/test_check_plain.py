"""What Great Expectations finds in a table, a few lines of pandas find as well: they stand in for it in flow tests."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from builders.plain_checks import plain_validator

from rubricflow.tasks.core.check import suite
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments


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


@pytest.mark.parametrize("row", [Responses, Units, Judgments, Gradings, Predictions], ids=lambda row: row.table)
def test_great_expectations_finds_what_a_few_lines_of_pandas_find(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = damaged(row, random.Random(row.table), rows=50)
    found = suite.check_values(row, table.to_batches())
    monkeypatch.setattr(suite, "_validator", plain_validator)
    assert found == suite.check_values(row, table.to_batches())
    assert any(finding.unexpected for finding in found)
