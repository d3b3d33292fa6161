"""All finished runs of a warehouse as one database: views over their Parquet files for any DuckDB client.

`warehouse.sql` makes the views, `warehouse.duckdb` has them. Paths in them are absolute, since a client looks for
others where it was started, and a view cannot ask where its database lies. A database that was moved or copied with
its warehouse therefore refuses to answer until it is written anew, as every command does that looks at runs. The paths
name folders with a star, so that a new run is seen at once. The database is made beside the one that is there and takes
its place then: who has that open keeps it, and locks nobody out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import duckdb

from tasks.contracts.errors import StoreError
from tasks.contracts.schema import schema
from tasks.contracts.tables.catalogue import TABLES
from tasks.store.aside import aside
from tasks.store.catalogue import joins, pattern, quoted
from tasks.store.files import write_atomically
from tasks.store.part import first_line
from tasks.store.warehouse import Warehouse

SCRIPT, DATABASE = "warehouse.sql", "warehouse.duckdb"
STORAGE = "v1.0.0"
"""The oldest storage format that a database can be written in: every DuckDB since then opens it."""
_RUNS = """
SELECT
    run_id,
    identity->>'$.study.name' AS study,
    identity->>'$.study.judge.backend' AS backend,
    CAST(identity->>'$.limit' AS BIGINT) AS "limit",
    CAST(written AS TIMESTAMP) AS written,
    grade_digest
FROM read_json({manifests}, columns = {{
    run_id: 'VARCHAR', written: 'VARCHAR', grade_digest: 'VARCHAR', identity: 'JSON'
}})"""
_ONLY_HERE = """
WHERE CASE WHEN EXISTS (SELECT 1 FROM duckdb_databases() WHERE path = {database}) THEN true ELSE error({rule}) END"""
_ROWS = """
SELECT parse_path(filename)[-4] AS run_id, * EXCLUDE (filename)
FROM read_parquet({files}, filename = true, union_by_name = true, hive_partitioning = false)
WHERE parse_path(filename)[-4] IN (SELECT run_id FROM runs)"""


def write_database(warehouse: Warehouse) -> Path | None:
    """Makes `warehouse.duckdb` and `warehouse.sql` where they are not as they should be; returns the database's path.

    StoreError where a run's tables cannot be read. None in a bucket: views read by pattern, and what lies in a bucket
    counts by its done-marks alone.
    """
    script, database = warehouse.root / SCRIPT, warehouse.root / DATABASE
    if warehouse.mirrored:
        return None
    text = statements(warehouse)
    if database.exists() and script.exists() and script.read_text(encoding="utf-8") == text:
        return database
    with aside(warehouse.root, "database") as folder:
        try:
            _make(folder / DATABASE, text, database.resolve())
            os.replace(folder / DATABASE, database)
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{database} cannot be written: {first_line(error)}") from error
    write_atomically(script, text.encode())
    return database


def reads_elsewhere(warehouse: Warehouse) -> bool:
    """Whether the views read another folder than the warehouse's, which was moved or copied since they were made."""
    script = warehouse.root / SCRIPT
    return script.is_file() and _manifests(warehouse) not in script.read_text(encoding="utf-8")


def follow_move(warehouse: Warehouse) -> None:
    """Makes views anew that read another folder. Where nothing may be written they stay, and refuse to answer."""
    if reads_elsewhere(warehouse):
        with contextlib.suppress(StoreError):
            write_database(warehouse)


def _manifests(warehouse: Warehouse) -> str:
    return quoted(f"{pattern(warehouse.root.resolve())}/*/manifest.json")


def _make(database: Path, text: str, place: Path) -> None:
    """A new database in which this SQL was run, and whose views answer at this place only."""
    rule = (
        f"these views read {place.parent}, and this is another file than {place}: open that, or, if the warehouse was"
    )
    rule += " moved or copied, run `rubricflow sql --warehouse FOLDER` once"
    where = _ONLY_HERE.format(database=quoted(str(place)), rule=quoted(rule))
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {quoted(str(database))} AS warehouse (STORAGE_VERSION '{STORAGE}')")
        connection.execute("USE warehouse")
        connection.execute(text)
        (runs,) = connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'runs'").fetchall()[0]
        connection.execute(f"{runs.rstrip().rstrip(';').replace('CREATE', 'CREATE OR REPLACE', 1)}{where}")
        connection.execute("USE memory")
        connection.execute("DETACH warehouse")


def statements(warehouse: Warehouse) -> str:
    """SQL that makes the views: `runs`, every table with its rows' `run_id`, and those of sql/views."""
    root = pattern(warehouse.root.resolve())
    views = {"runs": _RUNS.format(manifests=_manifests(warehouse))}
    with duckdb.connect() as connection:
        for row in TABLES:
            if any(warehouse.root.glob(f"*/{row.table}/*/*.parquet")):
                views[row.table] = _ROWS.format(files=quoted(f"{root}/*/{row.table}/*/*.parquet"))
            else:
                views[row.table] = _empty(connection, row.table, schema(row).empty_table())
    lines = [f"CREATE OR REPLACE VIEW {name} AS{query};" for name, query in views.items()]
    lines += [f"CREATE OR REPLACE VIEW {name} AS\n{query};" for name, query in joins().items()]
    return "\n\n".join(
        ["-- All finished runs of a warehouse, by absolute paths. Made by rubricflow; it is written anew.", *lines, ""]
    )


def _empty(connection: duckdb.DuckDBPyConnection, name: str, table: object) -> str:
    """A query that gives a table's columns and no rows."""
    connection.register(name, table)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    columns = [f'CAST(NULL AS {kind}) AS "{column}"' for column, kind, *_ in described]
    return f"\nSELECT {', '.join(['CAST(NULL AS VARCHAR) AS run_id', *columns])} WHERE false"
