"""The rule `type`, on the schemas that the Parquet files themselves carry.

Great Expectations would look at the frame it is given, which is cast already and so always of the right type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path

import pyarrow as pa

from rubricflow.tasks.core.check.finding import KEYS, REFUSED, Finding, key_text
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations, schema
from rubricflow.tasks.core.store.part import open_parquet

READ = 8_192
"""Rows read at a time: before they are reduced they may hold long texts."""


@dataclass(frozen=True)
class Footer:
    """What a Parquet file says of itself."""

    path: Path
    schema: pa.Schema
    rows: int


def footers(files: Sequence[Path]) -> list[Footer]:
    """The schema and the number of rows of each file."""
    read = []
    for path in files:
        with open_parquet(path) as file:
            read.append(Footer(path, file.schema_arrow, file.metadata.num_rows))
    return read


def batches(files: Sequence[Footer], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all files, one file after the other.

    Arrow's scanner would read on while a batch is checked, and hold a large part of the table.
    """
    for file in files:
        with open_parquet(file.path) as parquet:
            yield from parquet.iter_batches(READ, columns=columns)


def check_types(row: type[Row], files: Sequence[Footer]) -> list[Finding]:
    """Every column's type in every file."""
    return [_check(row, rule, files) for rule in expectations(row) if rule.rule == "type"]


def _check(row: type[Row], rule: Expectation, files: Sequence[Footer]) -> Finding:
    column, rows = rule.columns[0], sum(file.rows for file in files)
    expected = schema(row).field(column).type
    wrong = [file for file in files if _type(file, column) != expected]
    if not wrong:
        return Finding(row, rule, rows)
    kind = _type(wrong[0], column)
    instead = f"{'no such column' if kind is None else kind} in {wrong[0].path.name}"
    # a file without rows is as wrong as any, and only a count above 0 is a failure
    unexpected = max(1, sum(file.rows for file in wrong))
    return Finding(row, rule, max(rows, 1), unexpected, _keys(row, wrong[0]), _places(files, wrong), actual=instead)


def _places(files: Sequence[Footer], wrong: Sequence[Footer]) -> tuple[int, ...]:
    starts = accumulate((file.rows for file in files), initial=0)
    places = (range(start, start + file.rows) for start, file in zip(starts, files, strict=False) if file in wrong)
    return tuple(islice(chain.from_iterable(places), REFUSED))


def _type(file: Footer, column: str) -> pa.DataType | None:
    index = file.schema.get_field_index(column)
    return file.schema.field(index).type if index >= 0 else None


def _keys(row: type[Row], file: Footer) -> tuple[str, ...]:
    if not set(row.key) <= set(file.schema.names):
        return ()
    with open_parquet(file.path) as parquet:
        batch = next(parquet.iter_batches(KEYS, columns=list(row.key)), None)
    rows = batch.to_pylist() if batch is not None else []
    return tuple(key_text([record[name] for name in row.key]) for record in rows)
