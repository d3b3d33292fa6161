"""Temperature scaling: it finds what was planted and never makes the split it was fitted on worse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from rubricflow.tasks.methods.bottleneck.arm import BOUND, loss, temperature
from rubricflow.tasks.methods.bottleneck.data import MISSING


def drawn(planted, n=20_000, classes=5, seed=0):
    """Logits, and grades drawn from them at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 3
    cumulated = softmax(logits / planted, axis=1).cumsum(axis=1)
    return logits, (rng.random((n, 1)) > cumulated).sum(axis=1).clip(max=classes - 1)


@pytest.mark.parametrize("planted", [0.5, 1.0, 2.5])
def test_a_planted_temperature_is_found(planted):
    assert temperature(*drawn(planted)) == pytest.approx(planted, rel=0.05)


def test_it_is_the_best_of_a_fine_grid():
    logits, grades = drawn(1.7, n=400)
    best = min(loss(logits, grades, t) for t in np.geomspace(1 / BOUND, BOUND, 2_000))
    assert loss(logits, grades, temperature(logits, grades)) <= best + 1e-9


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(2, 6), st.floats(0.01, 50))
def test_it_is_never_worse_than_none(seed, n, classes, size):
    rng = np.random.default_rng(seed)
    logits, grades = rng.normal(size=(n, classes)) * size, rng.integers(0, classes, n)
    found = temperature(logits, grades)
    assert 1 / BOUND <= found <= BOUND
    assert loss(logits, grades, found) <= loss(logits, grades, 1.0)


def test_rows_without_a_label_do_not_count():
    logits, grades = drawn(2.0, n=500)
    masked = np.where(np.arange(500) < 250, grades, MISSING)
    assert temperature(logits, masked) == temperature(logits[:250], grades[:250])


@pytest.mark.parametrize("grades", [[MISSING] * 3, [2, 2, MISSING]])
def test_labels_that_tell_nothing_leave_it_at_one(grades):
    assert temperature(np.ones((3, 4)), np.array(grades)) == 1.0


def test_where_all_is_right_it_stops_at_its_bound():
    found = temperature(np.eye(3), np.array([0, 1, 2]))
    assert found == pytest.approx(1 / BOUND, rel=0.01)
