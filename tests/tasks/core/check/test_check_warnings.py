"""Rules of most values: what they count, that they never stop a run, and what is said of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.check import checkpoint, suite
from rubricflow.tasks.core.check.suite import Finding, check_values, columns
from rubricflow.tasks.core.check.task import checked
from rubricflow.tasks.core.contracts.schema import TableRef, expectations, schema
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, StepPredictions
from rubricflow.tasks.core.contracts.tables.data import Responses, StepResponses
from rubricflow.tasks.core.contracts.tables.evaluation import Checks
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Comparisons, Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.store.warehouse import Run

Judged = Callable[..., tuple[Run, TableRef]]
SPACE = st.sampled_from(["", " ", "\t\n", "\u2003", "x", " x", "é", "0"])


def soft(row: Any, records: list[dict[str, Any]]) -> dict[str, Finding]:
    """The findings of the rules of most values, by column; two batches."""
    table = pa.Table.from_pylist(records, schema=pa.schema([field.with_nullable(True) for field in schema(row)]))
    found = check_values(row, table.select(columns(row)).to_batches(max_chunksize=max(1, len(records) // 2)))
    return {finding.expectation.columns[0]: finding for finding in found if finding.expectation.severity == "warning"}


def test_the_columns_that_matter_are_marked() -> None:
    marked = {(row, rule.columns[0]) for row in TABLES for rule in expectations(row) if rule.severity == "warning"}
    assert marked == {
        (Responses, "text"),
        (Responses, "author_id"),
        (StepResponses, "text"),
        (Judgments, "decision"),
        (Gradings, "score"),
        (Attempts, "error"),
        (Predictions, "clipped"),
        (StepPredictions, "clipped"),
        (Comparisons, "winner"),
        (Rewards, "reward"),
    }


@settings(max_examples=6)
@given(st.lists(st.tuples(SPACE, st.none() | st.just("a")), min_size=1, max_size=40))
def test_texts_and_authors_are_counted_as_python_counts_them(values: list[tuple[str, str | None]]) -> None:
    records = [{"response_id": str(i), "text": text, "author_id": who} for i, (text, who) in enumerate(values)]
    found = soft(Responses, records)
    for column, missing in (
        ("text", [not text.strip() for text, _ in values]),
        ("author_id", [who is None for _, who in values]),
    ):
        finding, mostly = found[column], found[column].expectation.mostly
        assert mostly is not None
        assert (finding.rows, finding.unexpected) == (len(values), sum(missing))
        assert finding.outcome == ("failed" if 1 - sum(missing) / len(values) < mostly - 1e-12 else "passed")
        assert list(finding.first) == [str(i) for i, gone in enumerate(missing) if gone][:5]


@pytest.mark.parametrize(("missing", "outcome"), [(1, "passed"), (2, "failed")])
def test_the_share_itself_is_enough_as_great_expectations_has_it(
    monkeypatch: pytest.MonkeyPatch, missing: int, outcome: str
) -> None:
    """19 of 20 are 95%. One batch, so that the outcome of Great Expectations is that of the whole."""
    theirs: dict[str, Any] = {}
    real = suite._validator

    def overheard(row: Any) -> Any:
        def validate(frame: Any) -> Iterator[Any]:
            results: Any = real(row)(frame)
            for result in results:
                theirs[result.expectation_config.meta["rule"]] = result.success
                yield result

        return validate

    monkeypatch.setattr(suite, "_validator", overheard)
    found = soft(Responses, [{"response_id": str(i), "text": "" if i < missing else "x"} for i in range(20)])
    assert found["text"].outcome == outcome
    assert theirs["mostly_filled"] == (outcome == "passed")


def test_of_gradings_only_those_of_machines_ought_to_have_a_score() -> None:
    people = [{"response_id": str(i), "rater_kind": "human", "score": None} for i in range(50)]
    machine = [{"response_id": f"m{i}", "rater_kind": "llm", "score": None if i < 3 else 1.0} for i in range(10)]
    found = soft(Gradings, people + machine)["score"]
    assert (found.rows, found.unexpected, found.outcome) == (10, 3, "failed")
    assert found.first == ("m0 / None / None", "m1 / None / None", "m2 / None / None")
    assert soft(Gradings, people)["score"].outcome == "passed"


@pytest.mark.parametrize(
    ("row", "column", "good", "bad"),
    [(Attempts, "error", None, "timeout"), (Predictions, "clipped", False, True), (Judgments, "decision", 0, None)],
)
def test_the_other_marks(row: Any, column: str, good: Any, bad: Any) -> None:
    records = [{column: bad if i < 8 else good} for i in range(40)]
    found = soft(row, records)[column]
    assert (found.rows, found.unexpected, found.outcome) == (40, 8, "failed")
    assert soft(row, records[8:])[column].outcome == "passed"


def test_a_warning_is_stored_and_said_in_one_line_and_stops_nothing(
    graded: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ref = graded(faults={i: {"score": None} for i in range(30)}, rows=40)
    assert checked.fn(run, ref) is ref
    line = "check: judge: warning: gradings.score should be there in at least 95% of the rows"
    line += " where rater_kind is not human; 30 of 40 are not so\n"
    assert capsys.readouterr().err == line
    [stored] = [r for r in run.read(run.ref(Checks, "check-judge")).to_pylist() if r["severity"] == "warning"]
    assert (stored["rule"], stored["column"], stored["outcome"]) == ("mostly_not_null", "score", "failed")
    assert (stored["rows"], stored["unexpected"]) == (40, 30)
    assert not (run.folder / "quarantine").exists()


def test_a_resumed_run_says_it_again_without_checking_again(
    graded: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ref = graded(faults={0: {"score": None}})
    checked.fn(run, ref)
    first = capsys.readouterr().err
    monkeypatch.setattr(checkpoint, "check", None)
    checked.fn(run, ref)
    assert capsys.readouterr().err == first != ""


def test_a_warning_that_could_not_be_checked_stops_nothing_and_is_tried_again(
    graded: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ref = graded()
    real = suite.exception

    def raised(info: Any) -> str | None:
        return "out of order" if sys._getframe(1).f_locals["rule"].severity == "warning" else real(info)

    with monkeypatch.context() as patch:
        patch.setattr(suite, "exception", raised)
        checked.fn(run, ref)
    assert "gradings.score: 'mostly_not_null' could not run: out of order" in capsys.readouterr().err
    checked.fn(run, ref)
    assert capsys.readouterr().err == ""
    assert {r["outcome"] for r in run.read(run.ref(Checks, "check-judge")).to_pylist()} == {"passed"}
