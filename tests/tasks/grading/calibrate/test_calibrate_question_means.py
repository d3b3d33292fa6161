"""Scores that know a question's mean and nothing of its answers are not released, whatever is promised."""

from __future__ import annotations

import numpy as np
import pytest
from labels_scene import labelled_rows, rules_of

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.grading.calibrate.release import Rules, Scope, reasons
from rubricflow.tasks.grading.calibrate.rows import RiskRows

SCALE = Scale(min=0, max=4)


def rules(seed: int, knows: float, items: int, each: int, by: str = "set", authors: int = 0) -> Rules:
    """Questions of different means; the score is people's own with the chance `knows`, else that of another answer to
    the question."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(items), each)
    human = np.clip(np.round(rng.uniform(0.5, 3.5, items)[item] + rng.normal(0, 0.7, len(item))), 0, 4)
    level = human.copy()
    for index in range(items):
        rows = np.flatnonzero((item == index) & (rng.random(len(item)) >= knows))
        level[rows] = level[rng.permutation(rows)]
    size, who = len(item), rng.integers(0, authors, len(item)) if authors else np.arange(len(item))
    names = tuple(f"q{index}" for index in range(items))
    labels = labelled_rows(level, human, SCALE, items=names, high=4.0, item=item, cluster=who.astype(np.str_))
    wrong = np.abs(human - level) > 2
    risk = RiskRows(level, np.full(size, 0.1), rng.random(size), wrong, np.zeros(size, dtype=np.bool_))
    release = Release.model_validate({"tolerance": 0, "risk": 0.2, "by": by})
    return rules_of(Scope(labels, risk), release)


@pytest.mark.parametrize(("items", "each", "authors"), [(2, 40, 0), (10, 10, 0), (9, 25, 25), (50, 4, 0)])
def test_with_labels_permuted_inside_questions_nothing_is_released(items: int, each: int, authors: int) -> None:
    found = [rules(seed, 0.0, items, each, authors=authors) for seed in range(60)]
    released = sum(one.promises[0].threshold is not None for one in found)
    assert released <= 0.05 * len(found)
    refused = next(one for one in found if one.promises[0].threshold is None)
    assert refused.new is None
    # Of an item whose few answers are nearly all alike nothing is asked in the first place.
    assert {rule.refused for rule in refused.items.values()} - {"asks_nothing"} == {"question_means"}


@pytest.mark.parametrize("by", ["set", "item"])
def test_a_score_that_knows_answers_is_not_refused(by: str) -> None:
    for seed in range(6):
        assert all(one.refused != "question_means" for one in rules(seed, 0.8, 4, 60, by).promises)


def test_of_one_question_there_are_no_question_means() -> None:
    assert rules(1, 0.0, 1, 100).promises[0].refused != "question_means"


def test_every_answer_waits_under_the_name_of_the_reason() -> None:
    rule = next(iter(rules(3, 0.0, 5, 40, "item").items.values()))
    no, score = np.zeros(2, dtype=np.bool_), np.array(rule.levels[:2])
    assert reasons(score, no, no, no, np.zeros(2), rule).to_pylist() == ["question_means"] * 2
