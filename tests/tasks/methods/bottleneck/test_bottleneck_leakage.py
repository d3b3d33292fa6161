"""Leakage: planted, absent, and legitimately correlated; log-losses against scikit-learn's own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rubricflow.tasks.core.contracts.tables.bottleneck import Trials
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.measures import (
    concept_leakage,
    cross_fitted,
    leakage_rows,
    task_leakage,
    within_labels,
)

TOPS = np.array([2, 2, 1])
K = 3


def some_set(n: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(shares, levels, grades): grades hang on the labels and on a talent that no label shows; shares are labels with
    noise."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, TOPS + 1, size=(n, K))
    talent = rng.normal(size=n)
    grades = np.digitize((levels / TOPS).sum(axis=1) + talent, [0.5, 1.5, 2.5])
    shares = levels / TOPS * 0.8 + 0.1 + rng.normal(size=(n, K)) * 0.05
    return shares, levels, grades


def leaking(grades: np.ndarray) -> np.ndarray:
    """What a grader adds to its first share when it hides the grade there."""
    return np.outer((grades - grades.mean()) * 0.04, [1, 0, 0])


def test_the_log_loss_is_that_of_a_cross_fitted_regression() -> None:
    shares, _, grades = some_set()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(5, shuffle=True, random_state=7)
    likely = cross_val_predict(model, shares, grades, cv=folds, method="predict_proba")
    assert cross_fitted(shares, grades, 7).mean() == pytest.approx(log_loss(grades, likely))


def test_a_grade_hidden_in_a_share_is_found() -> None:
    shares, levels, grades = some_set()
    found = task_leakage(shares + leaking(grades), levels, grades, TOPS, 0)
    assert found.value is not None
    assert found.control is not None
    assert found.within.low is not None
    assert found.excess.low is not None
    assert found.within.low > 0.05
    assert found.excess.low > 0.05
    assert abs(found.control) < 0.03


def test_noise_leaks_nothing() -> None:
    shares, levels, grades = some_set()
    found = task_leakage(shares, levels, grades, TOPS, 0)
    assert found.value is not None
    assert found.excess.low is not None
    assert found.excess.high is not None
    assert abs(found.value) < 0.03
    assert found.excess.low < 0.005
    assert found.excess.high > -0.005


def test_shuffling_keeps_what_the_label_says_and_nothing_else() -> None:
    shares, levels, grades = some_set()
    shuffled = within_labels(shares + leaking(grades), levels, 3)
    for k in range(K):
        for level in range(TOPS[k] + 1):
            mine = levels[:, k] == level
            assert sorted(shuffled[mine, k]) == sorted((shares + leaking(grades))[mine, k])
    first = levels[:, 0] == 1
    assert abs(np.corrcoef((shares + leaking(grades))[first, 0], grades[first])[0, 1]) > 0.4
    assert abs(np.corrcoef(shuffled[first, 0], grades[first])[0, 1]) < 0.2


def test_a_concept_hidden_in_another_is_found_and_related_labels_are_not_blamed() -> None:
    rng = np.random.default_rng(1)
    common = rng.integers(0, 3, size=400)
    levels = np.stack([common, np.where(rng.random(400) < 0.7, common, rng.integers(0, 3, 400))], axis=1)
    honest = levels / 2 + rng.normal(size=levels.shape) * 0.4
    related = concept_leakage(honest, levels, 0)
    assert related.value is not None
    assert related.within.low is not None
    assert related.excess.low is not None
    assert related.within.low > 0
    assert related.excess.low < 0.02
    mixed = honest + 0.3 * (levels[:, ::-1] - 1)
    leaked = concept_leakage(mixed, levels, 0)
    assert leaked.excess.low is not None
    assert leaked.excess.low > related.excess.low + 0.05


def test_what_is_missing_leaves_and_what_is_too_little_is_said() -> None:
    shares, levels, grades = some_set(200)
    levels[0, 0], grades[1] = MISSING, MISSING
    grades[2] = 9
    found = task_leakage(shares, levels, grades, TOPS, 0)
    assert found.n == 197
    few = task_leakage(shares[:30], levels[:30], grades[:30], TOPS, 0)
    assert few.value is None
    assert few.note is not None
    assert "fewer than" in few.note
    same = task_leakage(shares, levels, np.zeros(200, np.int64), TOPS, 0)
    assert same.value is None
    assert concept_leakage(shares[:, :1], levels[:, :1], 0).value is None


def test_rows_keep_the_contract() -> None:
    shares, levels, grades = some_set(150)
    concepts = Concepts(tuple("abc"), tuple("abc"), tuple("abc"), tuple(("x",) * (top + 1) for top in TOPS))
    ids, split = tuple(f"r{i:03}" for i in range(150)), np.full(150, "test")
    data = LabelledData(ids, concepts, levels, np.ones((150, K)), grades, np.arange(4.0), split)
    rows = leakage_rows(shares, data, data.rows("test"), "test", "rec_cbm", 2)
    assert all(set(row) == set(Trials.model_fields) for row in rows)
    value = {row["metric"]: row["value"] for row in rows}
    task = task_leakage(shares, levels, grades, TOPS, 2)
    assert value["leakage_task"] == task.value
    assert task.entropy is not None
    assert task.value is not None
    assert value["leakage_task_share"] == pytest.approx(task.value / task.entropy)
    counts = np.bincount(grades) / 150
    assert task.entropy == pytest.approx(-(counts * np.log(counts)).sum())
    assert "over its control" in rows[0]["note"]
    bare = leakage_rows(shares[:10], data, data.rows("test")[:10], "test", "rec_cbm", 2)
    assert all(row["value"] is None and row["note"] for row in bare)
