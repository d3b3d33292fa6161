"""Interventions against brute force and against Gaussian conditioning written out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.bottleneck import Interventions
from rubricflow.tasks.core.stats.agreement import macro_f1
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.intervene import (
    grades_after,
    intervention_rows,
    oracle_values,
    random_values,
    wrong_values,
)
from rubricflow.tasks.methods.bottleneck.model import Head

TOPS = np.array([2, 1, 3])
N, K, GRADES = 60, 3, 4


def some_head(seed: int = 0) -> Head:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(K, K))
    return Head(
        rng.normal(size=(GRADES, K)) * 4,
        rng.normal(size=GRADES),
        precision=root @ root.T + np.eye(K),
        noise=rng.uniform(0.05, 0.5, K),
        temperature=1.7,
    )


def some_orders(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.argsort(rng.random((n, K)), axis=1)


def learnable(missing: float = 0.15) -> tuple[LabelledData, Head, np.ndarray]:
    """A grade that is a step of the sum of three concepts, a head that knows it, and noisy shares."""
    rng = np.random.default_rng(4)
    levels = rng.integers(0, TOPS + 1, size=(N, K))
    shares = levels / TOPS
    total = shares.sum(axis=1)
    grades = np.digitize(total, [0.7, 1.4, 2.2])
    middle = np.array([0.35, 1.05, 1.75, 2.65])
    head = Head(np.outer(middle, np.ones(K)) * 8, -4 * middle**2)
    levels[rng.random((N, K)) < missing] = MISSING
    grades = grades.astype(np.int64)
    grades[0] = MISSING
    concepts = Concepts(("a", "b", "c"), ("a", "b", "c"), ("a", "b", "c"), tuple(("x",) * (t + 1) for t in TOPS))
    ids = tuple(f"r{i:02}" for i in range(N))
    data = LabelledData(ids, concepts, levels, np.ones((N, K)), grades, np.arange(4.0), np.full(N, "test"))
    return data, head, np.clip(shares + rng.normal(size=shares.shape) * 0.35, 0, 1)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_the_wrong_level_is_the_worst_of_all_others_given_what_was_set(seed: int) -> None:
    rng = np.random.default_rng(seed)
    head, n = some_head(seed), 4
    shares, order = rng.random((n, K)), some_orders(rng, n)
    levels = rng.integers(-1, TOPS + 1, size=(n, K))
    right = rng.integers(0, GRADES, n)
    found = wrong_values(head, shares, order, levels, TOPS, right)
    for row in range(n):
        state = shares[row].copy()
        for k in order[row]:
            if levels[row, k] == MISSING:
                assert np.isnan(found[row, k])
                continue
            tried = {}
            for level in set(range(TOPS[k] + 1)) - {int(levels[row, k])}:
                moved = state.copy()
                moved[k] = level / TOPS[k]
                tried[level] = head.probabilities(moved)[right[row]]
            state[k] = found[row, k]
            assert head.probabilities(state)[right[row]] == pytest.approx(min(tried.values()))
            assert round(found[row, k] * TOPS[k]) != levels[row, k]


def test_grades_after_each_answer_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(5)
    head, shares, order = some_head(), rng.random((N, K)), some_orders(rng, N)
    values = rng.random((N, K))
    values[rng.random((N, K)) < 0.3] = np.nan
    found = grades_after(head, shares, order, values)
    for row, asked in product(range(N), range(K + 1)):
        state = shares[row].copy()
        for k in order[row, :asked]:
            state[k] = state[k] if np.isnan(values[row, k]) else values[row, k]
        assert found[asked, row] == head.logits(state).argmax()


def test_random_levels_are_uniform_over_each_concept_and_come_from_the_seed() -> None:
    drawn = random_values(6000, TOPS, 3) * TOPS
    for k, top in enumerate(TOPS):
        shares = np.bincount(np.round(drawn[:, k]).astype(int)) / 6000
        assert len(shares) == top + 1
        assert shares == pytest.approx(1 / (top + 1), abs=0.03)
    assert np.array_equal(random_values(9, TOPS, 3), random_values(9, TOPS, 3))
    assert not np.array_equal(random_values(9, TOPS, 3), random_values(9, TOPS, 4))


def test_rows_keep_the_contract_and_their_changes_add_up() -> None:
    data, head, shares = learnable()
    order = some_orders(np.random.default_rng(0), N)
    rows = intervention_rows(shares, head, data, data.rows("test"), order, 1, 300)
    own = {"method": "m", "seed": 1, "order": "random"}
    keys = [tuple((own | row)[name] for name in Interventions.key) for row in rows]
    assert len(set(keys)) == len(rows) == 3 * 3 * (K + 1)
    assert all(set(own | row) == set(Interventions.model_fields) for row in rows)
    assert {row["n"] for row in rows} == {N - 1}
    none = {row["metric"]: row["value"] for row in rows if row["asked"] == 0}
    for row in rows:
        assert row["change"] == pytest.approx(row["value"] - none[row["metric"]])
        assert row["low"] <= row["change"] + 1e-9
        assert row["change"] - 1e-9 <= row["high"]
    at_start = [row for row in rows if row["asked"] == 0]
    assert {(row["change"], row["low"], row["high"]) for row in at_start} == {(0.0, 0.0, 0.0)}
    assert rows == intervention_rows(shares, head, data, data.rows("test"), order, 1, 300)


def test_the_interval_is_that_of_resampled_responses() -> None:
    """Against a plain bootstrap of the difference of macro-F1."""
    data, head, shares = learnable()
    on = data.grades != MISSING
    order = some_orders(np.random.default_rng(0), N)
    rows = intervention_rows(shares, head, data, data.rows("test"), order, 1, 600)
    found = next(r for r in rows if r["kind"] == "oracle" and r["asked"] == K and r["metric"] == "task_macro_f1")
    right = data.grades[on]
    grades = grades_after(head, shares[on], order[on], oracle_values(data.levels[on], TOPS))
    rng, drawn = np.random.default_rng(9), []
    for _ in range(400):
        pick = rng.integers(0, len(right), len(right))
        then, before = (macro_f1(right[pick], grades[at, pick], 0, 3).value for at in (K, 0))
        assert then is not None
        assert before is not None
        drawn.append(then - before)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (found["low"], found["high"]) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))


def test_concepts_without_a_label_are_left_alone() -> None:
    data, head, shares = learnable()
    bare = replace(data, levels=np.full_like(data.levels, MISSING))
    order = some_orders(np.random.default_rng(0), N)
    rows = intervention_rows(shares, head, bare, data.rows("test"), order, 1, 50)
    assert all(row["change"] == 0 for row in rows if row["kind"] != "random")
    assert any(row["change"] != 0 for row in rows if row["kind"] == "random")


def test_no_response_with_a_grade_leaves_values_undefined() -> None:
    data, head, shares = learnable()
    bare = replace(data, grades=np.full(N, MISSING))
    order = some_orders(np.random.default_rng(0), N)
    rows = intervention_rows(shares, head, bare, data.rows("test"), order, 1, 50)
    assert {(row["value"], row["change"], row["low"], row["n"]) for row in rows} == {(None, None, None, 0)}


def test_macro_f1_of_many_grades_has_a_value_and_no_interval() -> None:
    data, head, shares = learnable()
    many = replace(data, scores=np.arange(20.0))
    order = some_orders(np.random.default_rng(0), N)
    rows = intervention_rows(shares, head, many, data.rows("test"), order, 1, 50)
    assert {row["low"] for row in rows if row["metric"] == "task_macro_f1"} == {None}
    assert all(row["value"] is not None for row in rows)
    assert all(row["low"] is not None for row in rows if row["metric"] == "task_qwk")
