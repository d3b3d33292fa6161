"""The door of check, on tables that are written around the store where the store would not let a fault through."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import rows
from builders.rows import Record, item

from rubricflow.tasks.core.check import checkpoint
from rubricflow.tasks.core.check.suite import CheckError
from rubricflow.tasks.core.check.task import checked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import Row, TableRef, expectations, schema
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Checks
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Records = list[Record]
HOSTILE = [
    "'; DROP TABLE gradings; --",
    "\"quoted\" 'twice' $own ?",
    "nul \x00 and bell \x07",
    "\u202eright to left",
    "x" * 2**20,
]


class Data(NamedTuple):
    """What a first stage hands on."""

    items: TableRef
    responses: TableRef


class Written(NamedTuple):
    """What a stage hands on, as the doors of the rooms do."""

    gradings: TableRef
    responses: TableRef


def response(key: str, text: str = "Because.") -> Record:
    return rows.response(key, author_id="a1", text=text, groups={"first": "no"})


def grading(key: str, rater: str = "m") -> Record:
    return rows.grading(key, rater, 2.0, trait_scores={"sense": 1.0}, confidence=0.5)


def write(
    run: Run, row: type[Row], stage: str, records: Records, shard: str = "all", want: pa.Schema | None = None
) -> TableRef:
    """Write a shard without the store's own look at it."""
    want = want or pa.schema([column.with_nullable(True) for column in schema(row)])
    folder = run.folder / row.table / stage
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records, schema=want), folder / f"{shard}.parquet")
    path = str(folder.relative_to(run.warehouse.root))
    rows = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    return TableRef(table=row.table, stage=stage, path=path, digest="0" * 64, rows=rows)


def stored(run: Run, stage: str, outcome: str | None = None) -> Records:
    records: Records = run.read(run.ref(Checks, f"check-{stage}")).to_pylist()
    return [record for record in records if outcome in (None, record["outcome"])]


@pytest.fixture
def great(tmp_path: Path) -> Run:
    """A run in which ingest has written an item and responses; Great Expectations holds its rules."""
    run = Warehouse.open(tmp_path / "warehouse").run("one")
    run.commit("ingest", "all", {Items: [item()], Responses: [response(f"r{i}") for i in range(6)]})
    return run


@pytest.fixture
def run(great: Run, plain: None) -> Run:
    return great


def judged(run: Run) -> TableRef:
    run.commit("judge", "all", {Gradings: [grading(f"r{i}") for i in range(6)]})
    return run.ref(Gradings, "judge")


def test_a_good_run_passes_through_and_stores_every_rule_as_passed(great: Run) -> None:
    written = Written(judged(great), great.ref(Responses, "ingest"))
    assert checked.fn(great, written) is written
    for stage, row in (("judge", Gradings), ("ingest", Responses)):
        records = stored(great, stage)
        told = {(record["rule"], record["column"]) for record in records}
        assert told == {(rule.rule, ", ".join(rule.columns)) for rule in expectations(row)}
        assert {record["outcome"] for record in records} == {"passed"}
        assert {(record["stage"], record["rows"], record["unexpected"]) for record in records} == {(stage, 6, 0)}


def test_each_broken_rule_is_named_with_table_column_and_key(great: Run) -> None:
    broken: dict[tuple[str, str], tuple[Records, list[str]]] = {
        ("not_null", "status"): ([{"status": None}], ["r3 / 0 / 0"]),
        ("not_null", "trait_scores"): ([{"trait_scores": None}], ["r3 / 1 / 0"]),
        ("not_null", "rater_id"): ([{"rater_id": None}], ["r3 / None / 0"]),
        ("in_set", "status"): ([{"status": "lost"}], ["r3 / 3 / 0"]),
        ("in_set", "unscored_reason"): ([{"unscored_reason": "tired"}], ["r3 / 4 / 0"]),
        ("between", "sample"): ([{"sample": -1}], ["r3 / 5 / -1"]),
        ("between", "confidence"): ([{"confidence": 1.5}, {"confidence": float("nan")}], ["r3 / 6 / 0", "r3 / 7 / 0"]),
        ("references", "item_id"): ([{"item_id": "i9"}], ["r3 / 8 / 0 → i9"]),
        ("references", "response_id"): ([{"response_id": "r9"}], ["r9 / 9 / 0 → r9"]),
        ("unique", "response_id, rater_id, sample"): ([{"rater_id": "m"}, {"rater_id": "m"}], ["r3 / m / 0"]),
    }
    faults = [fault for of_rule, _ in broken.values() for fault in of_rule]
    records = [grading("r3", str(number)) | fault for number, fault in enumerate(faults)]
    with pytest.raises(ContractError) as stop:
        checked.fn(great, write(great, Gradings, "judge", [grading("r1"), *records]))
    for (rule, column), (_, keys) in broken.items():
        [line] = [line for line in str(stop.value).split("\n") if f"column '{column}', rule '{rule}'" in line]
        assert line.startswith("table 'gradings', ")
        assert f"first response_id / rater_id / sample: {'; '.join(keys)}" in line
    found = {
        (each["rule"], each["column"]): (each["first"], each["unexpected"]) for each in stored(great, "judge", "failed")
    }
    assert found == {rule: (keys, len(of_rule)) for rule, (of_rule, keys) in broken.items()}
    assert not stored(great, "judge", "error")


def test_a_wrong_type_is_told_from_the_file_and_the_other_rules_are_not_run(run: Run) -> None:
    want = pa.schema(
        [column.with_type(pa.string()) if column.name == "score" else column for column in schema(Gradings)]
    )
    write(run, Gradings, "judge", [grading("r1")], "a")
    ref = write(run, Gradings, "judge", [grading("r2") | {"score": "two"}], "b", want)
    with pytest.raises(
        ContractError, match=r"column 'score', rule 'type': must be double; found string in b\.parquet"
    ) as stop:
        checked.fn(run, ref)
    assert "1 of 2 rows" in str(stop.value)
    assert {record["rule"] for record in stored(run, "judge", "passed")} == {"type"}
    assert "another type" in stored(run, "judge", "error")[0]["detail"]


def test_a_missing_column_breaks_the_type_rule_of_that_column(run: Run) -> None:
    want = pa.schema([column for column in schema(Gradings) if column.name != "low"])
    with pytest.raises(ContractError, match="column 'low', rule 'type': must be double; found no such column in all"):
        checked.fn(run, write(run, Gradings, "judge", [grading("r1")], want=want))


def test_a_key_is_unique_across_shards_and_stages(run: Run) -> None:
    write(run, Gradings, "judge", [grading("r1"), grading("r2")], "a")
    ref = write(run, Gradings, "judge", [grading("r2"), grading("r3")], "b")
    with pytest.raises(
        ContractError, match=r"2 of 4 rows break this; first response_id / rater_id / sample: r2 / m / 0\n"
    ):
        checked.fn(run, ref)
    write(run, Gradings, "human", [grading("r4"), grading("r5")])
    other = write(run, Gradings, "people", [grading("r5"), grading("r6")])
    with pytest.raises(ContractError, match=r"unique.* 1 of 2 rows break this; first .*: r5 / m / 0"):
        checked.fn(run, other)


@pytest.mark.usefixtures("plain")
def test_a_reference_to_a_table_that_was_never_written_dangles(tmp_path: Path) -> None:
    run = Warehouse.open(tmp_path / "warehouse").run("one")
    with pytest.raises(ContractError, match=r"rule 'references': must occur in items\.item_id; 1 of 1 rows break this"):
        checked.fn(run, write(run, Responses, "ingest", [response("r1")]))


def test_only_five_keys_are_named_and_all_rows_counted(run: Run) -> None:
    ref = write(run, Gradings, "judge", [grading(f"r{i % 6}", rater=f"m{i}") | {"status": "lost"} for i in range(40)])
    with pytest.raises(ContractError, match="40 of 40 rows"):
        checked.fn(run, ref)
    [found] = stored(run, "judge", "failed")
    assert found["first"] == [f"r{i} / m{i} / 0" for i in range(5)]


def test_every_broken_table_is_reported_at_once(great: Run) -> None:
    gradings = write(great, Gradings, "late", [grading("r1") | {"status": "lost"}])
    responses = write(great, Responses, "late", [response("x1") | {"split": "none"}])
    with pytest.raises(ContractError) as stop:
        checked.fn(great, Written(gradings, responses))
    assert "table 'gradings', column 'status'" in str(stop.value)
    assert "table 'responses', column 'split'" in str(stop.value)


def test_what_is_found_stands_while_another_process_checks_the_stage_s_other_tables(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradings = write(run, Gradings, "late", [grading("r1")])
    checked.fn(run, gradings)
    files = Run.files

    def meanwhile(self: Run, table: str, stage: str) -> list[Path]:
        monkeypatch.setattr(Run, "files", files)
        checked.fn(self, write(self, Responses, "late", [response("x1")]))
        return files(self, table, stage)

    before = run.shard(Checks, "check-late", "gradings")
    monkeypatch.setattr(Run, "files", meanwhile)
    checked.fn(run, gradings)
    assert run.shard(Checks, "check-late", "gradings") == before


def test_an_expectation_that_raises_is_an_error_and_not_a_failure(great: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from great_expectations.expectations.metrics.column_map_metrics.column_values_between import ColumnValuesBetween

    def out_of_order(*_: object, **__: object) -> None:
        raise RuntimeError("the metric is out of order")

    monkeypatch.setattr(ColumnValuesBetween, "_pandas_vectorized", out_of_order)
    with pytest.raises(CheckError, match="could not run") as stop:
        checked.fn(great, judged(great))
    assert not isinstance(stop.value, ContractError)
    assert "rule 'between': the metric is out of order" in str(stop.value)
    assert {record["rule"] for record in stored(great, "judge", "error")} == {"between"}
    assert not stored(great, "judge", "failed")
    monkeypatch.undo()
    checked.fn(great, great.ref(Gradings, "judge"))
    assert not stored(great, "judge", "error")


def test_great_expectations_out_of_order_is_an_error(great: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    with pytest.raises(CheckError, match="ModuleNotFoundError"):
        checked.fn(great, judged(great))
    assert {record["rule"] for record in stored(great, "judge", "passed")} == {"type", "references", "unique"}


def test_a_file_that_is_no_parquet_is_an_error(run: Run) -> None:
    ref = judged(run)
    (run.folder / "gradings" / "judge" / "all.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(CheckError, match="'gradings'"):
        checked.fn(run, ref)
    assert {record["outcome"] for record in stored(run, "judge")} == {"error"}


def test_a_lost_file_is_an_error(run: Run) -> None:
    for shard in ("a", "b"):
        run.commit("judge", shard, {Gradings: [grading("r1", rater=shard)]})
    ref = run.ref(Gradings, "judge")
    for shard, left in (("a", 1), ("b", 0)):
        (run.folder / "gradings" / "judge" / f"{shard}.parquet").unlink()
        with pytest.raises(CheckError, match=f"the files hold {left} rows, their done-marks say 2"):
            checked.fn(run, ref)


def test_hostile_text_is_cut_and_escaped_where_it_breaks_a_rule(run: Run) -> None:
    rows = [grading(text) | {"status": text, "item_id": text} for text in HOSTILE for _ in range(2)]
    with pytest.raises(ContractError) as stop:
        checked.fn(run, write(run, Gradings, "judge", [*rows, grading("r1")]))
    message = str(stop.value)
    assert len(message) < 4_000
    assert all(line.isprintable() for line in message.split("\n"))
    found = stored(run, "judge", "failed")
    assert {record["rule"] for record in found} == {"in_set", "references", "unique"}
    assert all(record["unexpected"] == 10 for record in found)
    assert all(len(key) <= 80 and key.isprintable() for record in found for key in record["first"])


def test_a_second_call_reads_the_stored_results(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(judged(run), run.ref(Responses, "ingest"))
    checked.fn(run, written)
    monkeypatch.setattr(checkpoint, "check", None)
    assert checked.fn(run, written) is written


def test_only_the_door_imports_prefect_and_nothing_great_expectations_before_it_is_needed() -> None:
    modules = ", ".join(f"rubricflow.tasks.core.check.{name}" for name in ("checkpoint", "suite"))
    code = f"import sys, {modules}; sys.exit(bool({{'great_expectations', 'prefect'}} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(checkpoint.__file__).parents[3])


def test_columns_without_any_value_pass_where_null_is_allowed(great: Run) -> None:
    attempt: dict[str, Any] = dict.fromkeys(schema(Attempts).names)
    attempt |= {"response_id": "r1", "rater_id": "m", "sample": 0, "part": "all", "attempt": 0, "role": "grade"}
    attempt |= {
        "request_digest": "d",
        "model": "m",
        "seed": 1,
        "violations": [],
        "mends": [],
        "memory": [],
        "characters": {},
        "stored": False,
    }
    great.commit("judge", "all", {Attempts: [attempt], Gradings: [grading("r1") | {"confidence": None}]})
    checked.fn(great, (great.ref(Attempts, "judge"), great.ref(Gradings, "judge")))


def test_other_content_or_an_earlier_failure_is_checked_again(run: Run) -> None:
    ref = judged(run)
    checked.fn(run, ref)
    bad = write(run, Gradings, "judge", [grading(f"r{i}") | {"status": "lost"} for i in range(6)])
    for _ in range(2):
        with pytest.raises(ContractError):
            checked.fn(run, bad)
    write(run, Gradings, "judge", [grading(f"r{i}") for i in range(6)])
    checked.fn(run, ref)
    assert {record["outcome"] for record in stored(run, "judge")} == {"passed"}


def test_an_empty_table_passes(run: Run) -> None:
    run.commit("judge", "all", {Gradings: []})
    checked.fn(run, run.ref(Gradings, "judge"))
    assert {record["rows"] for record in stored(run, "judge")} == {0}


def test_what_holds_no_reference_is_refused(run: Run) -> None:
    with pytest.raises(TypeError, match="no TableRef"):
        checked.fn(run, ("responses",))


def test_nothing_is_printed_or_logged_abroad(great: Run, capfd: pytest.CaptureFixture[str]) -> None:
    class Ears(logging.Handler):
        heard: ClassVar[list[str]] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.heard.append(record.name)

    ears, root = Ears(), logging.getLogger()
    root.addHandler(ears)
    try:
        with pytest.raises(ContractError):
            checked.fn(great, write(great, Gradings, "judge", [grading("r1") | {"status": "lost"}]))
    finally:
        root.removeHandler(ears)
    assert capfd.readouterr() == ("", "")
    assert not [name for name in ears.heard if name.startswith("great_expectations")]
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"


@pytest.mark.usefixtures("plain")
def test_a_folder_of_any_name_is_read_as_it_is_spelled(tmp_path: Path) -> None:
    for name in ("we[i]rd '*' a=b", "weird '*' a=b"):
        run = Warehouse.open(tmp_path / name).run("one")
        run.commit("ingest", "all", {Items: [item(name)], Responses: [response("r1") | {"item_id": name}]})
        checked.fn(run, Data(run.ref(Items, "ingest"), run.ref(Responses, "ingest")))
        assert {record["rows"] for record in stored(run, "ingest")} == {1}
