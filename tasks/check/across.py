"""Rules that no single batch can show: a key's uniqueness, and references to other tables.

DuckDB over the Parquet files: file names go in as parameters, column names as quoted identifiers, values not at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from tasks.check.finding import KEYS, Finding, key_text
from tasks.contracts.table import Expectation, Row, expectations
from tasks.store.catalogue import pattern

MEMORY = "512MB"
"""What DuckDB may hold; beyond it spills to disk."""
Files = Sequence[Path]
Parts = Callable[[str], Files]
"""Name of a table → all files of it that the run has written."""


def check_across(row: type[Row], own: Files, parts: Parts, rows: int, digest: str) -> list[Finding]:
    """The key is unique among all the run's rows of the table; every reference occurs in the table it names."""
    found = []
    for rule in expectations(row):
        if rule.rule in ("unique", "references"):
            find = _duplicates if rule.rule == "unique" else _dangling
            try:
                unexpected, first = find(row, rule, own, parts) if own else (0, ())
                found.append(Finding(row, rule, rows, unexpected, first, digest=digest))
            except (duckdb.Error, OSError) as error:
                found.append(Finding(row, rule, rows, error=f"{type(error).__name__}: {error}"))
    return found


Found = tuple[int, tuple[str, ...]]


def _duplicates(row: type[Row], rule: Expectation, own: Files, parts: Parts) -> Found:
    """Rows of this part that share their key with another row, of this part or of another stage's."""
    key = _names(rule.columns)
    mine = {path.resolve() for path in own}
    others = [path for path in parts(row.table) if path.resolve() not in mine]
    rest = f"UNION ALL SELECT {key}, 0 FROM {_read('others')}" if others else ""
    found = _ask(
        f"""
        WITH keys AS (SELECT {key}, 1 AS mine FROM {_read("own")} {rest}),
        shared AS (SELECT {key}, sum(mine) AS n FROM keys GROUP BY {key} HAVING count(*) > 1 AND sum(mine) > 0)
        SELECT {key}, (SELECT sum(n) FROM shared) FROM shared ORDER BY {key} LIMIT {KEYS}
        """,
        {"own": own} | ({"others": others} if others else {}),
    )
    return (int(found[0][-1]) if found else 0), tuple(key_text(line[:-1]) for line in found)


def _dangling(row: type[Row], rule: Expectation, own: Files, parts: Parts) -> Found:
    """Rows whose value is not found where it points to."""
    table, target = rule.value
    key, column, parents = _names(row.key), _name(rule.columns[0]), parts(table)
    known = f"AND {column} NOT IN (SELECT {_name(target)} FROM {_read('parents')} WHERE {_name(target)} IS NOT NULL)"
    found = _ask(
        f"""
        WITH dangling AS (SELECT {key}, {column} AS points_to FROM {_read("own")}
                          WHERE {column} IS NOT NULL {known if parents else ""})
        SELECT {key}, points_to, (SELECT count(*) FROM dangling) FROM dangling ORDER BY {key} LIMIT {KEYS}
        """,
        {"own": own} | ({"parents": parents} if parents else {}),
    )
    return (int(found[0][-1]) if found else 0), tuple(key_text(line[:-2], line[-2]) for line in found)


def _ask(query: str, files: Mapping[str, Files]) -> list[tuple[Any, ...]]:
    with tempfile.TemporaryDirectory(prefix="rubricflow-check-") as spill:
        connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": spill})
        try:
            names = {parameter: [pattern(path) for path in some] for parameter, some in files.items()}
            return connection.execute(query, names).fetchall()
        finally:
            connection.close()


def _read(parameter: str) -> str:
    return f"read_parquet(${parameter}, hive_partitioning = false)"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(_name, columns))


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
