"""Scores that no answer can get, against trying every answer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from builders.keys import counting, criterion, locked, rubric
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.grading.lock.lint import lint, unreachable


@settings(max_examples=20)
@given(st.data())
def test_what_cannot_be_reached_is_what_no_answer_gets(data: Any) -> None:
    names = ["a", "b", "c", "d"]
    steps = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=3).filter(any))
    needs = tuple(data.draw(st.lists(st.sampled_from(names[:3]), unique=True, max_size=2)))
    parts = [criterion(name, parent="K") for name in names[:3]]
    excludes = ("a",) if data.draw(st.booleans()) and len(steps) < 3 and "a" not in needs and "b" not in needs else ()
    parts[1] = parts[1].model_copy(update={"excludes": excludes})
    beside = criterion("d", weight=data.draw(st.sampled_from([-1.0, 1.0, 2.0])))
    made = counting("K", [0.0, *itertools.accumulate(steps)], needs=needs), *parts, beside
    top = data.draw(st.integers(2, 8))
    bundle = locked(*made, top=top)
    answers = itertools.product(range(3), repeat=4)
    found = {score(bundle, dict(zip(names, levels, strict=True))).score for levels in answers}
    assert unreachable(rubric(*made, top=top)) == sorted(set(range(top + 1)) - found)


@pytest.mark.parametrize(
    ("points", "needs", "said"),
    [
        ([0, 1, 1, 2, 3], (), []),
        ([0, 0, 3], (), ["rubric: by its counts no answer can get 1, 2"]),
        ([0, 1, 2, 3], ("P0", "P1"), ["rubric: by its counts no answer can get 1"]),
    ],
)
def test_the_linter_says_which_scores_a_count_skips(
    points: list[float], needs: tuple[str, ...], said: list[str]
) -> None:
    words = ["heat", "light", "sound", "water"]
    parts = [criterion(f"P{n}", parent="K", text=f"Names {word}.") for n, word in enumerate(words)]
    assert lint(rubric(counting("K", points, needs=needs, text="How many sources of energy?"), *parts)) == said


def test_a_rubric_of_many_sums_is_not_gone_through() -> None:
    beside = [criterion(f"c{n}", weight=1 + n / 97) for n in range(40)]
    assert unreachable(rubric(counting("K", [0, 3]), criterion("a", parent="K"), *beside, top=3)) == []
