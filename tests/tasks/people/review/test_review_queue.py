"""Who is asked about, in which order, and why."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.judge import Doubt
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.people import NextLabels, Queue
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.review.task import cells_of, label_queue
from rubricflow.tasks.people.review.waiting import proposed, score_queue, waiting_scores

NAN = np.nan


def grid(responses, concepts, top=2):
    criteria = [Criterion(id=f"C{k}", trait="t", text="?", levels=tuple("abcdefg"[: top + 1])) for k in range(concepts)]
    return cells_of({f"r{i}": "R" for i in range(responses)}, {"R": criteria})


def annotator(levels, probabilities=None, ungrounded=()):
    levels = np.array(levels, float).ravel()
    return pd.DataFrame(
        {
            "level": np.where(levels < 0, NAN, levels),
            "probability": np.array(probabilities or [NAN] * len(levels), float),
            "ungrounded": np.isin(np.arange(len(levels)), ungrounded),
        }
    )


def queue(cells, a, b, human=(), **plan):
    human = {f"r{i}": share for i, share in enumerate(human) if share is not None}
    rows = label_queue(cells, (a, b), human, Doubt(**{"audit": 0, **plan}))
    conform(Queue, rows)
    return rows


def test_doubt_follows_the_worked_numbers():
    cells = grid(5, 2)
    a = annotator([[0, 1], [1, -1], [2, 2], [-1, 1], [2, 1]], [NAN] * 4 + [0.8, NAN] + [NAN] * 4, ungrounded=[8])
    b = annotator([[2, 1], [2, 1], [2, 2], [-1, 1], [2, 1]], [NAN] * 4 + [0.5, NAN] + [NAN] * 4, ungrounded=[8, 9])
    rows = queue(cells, a, b)
    assert {row["response_id"]: (row["priority"], row["reasons"], row["criteria"], row["why"]) for row in rows} == {
        "r0": (1.0, ["annotators_disagree"], ["C0"], "Annotators 2 levels apart on C0"),
        "r1": (
            pytest.approx(0.75 + 0.5),
            ["annotators_disagree", "unscored"],
            ["C0", "C1"],
            "Annotators 1 level apart on C0",
        ),
        "r2": (pytest.approx(0.2 * 0.5), ["low_probability"], ["C0"], "Probability 0.50 of the level of C0"),
        "r3": (1.0, ["unscored"], ["C0"], "No level from both annotators for C0"),
        "r4": (
            pytest.approx(1 - 0.75**2 + 0.25),
            ["ungrounded"],
            ["C0", "C1"],
            "Evidence does not hold for C0 and 1 more",
        ),
    }
    assert [row["response_id"] for row in rows] == ["r1", "r0", "r3", "r4", "r2"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]


def test_evidence_on_one_concept_adds_up_without_passing_one():
    a = annotator([0], [0.5], ungrounded=[0])
    both = queue(grid(1, 1), a, annotator([1], [0.5], ungrounded=[0]))[0]
    assert both["priority"] == pytest.approx(1 - 0.25 * 0.75**2 * 0.75)
    assert both["reasons"] == ["annotators_disagree", "ungrounded", "low_probability"]


def test_a_certain_annotator_does_not_silence_a_doubtful_one():
    row = queue(grid(1, 1), annotator([1], [1.0]), annotator([1], [0.59]))[0]
    assert (row["reasons"], row["priority"]) == (["low_probability"], 0)
    assert not queue(grid(1, 1), annotator([1], [1.0]), annotator([1], [0.6]))
    assert not queue(grid(1, 1), annotator([1], [0.4]), annotator([1], [0.4]), probability=0.3)


def test_far_from_the_human_score_is_a_reason_of_its_own():
    a = b = annotator([[2, 2], [2, 2], [1, 1], [-1, -1], [2, 2]])
    rows = queue(grid(5, 2), a, b, [0.2, 0.8, 0.4, 1.0, None], human_gap=0.3)
    assert [(row["response_id"], row["reasons"]) for row in rows] == [
        ("r3", ["unscored"]),
        ("r0", ["against_human"]),
    ]
    assert rows[1]["priority"] == pytest.approx(0.8)
    assert rows[1]["why"] == "Annotators' levels lie 80% of the scale from the human score"
    assert rows[1]["criteria"] == []


def test_ties_go_by_response_and_most_keeps_the_first():
    levels = [[1, 0], [0, 1]] * 10
    rows = queue(grid(20, 2), annotator(levels), annotator([[1, 1]] * 20))
    assert [row["response_id"] for row in rows] == sorted(f"r{i}" for i in range(20))
    kept = queue(grid(20, 2), annotator(levels), annotator([[1, 1]] * 20), most=3)
    assert kept == rows[:3]
    assert queue(grid(20, 2), annotator(levels), annotator([[1, 1]] * 20), most=99) == rows


def test_the_audit_is_drawn_by_chance_but_always_the_same():
    n = 4000
    a = b = annotator([1] * n)
    drawn = {row["response_id"] for row in queue(grid(n, 1), a, b, audit=0.1)}
    assert abs(len(drawn) / n - 0.1) < 4 * np.sqrt(0.09 / n)
    fewer = {
        row["response_id"] for row in queue(grid(1000, 1), annotator([1] * 1000), annotator([1] * 1000), audit=0.1)
    }
    assert fewer == {response for response in drawn if int(response[1:]) < 1000}
    other = {row["response_id"] for row in queue(grid(n, 1), a, b, audit=0.1, seed=1)}
    assert len(drawn & other) < 0.3 * len(drawn)
    assert len(queue(grid(n, 1), a, b, audit=1)) == n
    assert not queue(grid(n, 1), a, b, audit=0)


def test_the_audit_keeps_its_share_of_a_short_queue():
    n = 1000
    a, b = annotator([0] * n), annotator([1] * (n // 2) + [0] * (n // 2))
    rows = queue(grid(n, 1), a, b, audit=0.1, most=50)
    reasons = [row["reasons"] for row in rows]
    assert reasons == [["annotators_disagree"]] * 45 + [["audit"]] * 5
    assert [row["rank"] for row in rows] == list(range(1, 51))
    audited = [row["response_id"] for row in rows[45:]]
    assert audited != sorted(row["response_id"] for row in queue(grid(n, 1), a, b, audit=0.1)[500:])[:5]
    assert len(queue(grid(n, 1), a, b, audit=0.1, most=1)) == 1
    rest = queue(grid(n, 1), annotator([0] * n), annotator([1] + [0] * (n - 1)), audit=0.1, most=50)
    assert [row["reasons"] for row in rest] == [["annotators_disagree"]] + [["audit"]] * 49


@settings(max_examples=50)
@given(st.data())
def test_more_evidence_never_lowers_a_priority(data):
    top = data.draw(st.integers(1, 4))
    level = st.lists(st.integers(-1, top), min_size=4, max_size=4)
    chance = st.lists(st.floats(0, 1), min_size=4, max_size=4)
    a, b = data.draw(level), data.draw(level)
    shares = [data.draw(chance) for _ in "ab"]
    rows = {row["response_id"]: row for row in queue(grid(2, 2, top), annotator(a, shares[0]), annotator(b, shares[1]))}
    for i in range(2):
        own = slice(2 * i, 2 * i + 2)
        certain = a[own] == b[own] and min(a[own]) >= 0 and min(*shares[0][own], *shares[1][own]) >= 0.6
        assert (f"r{i}" in rows) == (not certain)
    assert all(0 <= row["priority"] <= 2 for row in rows.values())
    assert all(
        one["priority"] >= next_["priority"] for one, next_ in pairwise(sorted(rows.values(), key=lambda r: r["rank"]))
    )
    with_failed = {
        row["response_id"]: row["priority"]
        for row in queue(grid(2, 2, top), annotator(a, shares[0], [0, 1, 2, 3]), annotator(b, shares[1]))
    }
    assert all(with_failed[response] >= row["priority"] for response, row in rows.items())


def test_scores_are_asked_about_by_risk():
    rows = [
        ("r1", "release", 0.9, None),
        ("r2", "review", 0.2, "risk"),
        ("r4", "review", None, "unscored"),
        ("r3", "review", None, "uncalibrated"),
        ("r5", "review", 0.7, "weak_evidence"),
        ("r2", "review", 0.3, "no_promise"),
        ("r6", "review", 1.0, "something new"),
    ]
    names = ("response_id", "route", "risk", "route_reason")
    rules = {"all": {"threshold": 0.1, "note": None}}
    table = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    for name in ("item_id", "unscored_reason"):
        table = table.append_column(name, pa.array(["x"] * len(rows)))
    found = score_queue(table, rules)
    assert [row["response_id"] for row in found] == ["r6", "r5", "r2", "r3", "r4"]
    assert found[3]["why"] == ROUTE_REASONS["uncalibrated"].capitalize()
    assert found[1]["why"] == "Points given on too few words of the answer; estimated risk 70%"
    assert score_queue(table.slice(1, 1), rules)[0]["why"].endswith("risk 20%, limit 10%")
    assert score_queue(table.slice(0, 1), rules) == []


def test_nothing_to_ask_about():
    empty = cells_of({}, {})
    assert label_queue(empty, (annotator([]), annotator([])), {}, Doubt()) == []


# What waits for people in a graded run.


def predicted(name: str, route: str, risk: float) -> dict[str, object]:
    row = {"response_id": name, "item_id": "i", "rater_id": "m", "split": "test", "clipped": False}
    return row | {"route": route, "route_reason": "risk" if route == "review" else None, "risk": risk}


def graded(folder: Path, *asked: str) -> Run:
    """A run with two scores that were not released and two that were; asked: what `next` proposed, if anything."""
    routes = {"a": ("review", 0.2), "b": ("review", 0.4), "c": ("release", 0.1), "d": ("release", 0.1)}
    run = Warehouse.open(folder).run("graded")
    predictions = [predicted(name, *route) for name, route in routes.items()]
    run.commit("calibrate", "all", {Predictions: predictions, ReleaseRules: []})
    if asked:
        row = {"item_id": "i", "sampled": "drawn", "gain": 0.1, "why": "by chance"}
        rows = [row | {"response_id": name, "rank": rank} for rank, name in enumerate(asked, 1)]
        run.commit("next", "all", {NextLabels: rows[::-1]})
    return run


def ids(cases: list[dict[str, object]]) -> list[object]:
    return [case["response_id"] for case in cases]


def test_without_a_proposal_what_was_not_released_waits_riskiest_first(tmp_path: Path) -> None:
    run = graded(tmp_path / "w")
    assert proposed(run) == []
    assert ids(waiting_scores(run)) == ["b", "a"]


def test_what_next_proposes_comes_first_and_once(tmp_path: Path) -> None:
    run = graded(tmp_path / "w", "d", "a")
    cases = waiting_scores(run)
    assert ids(cases) == ["d", "a", "b"]
    assert {case["subject_kind"] for case in cases} == {"score"}
    assert [case["why"] for case in cases][:2] == ["by chance", "by chance"]
