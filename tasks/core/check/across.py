"""Rules that no batch of rows can show: a column's type, a key's uniqueness, and references to other tables.

Types are those of the Parquet files: Great Expectations would look at the frame it is given, which is cast already.
Keys and references are asked in DuckDB: column names go in as quoted identifiers, values not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.check.finding import KEYS, REFUSED, Finding, key_text
from rubricflow.tasks.core.contracts.schema import Row, expectations, schema
from rubricflow.tasks.core.store.catalogue import pattern
from rubricflow.tasks.core.store.files import aside
from rubricflow.tasks.core.store.part import open_parquet

MEMORY = "256MB"
"""What DuckDB may hold; beyond it spills to disk."""
READ = 8_192
"""Rows read at a time: before they are reduced they may hold long texts."""
Parts = Callable[[str], Sequence[Path]]
"""Name of a table → all files of it that the run has written."""


class Footer(NamedTuple):
    """What a Parquet file says of itself."""

    path: Path
    types: Mapping[str, pa.DataType]
    """Of its columns."""
    rows: int
    start: int
    """The place of its first row, counted over all files."""


def footers(files: Sequence[Path]) -> list[Footer]:
    """The columns and the number of rows of each file."""
    read, start = [], 0
    for path in files:
        with open_parquet(path) as file:
            columns, rows = file.schema_arrow, file.metadata.num_rows
        read.append(Footer(path, dict(zip(columns.names, columns.types, strict=True)), rows, start))
        start += rows
    return read


def batches(files: Sequence[Footer], columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of all files, one file after the other.

    Arrow's scanner would read on while a batch is checked, and hold a large part of the table.
    """
    for file in files:
        with open_parquet(file.path) as parquet:
            yield from parquet.iter_batches(READ, columns=columns)


def check_types(row: type[Row], files: Sequence[Footer]) -> list[Finding]:
    """Every column's type in every file; all rows of a file break the rule together."""
    rows, findings = sum(file.rows for file in files), []
    for rule in expectations(row):
        if rule.rule == "type":
            column = rule.columns[0]
            wrong = [file for file in files if file.types.get(column) != schema(row).field(column).type]
            # A file without rows is as wrong as any, and only a count above 0 is a failure.
            unexpected = max(1, sum(file.rows for file in wrong)) if wrong else 0
            actual = f"{wrong[0].types.get(column, 'no such column')} in {wrong[0].path.name}" if wrong else ""
            findings.append(Finding(row, rule, max(rows, unexpected), unexpected, actual=actual))
    return findings


def check_across(row: type[Row], files: Sequence[Footer], parts: Parts, digest: str, warehouse: Path) -> list[Finding]:
    """The key is unique among all the run's rows of the table; every reference occurs in the table it names.

    warehouse: its folder, where DuckDB puts aside what MEMORY does not hold; StoreError where nothing can be put there.
    """
    findings, rows = [], sum(file.rows for file in files)
    with aside(warehouse, "check") as spill:
        for rule in expectations(row):
            if rule.rule in ("unique", "references"):
                finding = Finding(row, rule, rows, digest=digest)
                try:
                    with closing(
                        duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})
                    ) as asked:
                        findings.append(_found(asked, finding, files, parts) if files else finding)
                except (duckdb.Error, OSError) as error:
                    findings.append(Finding(row, rule, rows, error=f"{type(error).__name__}: {error}"))
    return findings


def _found(connection: duckdb.DuckDBPyConnection, finding: Finding, files: Sequence[Footer], parts: Parts) -> Finding:
    """The finding with the rows of this part that break its rule."""

    def view(name: str, paths: Sequence[Path]) -> None:
        patterns = list(map(pattern, paths))
        rows = connection.read_parquet(patterns, filename=True, file_row_number=True, hive_partitioning=False)
        rows.create_view(name)

    row, rule = finding.row, finding.expectation
    key = ", ".join(map(_name, row.key))
    view("own", [file.path for file in files])
    if rule.rule == "unique":
        own = {file.path.resolve() for file in files}
        others = [path for path in parts(row.table) if path.resolve() not in own]
        if others:
            view("others", others)
        every = f"SELECT {key} FROM own" + (f" UNION ALL SELECT {key} FROM others" if others else "")
        same = " AND ".join(f"own.{_name(column)} IS NOT DISTINCT FROM shared.{_name(column)}" for column in row.key)
        shared = f"SELECT {key} FROM ({every}) GROUP BY ALL HAVING count(*) > 1"
        points_to, broken = "NULL", f"SEMI JOIN ({shared}) shared ON {same}"
    else:
        table, target = rule.value
        points_to, broken = _name(rule.columns[0]), ""
        if parents := parts(table):
            view("parents", parents)
            broken = f"ANTI JOIN parents ON own.{points_to} = parents.{_name(target)} "
        broken += f"WHERE own.{points_to} IS NOT NULL"
    columns = f"{key}, {points_to} AS points_to, filename, file_row_number"
    connection.execute(f"CREATE TEMP TABLE found AS SELECT {columns} FROM own {broken}")
    unexpected = connection.sql("SELECT count(*) FROM found").fetchall()[0][0]
    first = connection.sql(f"SELECT DISTINCT {key}, points_to FROM found ORDER BY ALL LIMIT {KEYS}").fetchall()
    places = f"SELECT filename, file_row_number FROM found ORDER BY ALL LIMIT {REFUSED}"
    starts = {str(file.path): file.start for file in files}
    return replace(
        finding,
        unexpected=unexpected,
        first=tuple(key_text(names, points) for *names, points in first),
        places=tuple(starts[path] + line for path, line in connection.sql(places).fetchall()),
    )


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
