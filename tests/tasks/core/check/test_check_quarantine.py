"""What a checkpoint refuses: which rows, why, and that they are there whole or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from rubricflow.tasks.core.check import checkpoint, task
from rubricflow.tasks.core.check.suite import REFUSED
from rubricflow.tasks.core.check.task import checked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef, conform
from rubricflow.tasks.core.contracts.tables.evaluation import Checks, Quarantine
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run

Judged = Callable[..., tuple[Run, TableRef]]
LOST = {"status": "lost"}
pytestmark = pytest.mark.usefixtures("plain")


def refused(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.read(run.ref(Quarantine, "check-judge")).to_pylist()
    return rows


def stopped(run: Run, ref: TableRef) -> str:
    with pytest.raises(ContractError) as stop:
        checked.fn(run, ref)
    return str(stop.value)


@pytest.mark.parametrize(
    ("rule", "faults"),
    [
        ("not_null", {1: {"trait_scores": None}, 5: {"trait_scores": None}}),
        ("in_set", {1: LOST, 5: LOST}),
        ("between", {1: {"confidence": 1.5}, 5: {"confidence": float("nan")}}),
        ("references", {1: {"item_id": "i8"}, 5: {"item_id": "i9"}}),
        ("unique", {1: {"response_id": "r5"}}),
    ],
)
def test_the_rows_that_break_a_rule_are_those_in_quarantine(
    graded: Judged, monkeypatch: pytest.MonkeyPatch, rule: str, faults: dict[int, Any]
) -> None:
    monkeypatch.setattr(checkpoint, "READ", 1)  # a batch for each row
    run, ref = graded(faults=faults)
    stopped(run, ref)
    rows = refused(run)
    assert {(row["stage"], row["table_name"], row["rule"]) for row in rows} == {("judge", "gradings", rule)}
    # every row has its number as its score
    assert sorted(json.loads(row["content"])["score"] for row in rows) == [1.0, 5.0]
    for row in rows:
        content = json.loads(row["content"])
        key = f"{content['response_id']} / m / 0"
        assert row["row_key"] in (key, f"{key} (2)")
        assert row["reason"].startswith("must ")


def test_a_row_is_there_once_for_each_rule_it_breaks_and_its_maps_are_objects(graded: Judged) -> None:
    run, ref = graded(faults={2: LOST | {"item_id": "i9"}})
    stopped(run, ref)
    rows = refused(run)
    assert sorted(row["rule"] for row in rows) == ["in_set", "references"]
    assert json.loads(rows[0]["content"])["trait_scores"] == {"sense": 1.0}


def test_of_each_rule_the_first_thousand_rows_go_in(graded: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricflow.tasks.core.check.checkpoint.READ", 40)
    rows = REFUSED + 500
    run, ref = graded(faults={i: LOST | {"item_id": "i9"} for i in range(rows)}, rows=rows)
    stopped(run, ref)
    for rule in ("in_set", "references"):
        kept = [json.loads(row["content"])["score"] for row in refused(run) if row["rule"] == rule]
        assert kept == [float(i) for i in range(REFUSED)]
    checks = run.read(run.ref(Checks, "check-judge")).to_pylist()
    assert {check["unexpected"] for check in checks if check["outcome"] == "failed"} == {rows}


def test_long_hostile_content_is_cut(graded: Judged) -> None:
    text = "\x1b[31m'; DROP TABLE items; -- " + "x" * 2**20
    run, ref = graded(faults={0: LOST | {"rater_id": text}})
    stopped(run, ref)
    [row] = refused(run)
    assert len(row["content"]) == 10_000
    assert len(row["row_key"]) == 1_000
    assert row["row_key"].isprintable()


def test_the_message_says_how_to_look_and_the_query_answers(graded: Judged) -> None:
    run, ref = graded("we[i]rd 'house", {3: LOST})
    message = stopped(run, ref)
    [query] = re.findall(r'rubricflow sql "(.*?)" --run one --warehouse ', message)
    told = ask(run, query)
    assert told.columns == list(Quarantine.model_fields)
    assert [row[2] for row in told.fetchall()] == ["r3 / m / 0"]


@pytest.mark.parametrize("at", ["commit", "stop"])
def test_a_run_killed_at_the_stop_ends_the_same_when_run_again(
    graded: Judged, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    run, ref = graded("halved", {3: LOST})
    other, same = graded("whole", {3: LOST})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == "stop":
            patch.setattr(task, "stop", killed)
        else:
            patch.setattr(
                "rubricflow.tasks.core.store.warehouse.Run._mark", killed
            )  # the files are there, their mark is not
        with pytest.raises(KeyboardInterrupt):
            checked.fn(run, ref)
    if at == "commit":
        assert not run.done("check-judge", "gradings")
    for _ in range(2):
        assert stopped(run, ref).replace("halved", "whole") == stopped(other, same)
        assert refused(run) == refused(other)
        assert run.ref(Checks, "check-judge").digest == other.ref(Checks, "check-judge").digest


def test_mended_rows_leave_quarantine(graded: Judged) -> None:
    run, ref = graded(faults={3: LOST})
    stopped(run, ref)
    for path in (run.folder / "gradings" / "judge").glob("*.parquet"):
        table = pq.read_table(path).to_pylist(maps_as_pydicts="lossy")
        mended = conform(Gradings, [row | {"status": "scored"} for row in table])
        pq.write_table(mended, path)
    checked.fn(run, ref)
    assert ask(run, "SELECT * FROM quarantine").fetchall() == []
