"""A table held against its contract: its findings, stored, and found again where its content is the same; the rows
that it refused, for `quarantine`; and the numbers of a stage's checkpoint.

The second half has the rules that no batch of rows can show. Types are those of the Parquet files: Great Expectations
would look at the frame it is given, which is cast already. Keys and references are asked in DuckDB: column names go in
as quoted identifiers, values not at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.check.docs import keep
from rubricflow.tasks.core.check.suite import KEYS, REFUSED, Finding, broken, check_values, columns, key_text, shown
from rubricflow.tasks.core.contracts.schema import Row, TableRef, expectations, schema
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.contracts.tables.evaluation import Checks, Quarantine
from rubricflow.tasks.core.store.files import aside, pattern
from rubricflow.tasks.core.store.part import FORMAT as PARQUET
from rubricflow.tasks.core.store.part import open_parquet
from rubricflow.tasks.core.store.warehouse import Run

MEMORY = "256MB"
"""What DuckDB may hold; beyond it spills to disk."""
READ = 8_192
"""Rows read at a time: before they are reduced they may hold long texts."""
Parts = Callable[[str], Sequence[Path]]
"""Name of a table → all files of it that the run has written."""


def stored_findings(run: Run, refs: Iterable[TableRef]) -> list[Finding]:
    """The findings of tables, stored; none anew where an earlier run of this study found this content in order."""
    with ExitStack() as stack:
        # One database for all of them: to open one takes longer than to check a small table.
        database = cache(lambda: stack.enter_context(_database(run.warehouse.root)))
        return list(chain.from_iterable(_stored(run, ref, database) for ref in refs))


@contextmanager
def _database(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB, which puts aside in the warehouse's folder what MEMORY does not hold; StoreError where it cannot."""
    with (
        aside(warehouse, "check") as spill,
        closing(duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})) as database,
    ):
        yield database


def _stored(run: Run, ref: TableRef, database: Callable[[], duckdb.DuckDBPyConnection]) -> list[Finding]:
    stage = f"check-{ref.stage}"
    if run.done(stage, ref.table) and (stored := _settled(run, ref)) is not None:
        return stored
    findings, files = check(run, ref, database)
    tables: dict[type[Row], list[dict[str, object]]] = {Checks: [finding.record(ref.stage) for finding in findings]}
    if rows := refused(findings, ref.stage, files):
        tables[Quarantine] = rows
    keep(run, ref.stage, findings)
    run.commit(stage, ref.table, tables)
    return findings


def check(
    run: Run, ref: TableRef, database: Callable[[], duckdb.DuckDBPyConnection]
) -> tuple[list[Finding], list[Footer]]:
    """Every rule of one table, and its files; types first, for with a wrong one the other rules cannot be read."""
    row, files = BY_NAME[ref.table], []
    # The finished shards' files, as the store reads them: that is what places are counted over.
    paths = run.files(ref.table, ref.stage) or sorted((run.warehouse.root / ref.path).glob("*.parquet"))
    try:
        files = footers(paths)
        types = check_types(row, files)
        wrong = any(finding.outcome != "passed" for finding in types)
        values = [] if wrong else check_values(row, batches(files, columns(row)))
    except (OSError, ValueError) as error:  # a file that is no Parquet, or is cut off; Arrow's errors are ValueErrors
        cause = f"{type(error).__name__}: {error}"
        return [Finding(row, rule, 0, error=cause) for rule in expectations(row)], files
    if wrong:
        cause = "not run: a column of the table has another type"
        others = [Finding(row, rule, 0, error=cause) for rule in expectations(row) if rule.rule != "type"]
        return types + others, files

    def every_file_of(table: str) -> list[Path]:
        if run.warehouse.mirrored:
            return list(chain.from_iterable(run.files(table, stage) for stage in run.stages(BY_NAME[table])))
        return sorted((run.folder / table).glob("*/*.parquet"))

    findings = types + values + check_across(row, files, every_file_of, ref.digest, database)
    rows = sum(file.rows for file in files)
    lost = None if rows == ref.rows else f"the files hold {rows:,} rows, their done-marks say {ref.rows:,}"
    return [replace(finding, error=finding.error or lost) for finding in findings], files


def _settled(run: Run, ref: TableRef) -> list[Finding] | None:
    """The stored findings, if they are of this content and contract, nothing in them stops a run and all could run."""
    # Its own shard alone: another process may be checking the stage's other tables right now.
    row = BY_NAME[ref.table]
    checks = run.shard(Checks, f"check-{ref.stage}", ref.table).to_pylist()
    stored = {(record["rule"], record["column"]): record for record in checks}
    findings = []
    for rule in expectations(row):
        record = stored.pop((rule.rule, ", ".join(rule.columns)), None)
        if record is None:
            return None
        finding = Finding(row, rule, record["rows"], record["unexpected"], tuple(record["first"]), digest=ref.digest)
        same_rows = rule.severity == "warning" or finding.rows == ref.rows
        if not same_rows or broken([finding]) or finding.record(ref.stage) != record:
            return None
        findings.append(finding)
    return None if stored else findings


LONGEST_KEY = 1_000
"""Characters of a row's key that are kept."""
LONGEST_CONTENT = 10_000
"""Characters of a row's JSON that are kept."""


def refused(findings: Iterable[Finding], stage: str, files: Sequence[Footer]) -> list[dict[str, object]]:
    """The rows of a table that break a rule which stops the run, REFUSED at most for each rule; a key that comes again
    is numbered."""
    findings_with_rows = [finding for finding in broken(findings) if finding.places]
    if not findings_with_rows:
        return []
    places = sorted(set(chain.from_iterable(finding.places for finding in findings_with_rows)))
    rows_by_place = _rows_at(files, places, findings_with_rows[0].row.key)
    records: list[dict[str, object]] = []
    for finding in findings_with_rows:
        times: Counter[str] = Counter()
        for row_key, content in (rows_by_place[place] for place in finding.places):
            times[row_key] += 1
            records.append(
                {
                    "stage": stage,
                    "table_name": finding.row.table,
                    "row_key": row_key + (f" ({times[row_key]})" if times[row_key] > 1 else ""),
                    "rule": finding.expectation.rule,
                    "column": ", ".join(finding.expectation.columns),
                    "reason": finding.demand,
                    "content": content,
                }
            )
    return records


def _rows_at(files: Sequence[Footer], places: Sequence[int], key: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Place, counted over all files → the key and the content of the row there. places: in order."""
    rows: dict[int, tuple[str, str]] = {}
    found = ds.dataset([file.path for file in files], format=PARQUET).take(places)
    for place, row in zip(places, found.to_pylist(maps_as_pydicts="lossy"), strict=True):
        row_key = shown(" / ".join(str(row.get(name)) for name in key), LONGEST_KEY)
        rows[place] = row_key, json.dumps(row, ensure_ascii=False, default=str)[:LONGEST_CONTENT]
    return rows


class Tally(NamedTuple):
    """Rows that were refused, and expectations that warn."""

    quarantined: int
    warnings: int

    def __str__(self) -> str:
        return f"{self.quarantined:,} quarantined, {self.warnings:,} warning{'' if self.warnings == 1 else 's'}"


def tally(run: Run, stage: str) -> Tally:
    """The numbers of a stage's checkpoint; zeros where it was not checked yet."""
    checkpoint = f"check-{stage}"
    if not run.shards(checkpoint):
        return Tally(0, 0)
    quarantined = sum(part.rows for part in run.parts(Quarantine, checkpoint).values())
    checks = run.table(Checks, checkpoint, ["severity", "outcome"]).to_pylist()
    return Tally(quarantined, sum(row["severity"] == "warning" and row["outcome"] != "passed" for row in checks))


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


def batches(files: Sequence[Footer], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all files, one file after the other.

    Arrow's scanner would read on while a batch is checked, and hold a large part of the table.
    """
    for file in files:
        with open_parquet(file.path) as parquet:
            yield from parquet.iter_batches(READ, columns=columns)


def check_types(row: type[Row], files: Sequence[Footer]) -> list[Finding]:
    """Every column's type in every file; all rows of a file break the rule together."""
    rows = sum(file.rows for file in files)
    findings = []
    for rule in expectations(row):
        if rule.rule == "type":
            column = rule.columns[0]
            wrong = [file for file in files if file.types.get(column) != schema(row).field(column).type]
            # A file without rows is as wrong as any, and only a count above 0 is a failure.
            unexpected = max(1, sum(file.rows for file in wrong)) if wrong else 0
            actual = f"{wrong[0].types.get(column, 'no such column')} in {wrong[0].path.name}" if wrong else ""
            findings.append(Finding(row, rule, max(rows, unexpected), unexpected, actual=actual))
    return findings


def check_across(
    row: type[Row],
    files: Sequence[Footer],
    parts: Parts,
    digest: str,
    database: Callable[[], duckdb.DuckDBPyConnection],
) -> list[Finding]:
    """The key is unique among all the run's rows of the table; every reference occurs in the table it names."""
    findings = []
    rows = sum(file.rows for file in files)
    for rule in expectations(row):
        if rule.rule in ("unique", "references"):
            finding = Finding(row, rule, rows, digest=digest)
            try:
                finding = _found(database(), finding, files, parts) if files else finding
            except (duckdb.Error, OSError) as error:
                finding = replace(finding, error=f"{type(error).__name__}: {error}")
            findings.append(finding)
    return findings


def _found(connection: duckdb.DuckDBPyConnection, finding: Finding, files: Sequence[Footer], parts: Parts) -> Finding:
    """The finding with the rows of this part that break its rule."""

    def view(name: str, paths: Sequence[Path]) -> None:
        patterns = list(map(pattern, paths))
        rows = connection.read_parquet(patterns, filename=True, file_row_number=True, hive_partitioning=False)
        rows.create_view(name, replace=True)

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
    made = connection.execute(f"CREATE OR REPLACE TEMP TABLE found AS SELECT {columns} FROM own {broken}")
    unexpected = made.fetchall()[0][0]
    if not unexpected:
        return finding
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
