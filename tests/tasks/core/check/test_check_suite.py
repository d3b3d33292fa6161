"""The suite over batches, and what a finding looks like."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rubricflow.tasks.core.check import suite
from rubricflow.tasks.core.check.suite import Finding, check_values, columns, exception, key_text, rules, shown
from rubricflow.tasks.core.contracts.schema import Expectation
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Responses, Units

UNITS = pa.schema(
    [
        ("response_id", pa.string()),
        ("unit_id", pa.string()),
        ("kind", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)


def batch(start: int, rows: int, **fault: Any) -> pa.RecordBatch:
    """Units of one response, numbered on from a start."""
    numbers = range(start, start + rows)
    return pa.RecordBatch.from_pylist(
        [{"response_id": "r", "unit_id": f"s{i}", "kind": "sentence", "start": i, "end": i} | fault for i in numbers],
        UNITS,
    )


def test_so_many_batches_are_validated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def look(frame: Any) -> list[Any]:
        sizes.append(len(frame))
        return []

    monkeypatch.setattr(suite, "TOGETHER", 2)
    monkeypatch.setattr(suite, "_validator", lambda row: look)
    found = check_values(Units, [batch(0, 4), batch(4, 4), batch(8, 4), batch(12, 25), batch(37, 0)])
    assert sizes == [8, 29]
    assert {finding.rows for finding in found} == {37}
    assert {finding.outcome for finding in found} == {"error"}, "no result is no pass"


def test_counts_and_first_keys_add_up_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "TOGETHER", 2)
    found = check_values(Units, [batch(0, 3), batch(3, 3, kind="word"), batch(6, 3, kind="page"), batch(9, 3)])
    [failed] = [finding for finding in found if finding.outcome != "passed"]
    assert (failed.expectation.rule, failed.unexpected, failed.rows) == ("in_set", 6, 12)
    assert failed.first == tuple(f"r / s{i}" for i in range(3, 8))


def test_an_exception_in_one_batch_does_not_hide_a_failure_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    real = suite._validator(Units)

    def shaky(frame: Any) -> Any:
        if frame["end"].min() >= 5:
            raise RuntimeError("out of order")
        return real(frame)

    monkeypatch.setattr(suite, "TOGETHER", 1)
    monkeypatch.setattr(suite, "_validator", lambda row: shaky)
    outcomes = {
        (finding.expectation.rule, finding.expectation.columns[0]): finding.outcome
        for finding in check_values(Units, [batch(0, 5, kind="word"), batch(5, 5)])
    }
    assert outcomes.pop(("in_set", "kind")) == "failed"
    assert set(outcomes.values()) == {"error"}


def test_of_a_long_or_nested_column_only_a_mark_goes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[Any] = []

    def keep(frame: Any) -> list[Any]:
        frames.append(frame)
        return []

    monkeypatch.setattr(suite, "_validator", lambda row: keep)
    record = {"response_id": "r", "item_id": "i", "author_id": "a", "text": "\n long" * 1000} | {
        "split": "test",
        "groups": {"a": "b"},
        "author_name": "A. A.",
        "made_from": "html",
    }
    check_values(Responses, pa.Table.from_pylist([record]).select(columns(Responses)).to_batches())
    [frame] = frames
    assert frame.iloc[0].to_dict() == dict.fromkeys(frame, 1) | {"text": "l", "split": "test", "made_from": "html"}


def test_every_table_has_a_suite_of_all_its_rules() -> None:
    for row in TABLES:
        made: Any = suite.suite(row)
        assert made.name == row.table
        assert sorted((made.meta["rule"], made.column, made.severity.value) for made in made.expectations) == sorted(
            (rule.rule, rule.columns[0], rule.severity) for rule in rules(row)
        )


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (None, None),
        ({}, None),
        ({"raised_exception": False, "exception_message": None}, None),
        ({"raised_exception": True, "exception_message": "flat"}, "flat"),
        ({"raised_exception": True, "exception_message": None}, "unknown exception"),
        ({"metric": {"raised_exception": True, "exception_message": "by metric"}}, "by metric"),
        ({"a": {"raised_exception": False}, "b": {"raised_exception": True, "exception_message": "second"}}, "second"),
    ],
)
def test_exception_info_is_read_in_both_its_shapes(info: Any, told: str | None) -> None:
    assert exception(info) == told


def test_a_failure_without_a_count_is_an_error() -> None:
    class Result:
        success = False
        exception_info: Any = None

        def __init__(self) -> None:
            self.result: dict[str, Any] = {}

    finding = Finding(Units, Expectation("not_null", ("unit_id",)), 0)
    keys = pa.table({"unit_id": ["s1"]})
    assert suite._with_batch(finding, Result(), keys, 0).outcome == "error"  # type: ignore[arg-type]


def test_keys_are_cut_and_escaped() -> None:
    assert key_text(["r1", 0], "i\n9") == r"r1 / 0 → i\n9"
    assert shown("ünï · 漢字 ' \" \x00\u202e\ud800") == r"""ünï · 漢字 ' " \x00\u202e\ud800"""
    assert shown("x" * 80) == "x" * 80
    assert shown("x" * 81) == "x" * 79 + "…"
    assert len(key_text(["\x00" * 100] * 4, "\x07" * 100)) == 80


def test_an_exceptions_text_is_cut_and_escaped_too() -> None:
    finding = Finding(Units, Expectation("not_null", ("unit_id",)), 1, error="\x1b[31m" + "x" * 1000)
    assert len(finding.detail) == 300
    assert finding.detail.isprintable()
