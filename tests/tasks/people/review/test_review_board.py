"""The board's parts, and what people's acts come to, against plain ways of working them out."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from review_scene import CRITERIA, HEAD, PLAIN, case, machine_label, scene

from rubricflow.tasks.core.contracts.bundle import Criterion, Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.people.review.board import (
    NO_INTERVAL,
    GraderHead,
    PredictedScore,
    as_words,
    predicted_score,
    score_texts,
    without_score,
)
from rubricflow.tasks.people.review.ledger import Stored, digest
from rubricflow.tasks.people.review.reviews import Reviews
from rubricflow.tasks.people.review.settle import outcomes, valid_acts
from rubricflow.tasks.people.review.view import _label, show_case

CASE = case("R-0412")


@pytest.mark.parametrize(
    ("scale", "values"),
    [
        (Scale(min=1, max=3), ["1", "2", "3"]),
        (Scale(min=0, max=200, step=40), [str(40 * i) for i in range(6)]),
        (Scale(min=0, max=1, step=0.1), [f"{i / 10:g}" for i in range(11)]),
        (Scale(min=-1, max=0, step=0.5), ["-1", "-0.5", "0"]),
    ],
)
def test_a_score_is_one_of_the_scales_and_is_typed(scale: Scale, values: list[str]) -> None:
    board = scene()
    score = next(one for one in board.cases if one.subject_kind == "score")
    ballots = type(board)("s", "s", (score,), {"r": CRITERIA}, {"r": scale}, {}).ballots(score)
    assert ballots[0]["options"] == [{"value": value, "key": None, "text": ""} for value in values]
    assert ballots[0]["digest"] == digest(PLAIN, "", values)


@pytest.mark.parametrize(("levels", "is_typed"), [(10, False), (11, True)])
def test_levels_are_typed_where_a_digit_could_be_the_first_of_two(levels: int, is_typed: bool) -> None:
    counted = Criterion(id="N", trait="t", text="How many", levels=tuple(f"{i} of them" for i in range(levels)))
    board = scene((CASE,))
    (ballot,) = type(board)("s", "s", (CASE,), {"r": (counted,)}, board.scales, {}).ballots(CASE)
    assert [option["key"] for option in ballot["options"]] == [None if is_typed else str(i) for i in range(levels)]


def test_a_concept_is_voted_on_by_its_levels() -> None:
    first = scene().ballots(CASE)[0]
    words = ["no", "moves somewhere", "leaves the cells"]
    assert first["options"] == [{"value": f"{i}", "key": f"{i}", "text": text} for i, text in enumerate(words)]
    assert first["digest"] == digest(PLAIN, CRITERIA[0].text, CRITERIA[0].levels)


def test_a_case_that_is_queued_twice_is_refused() -> None:
    with pytest.raises(ContractError, match="twice"):
        scene((CASE, CASE))


@pytest.mark.parametrize(
    "changed",
    [
        {"criteria": []},
        {"criteria": ["C1", "C2"]},
        {"tops": [2, 2]},
        {"tops": [2, 0, 2]},
        {"correction": HEAD.correction[:2]},
        {"correction": [*HEAD.correction[:2], (0.1, 0.2)]},
        {"weights": HEAD.weights[:4]},
        {"weights": [(1.0,)] * 5},
        {"bias": HEAD.bias[:4]},
        {"bias": [float("nan")] * 5},
        {"scores": HEAD.scores[:4]},
        {"scores": [0.0], "weights": HEAD.weights[:1], "bias": [1.0]},
        {"temperature": 0.0},
        {"temperature": float("inf")},
        {"temperature": None},
    ],
)
def test_a_head_that_nothing_can_be_reckoned_with_is_refused(changed: dict[str, Any]) -> None:
    assert GraderHead.read(HEAD.model_dump_json()) == HEAD
    with pytest.raises(ContractError, match="head"):
        GraderHead.read(json.dumps(HEAD.model_dump() | changed))
    with pytest.raises(ContractError, match="head"):
        GraderHead.read("{}")


RATERS, VALUES = ("Ada", "Bo", "Cyd"), ("0", "1", "2", "x")
STEP = st.tuples(
    st.sampled_from(("rate", "rate", "vote", "submit", "undo", "adjudicate")),
    st.sampled_from(RATERS),
    st.tuples(*[st.sampled_from(VALUES)] * 3),
    st.sampled_from((True, True, True, False)),
)


def acts_of(steps: list[Any], digests: dict[str, str]) -> list[Stored]:
    """Steps as acts: rate votes on everything and submits; a step that is not current is about another text."""
    acts: list[Stored] = []

    def add(kind: Any, rater: str, criterion: str | None, value: str | None, digest: str, undoes: str | None) -> None:
        id, at, said = f"00000000-0000-4000-8000-{len(acts):012d}", datetime.now(UTC), "so" if value else None
        what = {"study": "science", "subject_kind": "label", "response_id": CASE.response_id, "comment": said}
        what |= {"act_id": id, "kind": kind, "criterion_id": criterion, "value": value, "rater_id": rater}
        acts.append(Stored(**what, digest=digest, undoes=undoes, number=len(acts) + 1, stored_at=at))

    for kind, rater, values, is_current in steps:
        given_to = zip(digests.items(), values, strict=True)
        votes = [(criterion, value, digest if is_current else "0" * 64) for (criterion, digest), value in given_to]
        if kind in ("vote", "adjudicate"):
            add(kind, rater, *votes[len(acts) % 3], None)
        if kind == "rate":
            for vote in votes:
                add("vote", rater, *vote, None)
        if kind in ("submit", "rate"):
            add("submit", rater, None, None, "", None)
        own = [act.act_id for act in acts if act.rater_id == rater and act.kind != "undo"]
        if kind == "undo" and own:
            add(kind, rater, None, None, "", own[-1])
    return acts


@settings(max_examples=50)
@given(st.lists(STEP, max_size=12))
def test_whatever_people_do_conflicts_are_those_of_the_labels_and_the_blind_see_nothing(steps: list[Any]) -> None:
    reviews = Reviews(scene((CASE,)))
    digests = {str(ballot["criterion_id"]): ballot["digest"] for ballot in reviews.ballots(CASE)}
    acts = acts_of(steps, digests)
    reviews.add(acts)
    reviews.add(acts)
    state = reviews.state(CASE)
    done = [rater for rater, hand in state.reviewers.items() if hand.submission]
    current = {(CASE.response_id, criterion): digest for criterion, digest in digests.items()}
    stand = valid_acts(acts, current)
    assert set(state.apart) == {on[1] for on, outcome in outcomes(stand).items() if outcome.settled_by == "open"}
    for rater in RATERS:
        view = show_case(reviews, CASE, rater)
        others = [act for act in acts if act.rater_id != rater and act.kind != "adjudicate"]
        is_second = bool(others) and others[0].number == min(a.number for a in acts if a.kind != "adjudicate")
        if is_second and rater not in done:
            assert not view["sees_machine"]
            assert view["grader"] is None
        if rater not in done:
            assert view["others"] == []
        assert {one["rater"] for one in view["others"]} <= {vote.rater_id for vote in stand.votes} - {rater}


# What a reviewer reads of a calibrated score.


ROW = {"score": 2.0, "raw": 5.0, "low": 1.0, "high": 4.0, "risk": 0.4, "unscored_reason": None}
TEN = Scale(min=0, max=10)


def test_a_score_stands_with_its_interval_its_chance_and_the_points_it_was_made_of() -> None:
    words = as_words(predicted_score(ROW | {"level_probabilities": [0.1, 0.1, 0.45, *[0.05] * 8]}, TEN), TEN)
    assert words == {
        "value": "2",
        "sentence": "2 of 10, probably between 1 and 4",
        "points": "By the judge alone: 5 of 10",
        "chance": "In about 45 of 100 such answers, a person would give exactly 2",
    }


@pytest.mark.parametrize("reason", list(UNSCORED_REASONS))
def test_without_a_score_there_is_a_reason_and_nothing_to_take(reason: str) -> None:
    words = as_words(PredictedScore(None, None, None, None, None, reason), TEN)
    assert words == without_score(UNSCORED_REASONS[reason])
    assert words["value"] is None


SCALES = st.builds(
    lambda low, step, count: Scale(min=low, max=low + step * count, step=step),
    st.integers(-3, 3).map(float),
    st.sampled_from((0.25, 0.5, 1.0, 2.0, 5.0)),
    st.integers(1, 20),
)


@given(SCALES, st.data())
def test_whatever_the_scale_the_value_is_a_vote_on_it_and_no_number_is_unreadable(
    scale: Scale, data: st.DataObject
) -> None:
    level = data.draw(st.integers(0, scale.levels - 1))
    score = scale.min + level * scale.step
    reach = data.draw(st.none() | st.floats(0, 5))
    chance = data.draw(st.none() | st.floats(0, 1))
    ends = (None, None) if reach is None else (score - reach, score + reach)
    points = data.draw(st.none() | st.floats(scale.min, scale.max))
    words = as_words(PredictedScore(score, points, *ends, chance, None), scale)
    assert words["value"] == score_texts(scale)[level]
    assert (NO_INTERVAL in words["sentence"]) == (reach is None)
    numbers = re.findall(r"-?\d[\d.e]*", " ".join(filter(None, (words["sentence"], words["points"], words["chance"]))))
    assert all(len(number) < 10 and math.isfinite(float(number.rstrip("."))) for number in numbers)
    assert "-0 " not in f"{words['sentence']} "


@pytest.mark.parametrize(
    ("look", "place"),
    [
        (None, None),
        ({"kind": "missing", "unit_id": "s4", "lacks": None}, "sentence 4"),
        ({"kind": "credit", "unit_id": "s1", "lacks": "the cause"}, "the cause"),
    ],
)
def test_a_reviewer_is_told_where_to_look_and_no_verdict(look: dict[str, Any] | None, place: str | None) -> None:
    rater, row = machine_label("judge", 0)
    shown = _label(rater, row | {"look": look}, ["0", "1", "2"], case("R-0412"))
    assert (shown["look"] is None) == (place is None)
    assert place is None or place in shown["look"]
    assert shown["value"] == "0"
