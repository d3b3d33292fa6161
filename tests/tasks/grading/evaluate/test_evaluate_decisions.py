"""Probabilities of decisions against marks: a made-up judge whose error is known, plain loops, a bootstrap by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.stats.bootstrap import interval, resample_counts
from rubricflow.tasks.core.stats.probability import bins_of, ece, top
from rubricflow.tasks.core.stats.scores import people_marks
from rubricflow.tasks.grading.evaluate.slices import Setting
from rubricflow.tasks.grading.evaluate.task import decided, decision_figures, ece_interval

KINDS = {("a", "P1"): "gold_point", ("a", "M1"): "misconception"}


def mark(response: str, criterion: str, rater: str, level: int | None, kind: str = "human") -> dict[str, object]:
    return {
        "response_id": response,
        "criterion_id": criterion,
        "rater_id": rater,
        "rater_kind": kind,
        "decision": level,
    }


def batch(rows: list[tuple[str, str, list[float] | None]]) -> pa.RecordBatch:
    ids, criteria, likely = zip(*rows, strict=True)
    columns = {"response_id": ids, "criterion_id": criteria}
    arrays = [pa.array(column, pa.string()) for column in columns.values()]
    return pa.record_batch([*arrays, pa.array(likely, pa.list_(pa.float64()))], [*columns, "level_probabilities"])


RESPONSES = pd.DataFrame({"response_id": ["r1", "r2"], "item_id": ["a", "a"], "cluster": [0, 1]})


def test_the_target_raters_marks_are_taken_where_that_rater_marked() -> None:
    marks = pa.Table.from_pylist(
        [
            mark("r1", "P1", "anna", 1),
            mark("r1", "P1", "ben", 0),
            mark("r2", "P1", "anna", None),
            mark("r2", "P1", "resolved", 1, "adjudication"),
        ]
    )
    assert people_marks(marks, "anna")["rater_id"].to_pylist() == ["anna"]
    assert people_marks(marks, "mean")["rater_id"].to_pylist() == ["anna", "ben"]
    assert people_marks(marks, "resolved")["rater_id"].to_pylist() == ["anna", "ben"]


def test_each_decision_meets_each_mark_of_it_and_nothing_else() -> None:
    marks = pa.Table.from_pylist(
        [
            mark("r1", "P1", "anna", 1),
            mark("r1", "P1", "ben", 0),
            mark("r1", "M1", "anna", 2),
            mark("r2", "P1", "anna", 1),  # the judge gives no probabilities there
            mark("r9", "P1", "anna", 1),  # not held out
        ]
    )
    judged = [
        batch([("r1", "P1", [0.3, 0.7]), ("r2", "P1", None), ("r9", "P1", [0.5, 0.5])]),
        batch([("r1", "M1", [0.2, 0.2, 0.6]), ("r2", "M1", [1.0, 0.0, 0.0])]),
    ]
    found = decided(judged, marks, RESPONSES).sort_values(["criterion_id", "correct"]).to_dict("records")
    assert [(row["criterion_id"], row["levels"], row["correct"]) for row in found] == [
        ("M1", 3, True),
        ("P1", 2, False),
        ("P1", 2, True),
    ]
    assert [row["confidence"] for row in found] == [0.6, 0.7, 0.7]
    assert found[0]["brier"] == pytest.approx(0.2**2 + 0.2**2 + 0.4**2)
    assert found[0]["ranked"] == pytest.approx((0.2**2 + 0.4**2) / 2)
    assert found[1]["log_loss"] == pytest.approx(-np.log(0.3))


def test_without_a_common_decision_there_is_no_figure() -> None:
    marks = pa.Table.from_pylist([mark("r1", "P1", "anna", 1)])
    rows = decided([batch([("r2", "P1", [0.5, 0.5])])], marks, RESPONSES)
    assert list(decision_figures(rows, KINDS, "author", Setting({}, "judge", draws=10))) == []


def test_without_any_mark_or_judgment_there_is_no_figure() -> None:
    nobody = schema(Judgments).empty_table()
    assert decided([], people_marks(nobody, "anna"), RESPONSES).empty


def made(rng: np.random.Generator, n: int, over: float) -> pd.DataFrame:
    """Decisions of a judge that is surer than it is right by `over`."""
    right = rng.uniform(0.5, 0.75, n)
    confidence, correct = right + over, rng.random(n) < right
    return pd.DataFrame(
        {
            "response_id": [f"r{i}" for i in range(n)],
            "item_id": "a",
            "criterion_id": np.where(np.arange(n) % 4, "P1", "M1"),
            "cluster": np.arange(n) % 80,
            "confidence": confidence,
            "correct": correct,
            "brier": 2 * (confidence - correct) ** 2,
            "ranked": (confidence - correct) ** 2,
            "log_loss": -np.log(np.where(correct, confidence, 1 - confidence)),
        }
    )


def test_the_rows_hold_the_known_error_by_slice_and_the_reliability_table() -> None:
    rows = made(np.random.default_rng(1), 8_000, 0.2)
    records = list(decision_figures(rows, KINDS, "author", Setting({}, "judge", draws=200)))
    table = conform(Metrics, records).to_pandas().set_index(["metric", "slice", "value_of"])
    gap = table.loc[("decision_ece", "all", "all")]
    assert gap["low"] < gap["value"] < gap["high"]
    assert gap["low"] < 0.2 < gap["high"]
    assert table.loc[("decision_ece_by_chance", "all", "all"), "value"] < 0.03
    assert table.loc[("decision_rps", "all", "all"), "value"] == pytest.approx(rows["ranked"].mean())
    misconceptions = rows[rows["criterion_id"] == "M1"]
    assert table.loc[("decision_accuracy", "kind", "misconception"), "value"] == pytest.approx(
        misconceptions["correct"].mean()
    )
    assert table.loc[("decision_brier", "item", "a"), "n"] == len(rows)
    bins = table.xs(("decision_accuracy", "confidence"), level=("metric", "slice"))
    assert list(bins.index) == [f"{at:02d}" for at in range(1, 11)]
    assert bins["n"].sum() == len(rows)


def test_a_slice_of_few_decisions_has_no_figure() -> None:
    rows = made(np.random.default_rng(2), 100, 0.0)
    rows["criterion_id"] = ["M1"] * 29 + ["P1"] * 71
    kinds = {
        r["value_of"]
        for r in decision_figures(rows, KINDS, "author", Setting({}, "judge", draws=0))
        if r["slice"] == "kind"
    }
    assert kinds == {"gold_point"}


def test_the_interval_is_that_of_draws_made_by_hand() -> None:
    rng = np.random.default_rng(3)
    of = top(p := rng.dirichlet([2.0, 1.0], 300), (rng.random(300) > p[:, 0] * 0.7).astype(int))
    codes = rng.integers(0, 40, 300)
    found = ece_interval(of, codes, 500, 7)
    at, drawn = bins_of(of.confidence), []
    for counts in resample_counts(np.random.default_rng(7), 40, 500):
        weight = counts[codes]
        gaps = [abs((weight * (of.confidence - of.correct))[at == one].sum()) for one in range(at.max() + 1)]
        drawn.append(sum(gaps) / weight.sum())
    low, high = interval(np.array(drawn), 40)[:2]
    value = ece(of).value
    assert found.low == pytest.approx(max(0, 2 * value - high))
    assert found.high == pytest.approx(2 * value - low)
