"""What stands before the headline: a judge that tells no answers apart, and agreement by question means alone."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.grading.report.answers import destination
from rubricflow.tasks.grading.report.counts import QUERIES
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.verdict import alike, inside, outcome, three_kinds


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from([0.0, 1.0, 2.0])), max_size=60))
def test_answers_with_their_questions_most_frequent_score_are_counted(rows: list[tuple[str, float]]) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE predictions (item_id TEXT, raw DOUBLE, route_reason TEXT)")
        for row in [*rows, ("p", None)]:
            connection.execute("INSERT INTO predictions VALUES (?, ?, NULL)", row)
        connection.execute("INSERT INTO predictions VALUES ('p', 9, 'precheck')")
        found = connection.sql(QUERIES["alike"]).fetchall()
    expected = []
    for item in "pq":
        scores = [score for name, score in rows if name == item]
        if len(scores) > 1:
            expected.append((len(scores), max(scores.count(score) for score in scores)))
    assert found == expected


@pytest.mark.parametrize(
    ("answers", "same", "told"), [(100, 95, True), (100, 94, False), (5, 5, True), (4, 4, False), (0, 0, False)]
)
def test_a_judge_that_says_the_same_of_every_answer_is_told(answers: int, same: int, told: bool) -> None:
    judged = [{"answers": answers, "same": same}] if answers else []
    assert bool(alike(judged)) == told
    if told:
        assert str(same) in alike(judged)


ASKED, REFUSED = {"refused": None}, {"refused": "question_means"}


def within(value: float | None, low: float | None, n: int = 200) -> Figures:
    row: dict[str, Any] = {"metric": "within_r", "rater_a": "target", "rater_b": "m", "stage": "calibrated"}
    row |= {"slice": "all", "value_of": "all", "value": value, "low": low, "high": 0.5 if low is not None else None}
    return Figures([row | {"n": n, "resampled": "response", "clusters": 200, "undefined_draws": 0, "note": None}])


def test_agreement_by_question_means_alone_is_told() -> None:
    assert inside(within(0.3, 0.01), [ASKED], 0) == ""
    assert "−0.04" in inside(within(-0.04, -0.15), [ASKED], 0)
    assert inside(within(0.3, 0.0), [ASKED], 0)
    assert inside(within(None, None), [ASKED], 0)
    assert inside(Figures([]), [ASKED], 0) == ""


@pytest.mark.parametrize("low", [-0.15, 0.0, 0.01, None])
def test_the_headline_speaks_of_question_means_alone_where_nothing_is_released_for_them_and_nowhere_else(
    low: float | None,
) -> None:
    held_out = within(None if low is None else 0.3, low)
    assert "question means alone" in inside(held_out, [ASKED, REFUSED], 0)
    for released in (0, 9):
        assert "question means alone" not in inside(held_out, [ASKED], released)
    assert "held\u2011out answers alone" in (inside(held_out, [ASKED], 9) or "held\u2011out answers alone")


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["release", "review"])), max_size=30))
def test_every_answer_is_marked_by_people_or_may_go_out_or_waits(answers: list[tuple[bool, bool, str]]) -> None:
    rows = [
        {"by_people": marked, "scored": scored, "route": route, "route_reason": "risk", "unscored_reason": None, "n": 1}
        for marked, scored, route in answers
    ]
    found = outcome(rows, "")
    assert found.marked == sum(marked for marked, _, _ in answers)
    assert found.marked + found.released + found.review + found.unscored == len(answers)
    said = three_kinds(found)
    assert bool(said) == bool(found.marked)
    if 0 < found.marked < len(answers):
        kinds = (found.marked, found.released or "none", found.review + found.unscored or "none")
        assert said.startswith(f"Of {len(answers)} answers, ")
        assert [word for word in said.replace(",", "").split()[3:] if word.isdigit() or word == "none"] == [
            str(kind) for kind in kinds
        ]


@pytest.mark.parametrize("reason", sorted(ROUTE_REASONS))
def test_no_reason_for_waiting_is_given_of_a_marked_answer(reason: str) -> None:
    row = {"item_id": "q", "route": "review", "route_reason": reason, "risk": 0.4, "raw": 2.0, "calibrated": 2.0}
    assert ROUTE_REASONS[reason] in destination(row, {}, 1.0)
    assert ROUTE_REASONS[reason] not in destination(row, {}, 1.0, marked=True)
