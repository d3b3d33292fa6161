"""Question policies against brute force: priorities, the order of questions over a set, and what they save."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.bottleneck import Order, Trials
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData, shares_of
from rubricflow.tasks.methods.bottleneck.intervene import (
    GAIN,
    POLICIES,
    STEPS,
    ask,
    expected_change,
    grades_after,
    oracle_values,
    order_of,
    priorities,
    saving_rows,
)
from rubricflow.tasks.methods.bottleneck.model import Head

TOPS = np.array([2, 1, 2])
K, GRADES = 3, 4


def some_levels(rng: np.random.Generator, n: int, sharp: float = 1.0) -> np.ndarray:
    levels = np.zeros((n, K, 3))
    for k, top in enumerate(TOPS):
        levels[:, k, : top + 1] = rng.dirichlet(np.full(top + 1, sharp), size=n)
    return levels


def some_head(rng: np.random.Generator) -> Head:
    root = rng.normal(size=(K, K))
    weights, bias = rng.normal(size=(GRADES, K)) * 3, rng.normal(size=GRADES)
    return Head(weights, bias, root @ root.T + np.eye(K), rng.uniform(0.1, 0.5, K), temperature=0.8)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_expected_change_is_the_mean_over_levels_of_the_total_variation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    head, levels, state = some_head(rng), some_levels(rng, 3), rng.random((3, K))
    found = expected_change(levels, head, state, TOPS)
    for row in range(3):
        now = head.probabilities(state[row])
        for k, top in enumerate(TOPS):
            want = 0.0
            for level in range(top + 1):
                moved = state[row].copy()
                moved[k] = level / top
                want += levels[row, k, level] * np.abs(head.probabilities(moved) - now).sum() / 2
            assert found[row, k] == pytest.approx(want)
    assert ((found >= 0) & (found <= 1)).all()


def test_orders_by_hand() -> None:
    levels = np.array([[[0.6, 0.2, 0.2], [0.5, 0.5, 0.0], [0.9, 0.1, 0.0]]])
    head = Head(np.ones((2, K)), np.zeros(2))
    assert order_of("confidence", levels, head, TOPS, 0).tolist() == [[2, 0, 1]]
    # Entropy over that of a guess: 0.950 of log 3 is 0.865; log 2 of log 2 is 1; 0.325 of log 3 is 0.296.
    assert priorities("uncertainty", levels, head, TOPS, 0)[0] == pytest.approx([0.8650, 1.0, 0.2959], abs=1e-4)
    assert order_of("uncertainty", levels, head, TOPS, 0).tolist() == [[1, 0, 2]]
    assert order_of("random", levels, head, TOPS, 0).tolist() == order_of("random", levels, head, TOPS, 0).tolist()


def one_by_one(policy: Order, levels: np.ndarray, head: Head, answers: np.ndarray, seed: int) -> list[tuple[int, int]]:
    """(response, concept) in the order of questions: everything is asked anew before each question."""
    state, left = shares_of(levels, TOPS), ~np.isnan(answers)
    fixed = priorities(policy, levels, head, TOPS, seed)
    asked = []
    while left.any():
        value = expected_change(levels, head, state, TOPS) if policy == "expected_change" else fixed
        row, k = np.unravel_index(np.where(left, value, -np.inf).argmax(), left.shape)
        state[row, k], left[row, k] = answers[row, k], False
        asked.append((int(row), int(k)))
    return asked


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(POLICIES))
def test_questions_come_as_a_greedy_search_asks_them(seed: int, policy: Order) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    head, levels = some_head(rng), some_levels(rng, n)
    answers = rng.integers(0, TOPS + 1, size=(n, K)) / TOPS
    answers[rng.random((n, K)) < 0.25] = np.nan
    order, turn = ask(policy, levels, head, answers, TOPS, seed)
    found = sorted(
        (int(turn[row, at]), row, int(order[row, at])) for row in range(n) for at in range(K) if turn[row, at] < n * K
    )
    assert [(row, k) for _, row, k in found] == one_by_one(policy, levels, head, answers, seed)
    assert [place for place, _, _ in found] == list(range(len(found)))


def planted(n: int = 150) -> tuple[LabelledData, Head, np.ndarray]:
    """The grade hangs on the first concept alone, of which half the estimates are wild guesses; the others are sure."""
    rng = np.random.default_rng(3)
    tops = np.array([3, 3, 3])
    levels = rng.integers(0, 4, size=(n, K))
    middle = np.arange(4) / 3
    head = Head(np.outer(middle, [1, 0, 0]) * 40, -20 * middle**2)
    sure = np.full((n, K, 4), 0.01) + 0.96 * np.eye(4)[levels]
    wild = rng.random(n) < 0.5
    sure[wild, 0] = rng.dirichlet(np.ones(4), size=int(wild.sum()))
    concepts = Concepts(("a", "b", "c"), ("a", "b", "c"), ("a", "b", "c"), tuple(("x",) * (t + 1) for t in tops))
    grades = levels[:, 0].copy()
    levels[:5, 2] = MISSING
    grades[-3:] = MISSING
    ids = tuple(f"r{i:03}" for i in range(n))
    return LabelledData(ids, concepts, levels, np.ones((n, K)), grades, np.arange(4.0), np.full(n, "test")), head, sure


def savings(head: Head, data: LabelledData, levels: Floats, draws: int) -> dict[str, dict[str, Any]]:
    """Metric without its prefix → its row."""
    rows = saving_rows(levels, head, data, data.rows("test"), 0, draws)
    assert len({row["metric"] for row in rows}) == len(rows) == 2 * len(POLICIES)
    assert all(set(row) == set(Trials.model_fields) - {"method", "seed", "setting", "split"} for row in rows)
    return {row["metric"].removeprefix("saving_"): row for row in rows}


def test_asking_for_what_moves_the_grade_saves_questions() -> None:
    data, head, levels = planted()
    found = savings(head, data, levels, 200)
    value = {name: row["value"] for name, row in found.items()}
    assert {row["n"] for row in found.values()} == {147}
    assert value["questions_expected_change"] < 0.2
    assert value["questions_random"] == pytest.approx(GAIN, abs=0.12)
    assert value["area_confidence"] < value["area_random"] < value["area_expected_change"]
    change, low, high = re.findall(r"[+-][0-9.]+", found["area_expected_change"]["note"])
    assert 0 < float(low) < float(change) < float(high)
    assert float(change) == pytest.approx(value["area_expected_change"] - value["area_random"], abs=0.001)
    assert found["area_random"]["note"] == "of task_accuracy; +0.000 [+0.000, +0.000] against random"


def test_the_area_is_the_mean_accuracy_over_budgets() -> None:
    data, head, levels = planted()
    answers = oracle_values(data.levels[:-3], data.concepts.tops)
    order, turn = ask("random", levels[:-3], head, answers, data.concepts.tops, 0)
    after = grades_after(head, shares_of(levels[:-3], data.concepts.tops), order, answers)
    budgets = np.round(np.linspace(0, 1, STEPS + 1) * (~np.isnan(answers)).sum())
    curve = [
        np.mean([after[(turn[n] < budget).sum(), n] == grade for n, grade in enumerate(data.grades[:-3])])
        for budget in budgets
    ]
    means = [(a + b) / 2 for a, b in pairwise(curve)]
    assert savings(head, data, levels, 20)["area_random"]["value"] == pytest.approx(np.mean(means))


def test_answers_that_gain_nothing_have_no_need() -> None:
    data, _, levels = planted()
    found = savings(Head(np.zeros((4, K)), np.arange(4.0)), data, levels, 20)
    for name, row in found.items():
        if name.startswith("questions"):
            assert row["value"] is None
            assert row["note"].startswith("undefined")
        else:
            assert "+0.000 [" in row["note"]
