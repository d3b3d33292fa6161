"""DuckDB over a run's Parquet: one plain view per table, the views of sql/views that join them, and named questions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from tasks.contracts.errors import StoreError, UserError
from tasks.contracts.schema import schema
from tasks.contracts.tables.every import TABLES
from tasks.store.part import first_line, forget
from tasks.store.recorded import read_manifest
from tasks.store.warehouse import Run

SQL = Path(__file__).resolve().parents[2] / "sql"


@contextlib.contextmanager
def catalogue(run: Run) -> Iterator[duckdb.DuckDBPyConnection]:
    """An in-memory database with a view for every table of the run and every view of sql/views.

    A table holds the finished shards of all stages; where there is none, it is empty. StoreError where a file of one is
    lost, broken or of another version, or cannot be read later.
    """
    try:
        with _views(run) as connection:
            yield connection
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        refuse_broken(run)
        raise StoreError(f"a table of {run.folder} cannot be read: {first_line(error)}; {run.mend()}") from error


def _views(run: Run) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for row in TABLES:
        files = [path for stage in run.stages(row) for path in run.parts(row, stage)]
        if files:
            source = f"read_parquet([{', '.join(map(_quoted, files))}], hive_partitioning = false)"
            connection.execute(f"CREATE VIEW {row.table} AS SELECT * FROM {source}")
        else:
            connection.register(f"empty_{row.table}", schema(row).empty_table())
            connection.execute(f"CREATE VIEW {row.table} AS SELECT * FROM empty_{row.table}")
    for path in sorted((SQL / "views").glob("*.sql")):
        connection.execute(f"CREATE VIEW {path.stem} AS {path.read_text(encoding='utf-8').rstrip().rstrip(';')}")
    return connection


def refuse_broken(run: Run) -> None:
    """StoreError that names a file of the run that is not as it was written, whatever was seen of it before."""
    forget()
    for row in TABLES:
        for stage in run.stages(row):
            run.parts(row, stage)


def pattern(file: Path | str) -> str:
    """The pattern that means this file only: DuckDB reads the names of files as patterns."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(file))


def _quoted(file: Path | str) -> str:
    return "'" + pattern(file).replace("'", "''") + "'"


def questions() -> dict[str, str]:
    """Named questions: name → what it asks (the first comment line of its file)."""
    return {
        path.stem: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("--").strip()
        for path in sorted((SQL / "questions").glob("*.sql"))
    }


def ask(run: Run, query: str, parameters: Mapping[str, str] | None = None) -> duckdb.DuckDBPyRelation:
    """The answer to a SQL query, or to a named question of sql/questions with its $parameters.

    UserError says what is wrong with it; StoreError what is wrong with the run, where a finished one is not what its
    manifest lists too.
    """
    named = SQL / "questions" / f"{query}.sql"
    text = named.read_text(encoding="utf-8") if query.isidentifier() and named.exists() else query
    if (run.folder / "manifest.json").exists():
        read_manifest(run)
    try:
        connection = _views(run)
        answer = connection.sql(text, params=dict(parameters or {}))
        if answer is None:
            raise UserError("SQL: there is nothing to answer; give a query or the name of a question")
        # Fetched here, because a relation that is left lazy fails where nobody looks for an error.
        return connection.from_arrow(answer.to_arrow_table())
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        refuse_broken(run)
        raise UserError(f"SQL: {error}") from error
