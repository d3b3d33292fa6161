"""What marked answers suffice for, in words, before anything is graded."""

from __future__ import annotations

from typing import Any

from builders import studies
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.display.verdict import needs_of, release_needs, too_small_words, wanted_words
from rubricflow.tasks.core.stats.promise import MarkedAnswers, promise, promise_needs

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
