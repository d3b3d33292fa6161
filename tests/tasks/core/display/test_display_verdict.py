"""The one verdict: it counts every answer once, and what it says of release never contradicts what it says of gates;
why an answer waits: a plain sentence for every reason, with the number that decides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from builders import studies
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.display.verdict import (
    ReleaseVerdict,
    by_scope,
    needs_of,
    release_needs,
    too_small_words,
    verdict,
    wanted_words,
    why_waits,
    wrong_words,
)
from rubricflow.tasks.core.stats.promise import MarkedAnswers, promise, promise_needs

KINDS = ("machine", "person", "cannot_be_judged", "waits")
COUNTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.booleans(), st.sampled_from(sorted(ROUTE_REASONS)), st.integers(1, 900)),
    max_size=9,
)
OUTCOMES = st.sampled_from(["pass", "fail", "undecided", "unknown"])


def final(decided_by: str, n: int, **more: Any) -> dict[str, Any]:
    usual = {"settled_by": None, "scored": True, "route_reason": None, "unscored_reason": None}
    return usual | {"decided_by": decided_by, "n": n} | more


def gate(name: str, outcome: str, estimate: float | None = -0.3, **more: Any) -> dict[str, Any]:
    row = {"gate": name, "slice": "all", "value_of": "all", "outcome": outcome, "estimate": estimate, "n": 64}
    return row | {"low": 0.035, "high": 0.19} | more


RULE = {"scope": "all", "target": 0.2, "confidence": 0.9, "threshold": 0.1, "n": 120}
OFF = "more than 3 of 10 points off"


def judged(*rows: dict[str, Any], gates: tuple[dict[str, Any], ...] = (), **rule: Any) -> ReleaseVerdict:
    return verdict(rows, [RULE | rule], gates, OFF)


@given(COUNTS, OUTCOMES)
def test_every_answer_is_counted_once_and_the_sentence_says_the_counts(
    drawn: list[tuple[str, bool, str, int]], second: str
) -> None:
    rows = [final(kind, n, scored=scored, route_reason=why) for kind, scored, why, n in drawn]
    found = judged(*rows, gates=(gate("released_errors", "pass"), gate("degradation_qwk", second)))
    waits = sum(found.waiting.values())
    of = {kind: sum(n for one, _, _, n in drawn if one == kind) for kind in KINDS}
    held_back = sum(n for kind, _, why, n in drawn if (kind, why) == ("waits", "promise_broken"))
    assert (found.released, waits, found.held_back) == (of["machine"], of["waits"], held_back)
    unjudged = of["cannot_be_judged"]
    assert found.by_people == of["person"]
    assert found.answers == found.released + waits + found.by_people + unjudged
    assert ("cannot be judged" in found.sentence) == (unjudged > 0)
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", found.sentence)]
    assert set(numbers) <= {found.by_people, unjudged, found.released, waits, found.released + waits, held_back}
    assert [*found.waiting.values()] == sorted(found.waiting.values(), reverse=True)
    # Scores go out, or are held back, and nothing else in the verdict says the opposite.
    goes_out = re.search(r"Release (all|the one|[\d,]+)\b", found.sentence) is not None
    assert goes_out == (found.released > 0 and not held_back)
    assert ("Hold " in found.sentence) == (held_back > 0)
    assert bool(found.promise) == (found.released + held_back > 0)
    assert not re.search("release|only as a check", found.caution, re.IGNORECASE)
    # What has no score is not called one.
    if any(kind == "waits" and not scored for kind, scored, _, _ in drawn):
        sentence = found.sentence.replace("people's scores", "").replace("has a score", "").replace("no score", "")
        assert "score" not in sentence


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([final("machine", 120), final("waits", 280)], "Release 120 of 400 scores; people should grade the other 280."),
        ([final("machine", 5)], "Release all 5 scores."),
        ([final("waits", 400)], "Release none of 400 scores: people should grade them all."),
        ([final("waits", 9, scored=False)], "None of 9 answers has a score: people should grade them all."),
        ([final("person", 4)], "4 answers have people's scores."),
        (
            [final("person", 4), final("waits", 2, scored=False)],
            "4 answers have people's scores. None of 2 other answers has a score: people should grade them all.",
        ),
        (
            [final("machine", 3), final("waits", 1), final("waits", 1, scored=False)],
            "Release 3 of 5 answers; people should grade the other 2.",
        ),
        (
            [final("waits", 3, route_reason="promise_broken"), final("waits", 2, route_reason="risk")],
            "Hold all 5 scores back: of the 3 that would go out, too many are wrong.",
        ),
        (
            [final("waits", 1, route_reason="promise_broken")],
            "Hold the score back: of the 1 that would go out, too many are wrong.",
        ),
        (
            [final("person", 4), final("machine", 3), final("waits", 2)],
            "4 answers have people's scores. Release 3 of 5 other scores; people should grade the other 2.",
        ),
        ([], "There was nothing to score."),
    ],
)
def test_one_sentence_decides(rows: list[dict[str, Any]], said: str) -> None:
    assert judged(*rows).sentence == said


def test_the_promise_names_scale_risk_and_limit_together() -> None:
    found = judged(final("machine", 120), gates=(gate("released_errors", "pass", 0.094),))
    assert found.promise == (
        "Promise: at most 20% of released scores are more than 3 of 10 points off (90% confidence, from 120 marked "
        "answers). Of 64 held-out ones, 9.4% were (95% interval 3.5 to 19%)."
    )
    assert "No held-out answer tells" in judged(final("machine", 120)).promise
    assert "for 1 of 2 questions" in verdict([final("machine", 1)], [RULE, RULE | {"threshold": None}], [], OFF).promise


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ([], ""),
        ([gate("degradation_qwk", "undecided")], ""),
        ([gate("degradation_exact", "fail")], "should."),
        ([gate("machine_qwk", "fail"), gate("rubric", "fail", -0.1)], "and no better than a model of the words alone."),
        ([gate("rubric", "undecided", -0.1, value_of="mean over items")], "no better than a model of the words alone."),
        ([gate("rubric", "pass", 0.1)], ""),
        ([gate("rubric", "undecided", None)], ""),
        ([gate("within_questions", "fail")], "Not shown to tell answers to one question apart"),
        ([gate("degradation_qwk", "fail", slice="item", value_of="q1")], ""),
    ],
)
def test_gates_bound_what_the_machine_is_good_for(gates: list[dict[str, Any]], said: str) -> None:
    found = judged(final("machine", 1), gates=tuple(gates)).caution
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("tolerance", "scales", "said"),
    [
        (1, [(0, 10, 1)], "more than 1 of 10 points off"),
        (2, [(0, 60, 0.5)] * 2, "more than 1 of 60 points off"),
        (1, [(1, 6, 1)], "more than 1 of 5 points off"),
        (1, [(0, 3, 1), (0, 60, 1)], "more than 1 step of the scale off"),
        (0, [(0, 10, 1)], "not exactly the human score"),
    ],
)
def test_a_distance_names_its_scale(tolerance: float, scales: list[Any], said: str) -> None:
    assert wrong_words(tolerance, scales) == said


def test_why_an_answer_waits_is_what_people_said_before_what_the_machine_found() -> None:
    found = judged(
        final("waits", 3, route_reason="risk"),
        final("waits", 2, scored=False, route_reason="unscored", unscored_reason="no_reply"),
        final("waits", 1, settled_by="open", route_reason="risk"),
    )
    assert [*found.waiting.values()] == [3, 2, 1]
    assert "nothing yet: open" in found.waiting


OURS = ("vouch", "latent", "shard", "calibration", "clip", "label", "threshold", "precheck", "_")


def answer(**changes: object) -> dict[str, object]:
    return {"item_id": "q1", "route_reason": "risk", "risk": 0.24, "unscored_reason": None} | changes


@pytest.mark.parametrize("reason", ROUTE_REASONS)
def test_every_reason_has_a_plain_sentence(reason: str) -> None:
    for words in (ROUTE_REASONS[reason], why_waits(answer(route_reason=reason), {})):
        assert len(words.split()) >= 2
        assert not any(jargon in words for jargon in OURS)


def test_the_rule_of_the_question_comes_before_that_of_all() -> None:
    limits = {"all": 0.2, "q1": 0.13}
    rules = by_scope({"scope": scope, "threshold": most, "note": None} for scope, most in limits.items())
    assert why_waits(answer(), rules).endswith("risk 24%, limit 13%")
    assert why_waits(answer(item_id="q2"), rules).endswith("risk 24%, limit 20%")
    none = {"all": {"threshold": None, "note": "too few marked answers to promise anything: 45 needed, 12 here"}}
    assert why_waits(answer(route_reason="no_promise"), none) == none["all"]["note"]


@given(st.floats(0, 1), st.floats(0, 1))
def test_two_numbers_that_read_the_same_are_not_set_against_each_other(risk: float, most: float) -> None:
    words = why_waits(answer(risk=risk), {"all": {"threshold": most, "note": None}})
    estimate, _, limit = words.partition(", ")
    assert limit.removeprefix("limit ") != estimate.rpartition(" ")[2]


def test_what_has_no_score_says_why() -> None:
    for reason, words in UNSCORED_REASONS.items():
        assert why_waits(answer(route_reason="unscored", unscored_reason=reason), {}) == f"no score: {words}"
    assert why_waits(answer(route_reason="new"), {}) == "not released"


# What marked answers suffice for, in words, before anything is graded.


WORDS = 50
"""Words of an answer."""


def told(*items: tuple[int, int], answers: int = 1000, **settings: Any) -> list[str]:
    """Findings about questions of so many answers; items: how many of them are marked, and how many of those count."""
    groups = [MarkedAnswers(f"q{at}", answers, *counts, WORDS * answers) for at, counts in enumerate(items)]
    return [f"{kind} {message}" for kind, _, message in release_needs(studies.study(**settings), groups)]


def test_a_set_with_too_few() -> None:
    first, second = told((12, 6), (14, 7), release={"by": "set"}, split={"per": "set", "calibration": 100})
    assert first == (
        "warning a promise of at most 5% wrong at 90% confidence takes 45 marked answers without an error: "
        "45 needed, 13 here"
    )
    assert second == (
        "warning split.calibration wishes for 100 marked answers; 13 of 26 marked answers count, 13 are held out to "
        "test the scores: with split: {cross: true} all 26 would count, and test the scores, too"
    )


def test_a_set_with_enough() -> None:
    (only,) = told((200, 100), release={"by": "set"}, split={"per": "set", "calibration": 100})
    assert only.startswith("ok ")
    assert only.endswith("45 needed, 100 here")


def test_by_item_the_poorest_is_named() -> None:
    first, *_ = told((200, 100), (20, 10), release={"by": "item", "risk": 0.1, "confidence": 0.95})
    assert first.endswith("for every question by itself: 29 needed, 1 of 2 questions have fewer, 'q1' 10")


def test_without_marks_nothing_is_promised() -> None:
    assert told((0, 0)) == ["warning no answer is marked by people: nothing is calibrated, and no score is released"]


def test_a_class_too_small_for_any_promise_is_told_so_with_the_time_that_marking_takes() -> None:
    for by in ("set", "item"):
        *_, last = told((20, 20), answers=40, release={"by": by}, split={"cross": True})
        small = "warning This class is too small for any promise: it takes 45 marked answers, and all answers together "
        small += "are 40."
        work = " To read and mark all 40 takes a person about 23 min, at 200 words a minute and 20 s for each mark."
        assert last == small + work
        assert told((40, 40), answers=40, release={"by": by}, split={"cross": True})[-1] == small


def test_questions_too_small_for_promises_of_their_own_may_do_together() -> None:
    *_, last = told((30, 30), (30, 30), answers=30, release={"by": "item"}, split={"cross": True})
    assert "Every question has fewer than 45 answers in all" in last
    assert "release.by: set" in last
    assert "release.by: set" not in told((9, 9), (9, 9), answers=9, split={"cross": True})[-1]


@given(
    st.floats(0.01, 0.5), st.floats(0.55, 0.99), st.lists(st.integers(0, 400), min_size=1, max_size=5), st.booleans()
)
def test_the_figure_is_the_fewest_marks_that_a_promise_is_ever_made_from(
    risk: float, confidence: float, sizes: list[int], by_item: bool
) -> None:
    items = [MarkedAnswers(f"q{at}", size, size, size, WORDS * size) for at, size in enumerate(sizes)]
    needs = promise_needs(items, risk, confidence, by_item)
    assert [need.scope for need in needs] == ([item.item_id for item in items] if by_item else ["all"])
    assert sum(need.counting for need in needs) == sum(sizes)
    for need in needs:
        made = promise([0.1] * need.counting, [False] * need.counting, risk, confidence)
        assert (made.threshold is not None) == (need.counting >= need.needed)
    release = studies.study(
        release={"risk": risk, "confidence": confidence, "by": "item" if by_item else "set"}
    ).release
    assert needs_of(release, items) == needs
    assert bool(too_small_words(needs)) == any(need.answers < need.needed for need in needs)
    assert f"{needs[0].needed:,} needed" in wanted_words(risk, confidence, needs)
