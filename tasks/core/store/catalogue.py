"""DuckDB over a run's Parquet: one plain view per table, the views of sql/views that join them, and named questions.

And a run's own records: its manifest, read and compared with the run, and where its pages of feedback are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import StoreError, UserError, first_line
from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.tables import BY_NAME, TABLES
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.store.files import MEMORY, aside, pattern, unsealed, write_atomically
from rubricflow.tasks.core.store.part import forget, listed_once
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

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


SQL = Path(__file__).resolve().parents[3] / "sql"
THREADS = 4
"""How many threads share `MEMORY`: each needs some of its own."""

_BEGINNING = re.compile(r"(\s|--[^\n]*(\n|$)|/\*.*?\*/|\()*(pivot|select|from|with)\b", re.DOTALL | re.IGNORECASE)
"""How a statement begins that only reads, after comments."""


@contextlib.contextmanager
def catalogue(run: Run) -> Iterator[duckdb.DuckDBPyConnection]:
    """An in-memory database with a view for every table of the run and every view of sql/views.

    A table holds the finished shards of all stages; where there is none, it is empty. StoreError where a file of one is
    lost, broken or of another version, or cannot be read later. What MEMORY does not hold is put aside in the
    warehouse.
    """
    try:
        with aside(run.warehouse.root, "query") as spill, _views(run) as connection:
            connection.execute(f"SET memory_limit = '{MEMORY}'")
            connection.execute(f"SET threads = {min(THREADS, os.cpu_count() or 1)}")
            connection.execute(f"SET temp_directory = {quoted(str(spill))}")
            yield connection
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        refuse_broken(run)
        raise StoreError(f"a table of {run.place} cannot be read: {first_line(error)}; {run.mend()}") from error


def _views(run: Run) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    parts = run.all_parts()
    for row in TABLES:
        if files := parts.get(row.table):
            source = f"read_parquet([{', '.join(quoted(pattern(file)) for file in files)}], hive_partitioning = false)"
            connection.execute(f"CREATE VIEW {row.table} AS SELECT * FROM {source}")
        else:
            connection.execute(f"CREATE VIEW {row.table} AS SELECT {_nulls()[row.table]} WHERE false")
    joined_views(connection, run.run_id)
    return connection


@cache
def _nulls() -> dict[str, str]:
    """Table → what a query selects where it has no rows, so that it has the table's columns."""
    found = {}
    with duckdb.connect() as connection:  # a database for each would cost a command a second
        for row in TABLES:
            connection.register("described", schema(row).empty_table())
            columns = connection.execute("DESCRIBE described").fetchall()
            found[row.table] = ", ".join(f'CAST(NULL AS {kind}) AS "{column}"' for column, kind, *_ in columns)
    return found


def joined_views(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Makes the views of sql/views for one run, whose tables are views of the connection. They join tables by run and
    response, so that they hold over many runs, too: schema `every` has the tables that they name with the run's id."""
    connection.execute("CREATE SCHEMA every")
    connection.execute("USE every")
    words = set(re.findall(r"\w+", " ".join(joins().values())))
    for table in words & BY_NAME.keys():
        connection.execute(f"CREATE VIEW {table} AS SELECT {quoted(run_id)} AS run_id, * FROM main.{table}")
    for name, query in joins().items():
        connection.execute(f"CREATE VIEW {name} AS {query}")
    connection.execute("USE main")
    for name in joins():
        connection.execute(f"CREATE VIEW {name} AS SELECT * EXCLUDE (run_id) FROM every.{name}")


def joins() -> dict[str, str]:
    """The views of sql/views: name → query over tables that have a `run_id`."""
    paths = sorted((SQL / "views").glob("*.sql"))
    return {path.stem: path.read_text(encoding="utf-8").rstrip().rstrip(";") for path in paths}


def refuse_broken(run: Run) -> None:
    """StoreError that names a file of the run that is not as it was written, whatever was seen of it before."""
    forget()
    run.all_parts()


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def questions() -> dict[str, str]:
    """Named questions: name → what it asks (the first comment line of its file)."""
    return {
        path.stem: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("--").strip()
        for path in sorted((SQL / "questions").glob("*.sql"))
    }


def raters(run: Run) -> list[str]:
    """Whose scores a run's predictions are; nobody's where it has none."""
    if not run.stages(Predictions):
        return []
    return sorted(run.table(Predictions, "calibrate", ["rater_id"])["rater_id"].unique().to_pylist())


def shown(query: str) -> str:
    """The query that a name stands for: the question of that name, else the rows of the table; a query itself."""
    question = SQL / "questions" / f"{query}.sql"
    if query.isidentifier() and question.exists():
        return question.read_text(encoding="utf-8")
    return f"SELECT * FROM {query}" if query in BY_NAME or query in joins() else query


def ask(
    run: Run, query: str, parameters: Mapping[str, str] | None = None, other_files: bool = False
) -> duckdb.DuckDBPyRelation:
    """The answer to a SQL query, to the name of a table or view, or to that of a question of sql/questions with its
    $parameters.

    It reads the run's tables and can write nothing. other_files: all that DuckDB can do is allowed, reading and writing
    any file among it. UserError: something is wrong with the query; StoreError: something is wrong with the run, also
    where a finished one is not what its manifest lists.
    """
    with listed_once():
        if run.fetched(MANIFEST).exists():
            read_manifest(run)
        try:
            with TemporaryDirectory() as spill:
                connection = _views(run)
                connection.execute(f"SET temp_directory = {quoted(spill)}")
                if not other_files:
                    _confine(connection, run, shown(query))
                answer = connection.sql(shown(query), params=dict(parameters or {}))
                if answer is None:
                    raise UserError("SQL: there is nothing to answer; give a query or the name of a question")
                # Fetched here, because a relation that is left lazy fails where no error is expected.
                return connection.from_arrow(answer.to_arrow_table())
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            refuse_broken(run)
            raise UserError(f"SQL: {error}") from error


def _confine(connection: duckdb.DuckDBPyConnection, run: Run, query: str) -> None:
    """UserError for a statement that does not only select; then the connection opens no file but the run's tables."""
    for statement in connection.extract_statements(query):
        # A PIVOT is several statements to DuckDB, whatever is done with it: COPY (PIVOT …) is, too.
        is_pivot = statement.type is duckdb.StatementType.MULTI and _BEGINNING.match(statement.query)
        if statement.type is not duckdb.StatementType.SELECT and not is_pivot:
            rule = (
                f"SQL: a statement of the kind {statement.type.name} is refused: only SELECT is run on a run's tables"
            )
            raise UserError(f"{rule}; --other-files allows all that DuckDB can do, also to read and write any file")
    files = [name for path in chain.from_iterable(run.all_parts().values()) for name in {str(path), pattern(path)}]
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, files))}]")
    for name in ("python_enable_replacements", "autoinstall_known_extensions", "autoload_known_extensions"):
        connection.execute(f"SET {name} = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


# All finished runs of a warehouse as one database: views over their Parquet files for any DuckDB client.


def write_database(warehouse: Warehouse) -> Path | None:
    """Makes `warehouse.duckdb` and `warehouse.sql` where they are not as they should be; returns the database's path.

    StoreError where a run's tables cannot be read. None in a bucket: views read by pattern, and what lies in a bucket
    counts by its done-marks alone.
    """
    script = warehouse.root / SCRIPT
    database = warehouse.root / DATABASE
    if warehouse.mirrored:
        return None
    text = statements(warehouse)
    if database.exists() and script.exists() and script.read_text(encoding="utf-8") == text:
        return database
    with aside(warehouse.root, "database") as folder:
        try:
            _make_database(folder / DATABASE, text, database.resolve())
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
    """Makes views anew that read another folder. Where nothing may be written they stay, and raise an error."""
    if reads_elsewhere(warehouse):
        with contextlib.suppress(StoreError):
            write_database(warehouse)


def _manifests(warehouse: Warehouse) -> str:
    return quoted(f"{pattern(warehouse.root.resolve())}/*/manifest.json")


def _make_database(database: Path, text: str, place: Path) -> None:
    """A new database in which this SQL was run, and whose views answer at this place only."""
    rule = f"these views read {place.parent}, and this is another file than {place}: open that, or, if the warehouse "
    rule += "was moved or copied, run `rubricflow sql --warehouse FOLDER` once"
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
    for row in TABLES:
        if any(warehouse.root.glob(f"*/{row.table}/*/*.parquet")):
            views[row.table] = _ROWS.format(files=quoted(f"{root}/*/{row.table}/*/*.parquet"))
        else:
            views[row.table] = f"\nSELECT CAST(NULL AS VARCHAR) AS run_id, {_nulls()[row.table]} WHERE false"
    lines = [f"CREATE OR REPLACE VIEW {name} AS{query};" for name, query in views.items()]
    lines += [f"CREATE OR REPLACE VIEW {name} AS\n{query};" for name, query in joins().items()]
    return "\n\n".join(
        ["-- All finished runs of a warehouse, by absolute paths. Made by rubricflow; it is written anew.", *lines, ""]
    )


MANIFEST, FEEDBACK = "manifest.json", "feedback.json"


def read_manifest(run: Run) -> Record:
    """The manifest of a finished run; StoreError where there is none, where it was changed since it was written, or
    where a table is not the one that it lists."""
    manifest = manifest_of(run)
    with listed_once():
        for listed in listed_in(manifest):
            refuse_other(run, listed)
    return manifest


def manifest_of(run: Run) -> Record:
    """The manifest as it was written, without a look at the tables; StoreError where there is none such."""
    path = run.fetched(MANIFEST)
    again = "grade the study again: its manifest is written anew, and no reply that arrived is asked for again"
    try:
        record = unsealed(path.read_bytes())
        listed_in(record)
    except FileNotFoundError as error:
        raise StoreError(f"run {run.run_id} did not finish: {run.place}/{MANIFEST} is not there; {again}") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{run.place}/{MANIFEST} cannot be read: {error}; {again}") from error
    return record


def listed_in(manifest: Record) -> list[TableRef]:
    """The tables that a manifest lists."""
    return [TableRef.model_validate(ref) for ref in manifest["tables"]]


def refuse_other(run: Run, listed: TableRef) -> None:
    """StoreError unless the run's part of a table is the one that its manifest lists."""
    there = run.ref(BY_NAME[listed.table], listed.stage) if listed.table in BY_NAME else None
    if there is None or there.digest != listed.digest:
        raise StoreError(
            f"{run.place}/{listed.table}/{listed.stage} is not the table that the run's manifest lists: it was "
            f"changed, or written by another version of rubricflow; {run.mend()}"
        )


def remember_feedback(run: Run, folder: Path, pages: Mapping[str, str]) -> None:
    """Keep where the page of each answer's student is. pages: response → the page, relative to the folder."""
    record = {"folder": str(folder.resolve()), "pages": dict(pages)}
    run.warehouse.write(run.folder / FEEDBACK, json.dumps(record).encode())


def feedback_pages(run: Run) -> dict[str, str]:
    """Response → its student's page, as a link from the run's folder; none where no feedback was written, or it is gone
    since."""
    try:
        record = json.loads(run.fetched(FEEDBACK).read_bytes())
        folder = Path(record["folder"])
        pages = record["pages"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.html")}
    base = os.path.relpath(folder, run.folder.resolve())
    return {response: quote(f"{base}/{page}") for response, page in pages.items() if page in there}
