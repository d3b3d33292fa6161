"""Probabilities of decisions against marks: a made-up judge whose error is known, plain loops, a bootstrap by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.stats.bootstrap import interval, resample_counts
from rubricflow.tasks.core.stats.probability import bins_of, ece, top
from rubricflow.tasks.core.stats.scores import ScoreFrame, people_marks
from rubricflow.tasks.core.stats.verdict import verdict
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.people import variety
from rubricflow.tasks.grading.evaluate.slices import Setting, slices
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


# An item on which everyone is given one grade is named, unless chance or people themselves would do the same.


SCALE = (0.0, 4.0, 1.0)


def frame(**items: tuple[np.ndarray, np.ndarray]) -> pd.DataFrame:
    """A score frame. items: people's and the machine's grades, on 0 to 4."""
    parts = [
        pd.DataFrame({"item_id": name, "target": human, "human:one": human, "raw": human, "calibrated": own})
        for name, (human, own) in items.items()
    ]
    rows = pd.concat(parts, ignore_index=True).astype({"target": float, "calibrated": float})
    ids = [f"r{i}" for i in range(len(rows))]
    none = dict.fromkeys(("low", "high", "risk"), np.nan)
    number = np.arange(len(rows))
    return rows.assign(response_id=ids, type="t", author_id=ids, route="review", row=number, cluster=number, **none)


def outcomes(**items: tuple[np.ndarray, np.ndarray]) -> dict[str, str]:
    """Item → outcome of the gate."""
    parts = slices(frame(**items), dict.fromkeys(items, SCALE))
    rows = [row for part in parts for row in variety(part, Setting({}, "m"))]
    return {row["value_of"]: verdict(row["value"], row["low"], row["high"], 2) for row in rows}


VARIED = np.arange(60) % 5


def test_the_gate_is_asked_of_every_item() -> None:
    scores = frame(a=(VARIED, VARIED), b=(VARIED, np.full(60, 2)))
    _, verdicts = figures(
        ScoreFrame(scores, [], ["one"], []), dict.fromkeys("ab", SCALE), "m", Evaluation(draws=0), Release()
    )
    rows = conform(Verdicts, verdicts).to_pandas().query("gate == 'scores_vary'")
    assert dict(zip(rows["value_of"], rows["outcome"], strict=True)) == {"a": "pass", "b": "fail"}


def test_a_constant_item_is_named_among_varied_ones() -> None:
    assert outcomes(a=(VARIED, VARIED), b=(VARIED, np.full(60, 2)), c=(VARIED, VARIED[::-1])) == {
        "a": "pass",
        "b": "fail",
        "c": "pass",
    }


def test_all_but_a_few_on_one_level_are_as_good_as_constant() -> None:
    assert outcomes(a=(VARIED, np.where(np.arange(60) < 3, 4, 2))) == {"a": "fail"}
    assert outcomes(a=(VARIED, np.where(np.arange(60) < 4, 4, 2))) == {"a": "pass"}


@pytest.mark.parametrize("human", [np.full(60, 4), np.where(np.arange(60) < 2, 3, 4)])
def test_a_constant_is_no_fault_where_people_hardly_differ(human: np.ndarray) -> None:
    assert outcomes(a=(human, np.full(60, 4))) == {}


def test_a_few_responses_on_one_level_may_be_chance() -> None:
    human = np.array([4, 4, 4, 2, 3])
    assert outcomes(a=(human, np.full(5, 4))) == {}


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(40, 200), st.integers(0, 4), st.floats(0.05, 0.8))
def test_a_constant_never_passes_and_is_named_where_people_differ(
    seed: int, n: int, level: int, commonest: float
) -> None:
    rng = np.random.default_rng(seed)
    human = np.where(rng.random(n) < commonest, level, rng.integers(0, 5, n))
    found = outcomes(a=(human, np.full(n, level)))
    mode = np.bincount(human).max() / n
    assert found == ({"a": "fail"} if mode**n <= 0.05 else {})


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_a_machine_that_is_as_people_are_is_hardly_ever_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(5, 0.5))
    human, own = (rng.choice(5, 80, p=shares) for _ in range(2))
    found = outcomes(a=(human, own))
    if np.bincount(own, minlength=5).max() < 0.95 * 80:
        assert found == {"a": "pass"}
