"""Rules that no single batch can show: a key's uniqueness, and references to other tables.

DuckDB over the Parquet files: file names go in as parameters, column names as quoted identifiers, values not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import duckdb

from rubricflow.tasks.core.check.finding import KEYS, REFUSED, Finding, key_text
from rubricflow.tasks.core.check.typed import Footer
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations
from rubricflow.tasks.core.store.catalogue import pattern
from rubricflow.tasks.core.store.files import aside

MEMORY = "256MB"
"""What DuckDB may hold; beyond it spills to disk."""
PLACE = "filename AS file, file_row_number AS line"
FIRST = f"ORDER BY file, line LIMIT {REFUSED}"
Files = Sequence[Path]
Parts = Callable[[str], Files]
"""Name of a table → all files of it that the run has written."""


def check_across(row: type[Row], files: Sequence[Footer], parts: Parts, digest: str, house: Path) -> list[Finding]:
    """The key is unique among all the run's rows of the table; every reference occurs in the table it names.

    house: the warehouse, where DuckDB puts aside what MEMORY does not hold; StoreError where nothing can be put there.
    """
    findings, rows = list[Finding](), sum(file.rows for file in files)
    with aside(house, "check") as spill:
        ask = partial(_ask, spill)
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
    paths = [str(file.path) for file in own_files]
    starts = dict(zip(paths, accumulate((file.rows for file in own_files), initial=0), strict=False))
    return tuple(starts[file] + line for file, line in rows)


def _ask(spill: Path, query: str, files: Mapping[str, Files]) -> list[tuple[Any, ...]]:
    with closing(duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(spill)})) as connection:
        names = {parameter: list(map(pattern, paths)) for parameter, paths in files.items()}
        return connection.execute(query, names).fetchall()


def _read(parameter: str, places: bool = False) -> str:
    more = ", filename = true, file_row_number = true" if places else ""
    return f"read_parquet(${parameter}, hive_partitioning = false{more})"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(_name, columns))


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
