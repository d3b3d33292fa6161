"""The catalogue: a view per table, the views and questions of sql/, and errors in words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store.catalogue import SQL, ask, catalogue, questions, shown
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Make = Callable[..., Run]
HOSTILE = ["'; DROP TABLE responses; --", '"x" OR 1=1', "$response_id", "\x00", "é\u202e", "x" * 100_000, ""]
PARAMETERS = {
    name: {"response_id": "r2"}
    for name in ("lineage", "examples", "exemplars", "trace", "label_history", "score_history")
}


@pytest.fixture(params=["empty", "filled"])
def any_run(request: pytest.FixtureRequest, tmp_path: Path, finished: Run) -> Run:
    return finished if request.param == "filled" else Warehouse.open(tmp_path / "other").run("none")


def test_every_table_has_a_view_with_its_columns(any_run: Run) -> None:
    with catalogue(any_run) as connection:
        for row in TABLES:
            assert connection.sql(f"SELECT * FROM {row.table}").columns == schema(row).names


def test_views_hold_the_rows_of_all_stages(finished: Run) -> None:
    with catalogue(finished) as connection:
        counts = {row.table: connection.sql(f"SELECT count(*) FROM {row.table}").fetchall()[0][0] for row in TABLES}
    assert counts["gradings"] == 9
    assert min(counts.values()) == 1


def test_the_views_and_questions_of_sql_run(any_run: Run) -> None:
    views = sorted(path.stem for path in (SQL / "views").glob("*.sql"))
    with catalogue(any_run) as connection:
        of_view = {name: len(connection.sql(f"SELECT * FROM {name}").fetchall()) for name in views}
        answered = {
            name: connection.sql(shown(name), params=PARAMETERS.get(name, {})).fetchall() for name in questions()
        }
    if any_run.run_id == "none":
        assert set(of_view.values()) == {0}
        return
    assert of_view == {"scores": 3, "evidence": 1, "final_scores": 3, "costs": 3}
    assert [name for name, rows in answered.items() if not rows] == [
        "recorded"
    ]  # there are no replies of another system


def test_every_question_says_what_it_asks() -> None:
    assert all(text.endswith(".") or text.endswith(").") for text in questions().values())


def test_lineage_leads_from_a_score_to_its_calls(finished: Run) -> None:
    answer = ask(finished, "lineage", {"response_id": "r2"})
    (row,) = (dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall())
    assert (row["machine_score"], row["calibration"], row["request"], row["reply"]) == (1.0, "c", "d-r2", "{}")


def test_scores_hold_people_and_machine_side_by_side(finished: Run) -> None:
    (row,) = ask(finished, "SELECT human_scores, human_mean, error FROM scores WHERE response_id = 'r1'").fetchall()
    assert row == ({"g": 2.0, "h": 1.0}, 1.5, -0.5)


def test_a_hostile_parameter_is_only_a_value(finished: Run) -> None:
    names = {f"x{number}": value for number, value in enumerate(HOSTILE)}
    assert ask(finished, "lineage", {"response_id": HOSTILE[0]}).fetchall() == []
    assert ask(finished, f"SELECT {', '.join(f'${name}' for name in names)}", names).fetchall() == [tuple(HOSTILE)]


def test_the_name_of_the_folder_does_no_harm(tmp_path: Path) -> None:
    folder, alike = (f"it's a=b $x é \n {ending}" for ending in ("[1]*?", "1xx"))
    item = {"item_id": "i", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"}
    for place in (folder, alike):
        run = Warehouse.open(tmp_path / place).run("one")
        run.commit("ingest", "all", {Items: [item | {"item_id": place}]})
    run = Warehouse.open(tmp_path / folder).run("one")
    answer = ask(run, "SELECT * FROM items")
    assert answer.columns == schema(Items).names
    assert [row[0] for row in answer.fetchall()] == [folder]


def test_an_unfinished_shard_is_not_seen(filled_run: Make) -> None:
    run = filled_run()
    whole = run.folder / "items" / "some" / "items.parquet"
    whole.with_name("more.parquet").write_bytes(whole.read_bytes())
    (run.folder / "items" / "other").mkdir()
    (run.folder / "items" / "other" / "all.parquet").write_bytes(whole.read_bytes())
    assert ask(run, "SELECT count(*) FROM items").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("SELEC 1", "syntax error"),
        ("agreemnt", "agreemnt"),
        ("SELECT * FROM nothing", "nothing does not exist"),
        ("SELECT CAST(text AS INT) FROM responses", "Could not convert string"),
        ("SELECT error('boom')", "boom"),
        ("lineage", "response_id"),
        ("SELECT 1; SELECT CAST('x' AS INT)", "Could not convert string"),
        ("", "nothing to answer"),
        ("-- only a comment", "nothing to answer"),
        ("../views/scores", "syntax error"),
    ],
)
def test_a_query_that_fails_is_a_user_error(finished: Run, query: str, rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        ask(finished, query)


def test_a_parameter_that_nobody_asked_for_is_a_user_error(finished: Run) -> None:
    with pytest.raises(UserError, match="count mismatch"):
        ask(finished, "worst", {"x": "1"})


def test_a_score_has_one_name_in_both_views(any_run: Run) -> None:
    with catalogue(any_run) as connection:
        views = [set(connection.sql(f"SELECT * FROM {name}").columns) for name in ("scores", "final_scores")]
    assert all({"judge_score", "machine_score", "final_score"} <= columns for columns in views)
    assert all(columns.isdisjoint({"raw", "score", "calibrated"}) for columns in views)


FORBIDDEN = [
    "COPY responses TO '{out}'",
    "COPY (SELECT 1) TO '{table}'",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA enable_profiling",
    "CALL checkpoint()",
    "CREATE TABLE x AS SELECT 1",
    "CREATE PERSISTENT SECRET (TYPE s3)",
    "PREPARE x AS COPY responses TO '{out}'",
    "EXPLAIN ANALYZE COPY responses TO '{out}'",
    "/* PIVOT */ COPY (PIVOT responses ON item_id) TO '{table}'",
    "VACUUM",
    "USE main",
    "COPY (PIVOT responses ON item_id) TO '{table}'",
    "SELECT 1; COPY responses TO '{out}'; SELECT 2",
    "FROM read_csv('{secret}')",
    "FROM read_text('{secret}')",
    "FROM read_blob('{secret}')",
    "FROM '{secret}'",
    "FROM read_json('{mark}')",
    "FROM glob('{house}/*')",
    "FROM read_parquet('{house}/*/*/*/*.parquet')",
    "FROM parquet_metadata('{other}')",
    "FROM sniff_csv('{secret}')",
    "FROM read_duckdb('{secret}')",
    "FROM read_parquet('{other}')",
    "FROM read_parquet('{table}/../../../../{other_name}')",
    "FROM python_variable",
    "FROM query($$COPY responses TO '{out}'$$)",
    "FROM enable_logging(storage = 'file', storage_path = '{out}')",
    "FROM read_parquet('https://localhost:1/x.parquet')",
    "FROM read_csv('s3://bucket/x.csv')",
    "WITH x AS (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "SELECT (SELECT content FROM read_text('{secret}'))",
]
"""SQL that reads or writes something else than the run's tables."""


def placed(run: Run, folder: Path) -> dict[str, object]:
    """Files that no query may see, some of them in the warehouse."""
    table = next((run.folder / "responses").glob("*/*.parquet"))
    secret, other = folder / "secret.csv", run.warehouse.root / "other.parquet"
    secret.write_text("word\nopen sesame\n")
    other.write_bytes(table.read_bytes())
    mark = next((run.folder / "_done").glob("*/*.json"))
    files = {"out": folder / "out", "secret": secret, "table": table, "other": other, "mark": mark}
    return files | {"house": run.warehouse.root, "other_name": other.name}


def states(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("query", FORBIDDEN)
def test_sql_reads_the_run_s_tables_alone_and_writes_nothing(
    finished: Run, tmp_path_factory: pytest.TempPathFactory, query: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    python_variable = schema(Items).empty_table()
    files = placed(finished, outside)
    before = states(finished.folder, outside)
    with pytest.raises(UserError, match="SQL: "):
        ask(finished, query.format(**files))
    assert states(finished.folder, outside) == before
    assert python_variable.num_rows == 0
    (finished.warehouse.root / "other.parquet").unlink()


WORDS = "SELECT|*|FROM|COPY|TO|(|)|'{secret}'|'{out}'|'{table}'|responses|read_text|read_csv|ATTACH|AS|;|,"
WORDS += "|WITH|x|INSERT INTO|CREATE TABLE|SET|=|1|glob|EXPLAIN|ANALYZE|PRAGMA"
WORDS += "|UNION ALL|LIMIT|parquet_scan|query|content|DESCRIBE|EXPORT DATABASE"
WHOLE = st.sampled_from([query for query in FORBIDDEN if "out" in query or "secret" in query])
STATEMENTS = st.one_of(
    st.lists(st.sampled_from(WORDS.split("|")), min_size=2, max_size=10).map(" ".join),
    st.builds("{0} {1} {2}".format, st.sampled_from(WORDS.split("|")), WHOLE, st.sampled_from(WORDS.split("|"))),
    st.lists(st.one_of(WHOLE, st.just("SELECT 1")), min_size=1, max_size=3).map(";".join),
)


@settings(max_examples=10)
@given(STATEMENTS)
def test_no_statement_reads_a_secret_or_changes_a_file(finished: Run, query: str) -> None:
    with TemporaryDirectory() as folder:
        files = placed(finished, Path(folder))
        before = states(Path(folder), finished.folder)
        with contextlib.suppress(UserError):
            assert "open sesame" not in str(ask(finished, query.format(**files)).fetchall())
        assert states(Path(folder), finished.folder) == before
    (finished.warehouse.root / "other.parquet").unlink()


@pytest.mark.parametrize(
    "query",
    [
        "PIVOT responses ON item_id USING count(*)",
        "-- x\n (/* y */ FROM (PIVOT responses ON item_id))",
        "SHOW TABLES",
        "WITH p AS (PIVOT responses ON item_id) SELECT * FROM p",
        "DESCRIBE responses",
        "SUMMARIZE responses",
        "VALUES (1)",
    ],
)
def test_all_that_only_reads_tables_is_answered(finished: Run, query: str) -> None:
    assert ask(finished, query).fetchall()


def test_other_files_are_read_and_written_where_that_is_said(finished: Run, tmp_path: Path) -> None:
    ask(finished, f"COPY (SELECT 42 AS x) TO '{tmp_path / 'out.csv'}'", other_files=True)
    assert ask(finished, f"FROM read_csv('{tmp_path / 'out.csv'}')", other_files=True).fetchall() == [(42,)]
