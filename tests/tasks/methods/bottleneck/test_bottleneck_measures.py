"""Measures of graders against scikit-learn and worked numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rubricflow.tasks.core.contracts.tables.bottleneck import Trials
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.measures import (
    concept_leakage,
    cross_fitted,
    human_rows,
    leakage_rows,
    task_leakage,
    trial_rows,
    within_labels,
)

CONCEPTS = Concepts(
    ("c1", "c2", "c3"), ("A", "B", "C"), ("a", "b", "c"), (("0", "1", "2"), ("0", "1"), ("0", "1", "2"))
)
N, K = 120, 3


@pytest.fixture
def data() -> LabelledData:
    rng = np.random.default_rng(1)
    levels = rng.integers(0, CONCEPTS.tops + 1, size=(N, K))
    levels[rng.random((N, K)) < 0.2] = MISSING
    grades = rng.integers(0, 4, N)
    grades[:7] = MISSING
    split = np.where(np.arange(N) % 2, "test", "train")
    ids = tuple(f"r{i:03}" for i in range(N))
    return LabelledData(ids, CONCEPTS, levels, np.ones((N, K)), grades, np.array([0.5, 1.5, 2.5, 3.5]), split)


@pytest.fixture
def estimates() -> Estimates:
    rng = np.random.default_rng(2)
    levels = rng.dirichlet(np.ones(3), size=(N // 2, K))
    levels[:, 1, 2] = 0
    return Estimates(levels / levels.sum(axis=2, keepdims=True), rng.dirichlet(np.ones(4), size=N // 2))


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(row["metric"], row["criterion_id"]): row for row in rows}
    assert len(found) == len(rows)
    assert all(set(row) == set(Trials.model_fields) - {"method", "seed", "setting", "split"} for row in rows)
    return found


def test_concepts_are_measured_on_their_labels_as_scikit_learn_does(data: LabelledData, estimates: Estimates) -> None:
    found = by_key(trial_rows(estimates, data, data.rows("test"), estimates.grades))
    given, chosen = data.levels[data.rows("test")], estimates.chosen()
    for k, concept in enumerate(CONCEPTS.ids):
        on = given[:, k] != MISSING
        y, by = given[on, k], chosen[on, k]
        assert found["concept_accuracy", concept]["value"] == pytest.approx(accuracy_score(y, by))
        assert found["concept_macro_f1", concept]["value"] == pytest.approx(f1_score(y, by, average="macro"))
        assert found["concept_qwk", concept]["value"] == pytest.approx(cohen_kappa_score(y, by, weights="quadratic"))
        assert found["concept_qwk", concept]["n"] == on.sum()
    each = [found["concept_qwk", concept]["value"] for concept in CONCEPTS.ids]
    assert found["concept_qwk", "all"]["value"] == pytest.approx(np.mean(each))


def test_grades_are_measured_where_there_is_one(data: LabelledData, estimates: Estimates) -> None:
    found = by_key(trial_rows(estimates, data, data.rows("test"), estimates.grades))
    given = data.grades[data.rows("test")]
    on = given != MISSING
    y, by = given[on], estimates.grade[on]
    assert not on.all()
    assert found["task_macro_f1", ""]["value"] == pytest.approx(f1_score(y, by, average="macro"))
    assert found["task_qwk", ""]["value"] == pytest.approx(cohen_kappa_score(y, by, weights="quadratic"))
    assert found["task_mae", ""]["value"] == pytest.approx(np.abs(y - by).mean())
    assert {row["n"] for (metric, _), row in found.items() if metric.startswith("task")} == {on.sum()}


def test_qwk_counts_the_levels_that_nobody_uses() -> None:
    """Grades 0 and 3 of 0…3 alone: one disagreement in four costs as much as on any scale, so kappa is a worked one."""
    some = LabelledData(
        tuple("abcd"),
        Concepts((), (), (), ()),
        np.empty((4, 0), np.int64),
        np.empty((4, 0)),
        np.array([0, 0, 3, 3]),
        np.arange(4.0),
        np.full(4, "test"),
    )
    says = Estimates(None, np.eye(4)[[0, 3, 3, 3]])
    found = by_key(trial_rows(says, some, some.rows("test"), says.grades))
    assert found["task_qwk", ""]["value"] == pytest.approx(0.5)
    assert found["task_mae", ""]["value"] == pytest.approx(0.75)
    assert not any(metric.startswith("concept") for metric, _ in found)


def test_calibrated_probabilities_stand_beside_the_raw_ones(data: LabelledData, estimates: Estimates) -> None:
    right = np.eye(4)[np.maximum(data.grades[data.rows("test")], 0)]
    found = by_key(trial_rows(estimates, data, data.rows("test"), right))
    assert found["task_ece", ""]["value"] == pytest.approx(0)
    assert found["task_rps", ""]["value"] == pytest.approx(0)
    raw = by_key(trial_rows(estimates, data, data.rows("test"), estimates.grades))
    assert found["task_ece_uncalibrated", ""]["value"] == raw["task_ece", ""]["value"] > 0.05


def test_what_is_undefined_is_null_with_a_reason(data: LabelledData, estimates: Estimates) -> None:
    levels = data.levels.copy()
    levels[:, 0] = MISSING
    bare = replace(data, levels=levels, grades=np.full(N, MISSING))
    found = by_key(trial_rows(estimates, bare, bare.rows("test"), estimates.grades))
    for key in (("concept_accuracy", "c1"), ("task_qwk", ""), ("task_rps", ""), ("task_ece", "")):
        assert found[key]["value"] is None
        assert "undefined" in found[key]["note"]
        assert found[key]["n"] == 0
    assert found["concept_qwk", "all"]["note"] == "over the 2 of 3 concepts where it is defined"


def test_a_grader_of_the_first_concepts_is_measured_on_those(data: LabelledData, estimates: Estimates) -> None:
    assert estimates.levels is not None
    fewer = by_key(
        trial_rows(replace(estimates, levels=estimates.levels[:, :2]), data, data.rows("test"), estimates.grades)
    )
    assert {concept for metric, concept in fewer if metric == "concept_qwk"} == {"c1", "c2", "all"}


def test_a_person_is_measured_like_a_grader_and_it_does_not_matter_who_is_first(data: LabelledData) -> None:
    rows = data.rows("test")
    a, b = data.levels[rows], np.roll(data.levels[rows], 1, axis=0)
    grades_a, grades_b = data.grades[rows], np.roll(data.grades[rows], 1)
    one = human_rows(a, b, grades_a, grades_b, CONCEPTS, data.scores)
    other = human_rows(b, a, grades_b, grades_a, CONCEPTS, data.scores)
    first, second = by_key(one), by_key(other)
    assert {key: row["n"] for key, row in first.items()} == {key: row["n"] for key, row in second.items()}
    assert [row["value"] for row in first.values()] == pytest.approx([row["value"] for row in second.values()])
    both = (grades_a != MISSING) & (grades_b != MISSING)
    assert first["task_accuracy", ""]["n"] == both.sum()
    assert first["task_accuracy", ""]["value"] == pytest.approx((grades_a == grades_b)[both].mean())


# Leakage: planted, absent, and legitimately correlated; log-losses against scikit-learn's own.


TOPS = np.array([2, 2, 1])
CONCEPTS_COUNT = 3


def some_set(n: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(shares, levels, grades): grades hang on the labels and on a talent that no label shows; shares are labels with
    noise."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, TOPS + 1, size=(n, CONCEPTS_COUNT))
    talent = rng.normal(size=n)
    grades = np.digitize((levels / TOPS).sum(axis=1) + talent, [0.5, 1.5, 2.5])
    shares = levels / TOPS * 0.8 + 0.1 + rng.normal(size=(n, CONCEPTS_COUNT)) * 0.05
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
    for k in range(CONCEPTS_COUNT):
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
    data = LabelledData(ids, concepts, levels, np.ones((150, CONCEPTS_COUNT)), grades, np.arange(4.0), split)
    rows = leakage_rows(shares, data, data.rows("test"), 2)
    assert all(set(row) == set(Trials.model_fields) - {"method", "seed", "setting", "split"} for row in rows)
    value = {row["metric"]: row["value"] for row in rows}
    task = task_leakage(shares, levels, grades, TOPS, 2)
    assert value["leakage_task"] == task.value
    assert task.entropy is not None
    assert task.value is not None
    assert value["leakage_task_share"] == pytest.approx(task.value / task.entropy)
    counts = np.bincount(grades) / 150
    assert task.entropy == pytest.approx(-(counts * np.log(counts)).sum())
    assert "over its control" in rows[0]["note"]
    bare = leakage_rows(shares[:10], data, data.rows("test")[:10], 2)
    assert all(row["value"] is None and row["note"] for row in bare)
