"""Rules that no batch of rows can show: a column's type, a key's uniqueness, and references to other tables.

Types are those of the Parquet files: Great Expectations would look at the frame it is given, which is cast already.
Keys and references are asked in DuckDB: file names go in as parameters, column names as quoted identifiers, values not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.check.finding import KEYS, REFUSED, Finding, key_text
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations, schema
from rubricflow.tasks.core.store.catalogue import pattern
from rubricflow.tasks.core.store.files import aside
from rubricflow.tasks.core.store.part import open_parquet

MEMORY = "256MB"
"""What DuckDB may hold; beyond it spills to disk."""
PLACE = "filename AS file, file_row_number AS line"
FIRST = f"ORDER BY file, line LIMIT {REFUSED}"
Files = Sequence[Path]
Parts = Callable[[str], Files]
"""Name of a table → all files of it that the run has written."""


def check_across(row: type[Row], files: Sequence[Footer], parts: Parts, digest: str, warehouse: Path) -> list[Finding]:
    """The key is unique among all the run's rows of the table; every reference occurs in the table it names.

    warehouse: its folder, where DuckDB puts aside what MEMORY does not hold; StoreError where nothing can be put there.
    """
    findings, rows = [], sum(file.rows for file in files)
    with aside(warehouse, "check") as spill:

        def ask(query: str, named: Mapping[str, Files]) -> list[tuple[Any, ...]]:
            with closing(duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})) as connection:
                patterns = {parameter: list(map(pattern, paths)) for parameter, paths in named.items()}
                return connection.execute(query, patterns).fetchall()

        for rule in expectations(row):
            if rule.rule in ("unique", "references"):
                find = _duplicates if rule.rule == "unique" else _dangling
                try:
                    unexpected, first, places = find(row, rule, files, parts, ask) if files else (0, (), ())
                    finding = Finding(row, rule, rows, unexpected, first, places, digest=digest)
                except (duckdb.Error, OSError) as error:
                    finding = Finding(row, rule, rows, error=f"{type(error).__name__}: {error}")
                findings.append(finding)
    return findings


Unexpected = tuple[int, tuple[str, ...], tuple[int, ...]]
"""How many rows, the keys of the first of them, and places."""
Ask = Callable[[str, Mapping[str, Files]], list[tuple[Any, ...]]]


def _duplicates(row: type[Row], rule: Expectation, own_files: Sequence[Footer], parts: Parts, ask: Ask) -> Unexpected:
    """Rows of this part that share their key with another row, of this part or of another stage's."""
    key, paths = _names(rule.columns), [file.path for file in own_files]
    own_paths = {path.resolve() for path in paths}
    others = [path for path in parts(row.table) if path.resolve() not in own_paths]
    files = {"own": paths} | ({"others": others} if others else {})
    union = f"UNION ALL SELECT {key}, 0, '', 0 FROM {_read('others')}" if others else ""
    # Equal keys have equal hashes, and to group those takes a fraction of the memory: only such keys are looked at.
    keys = f"""
        WITH keys AS (SELECT {key}, 1 AS mine, {PLACE} FROM {_read("own", True)} {union}),
        suspect AS (SELECT hash({key}) AS h FROM keys GROUP BY h HAVING count(*) > 1)
    """
    if not ask(f"{keys} SELECT 1 FROM suspect LIMIT 1", files):
        return 0, (), ()
    shared = f"""
        {keys}, close AS (SELECT * FROM keys WHERE hash({key}) IN (SELECT h FROM suspect)),
        shared AS (SELECT {key}, sum(mine) AS n FROM close GROUP BY {key} HAVING count(*) > 1 AND sum(mine) > 0)
    """
    first_keys = f"SELECT {key}, (SELECT sum(n) FROM shared) FROM shared ORDER BY {key} LIMIT {KEYS}"
    shared_keys = ask(f"{shared} {first_keys}", files)
    same = " AND ".join(f"close.{_name(column)} IS NOT DISTINCT FROM shared.{_name(column)}" for column in rule.columns)
    places = f"{shared} SELECT file, line FROM close JOIN shared ON {same} WHERE mine = 1 {FIRST}"
    first = tuple(key_text(line[:-1]) for line in shared_keys)
    return int(shared_keys[0][-1]) if shared_keys else 0, first, _places(ask(places, files), own_files)


def _dangling(row: type[Row], rule: Expectation, own_files: Sequence[Footer], parts: Parts, ask: Ask) -> Unexpected:
    """Rows whose value is not found where it points to."""
    table, target = rule.value
    key, column, parents = _names(row.key), _name(rule.columns[0]), parts(table)
    files = {"own": [file.path for file in own_files]} | ({"parents": parents} if parents else {})
    referenced = f"SELECT {_name(target)} FROM {_read('parents')} WHERE {_name(target)} IS NOT NULL"
    unknown_only = f"AND {column} NOT IN ({referenced})"
    dangling = f"""
        WITH dangling AS (SELECT {key}, {column} AS points_to, {PLACE}
                          FROM {_read("own", True)} WHERE {column} IS NOT NULL {unknown_only if parents else ""})
    """
    first_rows = f"SELECT {key}, points_to, (SELECT count(*) FROM dangling) FROM dangling ORDER BY {key} LIMIT {KEYS}"
    dangling_keys = ask(f"{dangling} {first_rows}", files)
    places = ask(f"{dangling} SELECT file, line FROM dangling {FIRST}", files) if dangling_keys else []
    first = tuple(key_text(line[:-2], line[-2]) for line in dangling_keys)
    return int(dangling_keys[0][-1]) if dangling_keys else 0, first, _places(places, own_files)


def _places(rows: Sequence[tuple[Any, ...]], own_files: Sequence[Footer]) -> tuple[int, ...]:
    """(file, row of the file) as places counted over all files."""
    starts = {str(file.path): file.start for file in own_files}
    return tuple(starts[file] + line for file, line in rows)


def _read(parameter: str, places: bool = False) -> str:
    more = ", filename = true, file_row_number = true" if places else ""
    return f"read_parquet(${parameter}, hive_partitioning = false{more})"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(_name, columns))


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


READ = 8_192
"""Rows read at a time: before they are reduced they may hold long texts."""


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
    """Every column's type in every file."""
    rows, findings = sum(file.rows for file in files), []
    for rule in expectations(row):
        if rule.rule != "type":
            continue
        column = rule.columns[0]
        wrong = [file for file in files if file.types.get(column) != schema(row).field(column).type]
        if not wrong:
            findings.append(Finding(row, rule, rows))
            continue
        first, keys = wrong[0], []
        if first.types.keys() >= set(row.key):
            with open_parquet(first.path) as parquet:
                for batch in islice(parquet.iter_batches(KEYS, columns=list(row.key)), 1):
                    keys = batch.to_pylist()
        # a file without rows is as wrong as any, and only a count above 0 is a failure
        unexpected = max(1, sum(file.rows for file in wrong))
        places = chain.from_iterable(range(file.start, file.start + file.rows) for file in wrong)
        finding = Finding(
            row,
            rule,
            max(rows, 1),
            unexpected,
            first=tuple(key_text([record[name] for name in row.key]) for record in keys),
            places=tuple(islice(places, REFUSED)),
            actual=f"{first.types.get(column, 'no such column')} in {first.path.name}",
        )
        findings.append(finding)
    return findings
