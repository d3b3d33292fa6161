"""Phase III of Rulers as arrays: the published mapping, its guarantees and its degenerate cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from rubricflow.tasks.grading.calibrate.alignment import (
    apply,
    fit,
    knots,
    latent_scores,
    second_order,
    snap,
    without_map,
)

TRACE = [4, 4, 3, 3, math.log(2308), 0.85, 0.15, 0]
SCALES = [(1.0, 6.0, 1.0), (0.0, 3.0, 1.0), (0.0, 5.0, 0.5), (0.0, 1.0, 0.1), (-2.0, 2.0, 1.0), (0.0, 60.0, 1.0)]
CELLS = st.one_of(st.integers(0, 3).map(float), st.floats(-5, 5, allow_nan=False, width=32))


def published(matrix, target, alpha=2.5):
    """Eqs. 4-5 written down straightforwardly: a latent model and a function from latents to scores."""
    model = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), Ridge(alpha=alpha))
    latent = model.fit(matrix, target).predict(matrix)
    share = (rankdata(latent) - 0.5) / len(latent)
    human = np.quantile(target, share, method="hazen")
    order = np.argsort(latent)
    return model, lambda new: np.interp(model.predict(new), latent[order], human[order])


def graded(seed, n=60, d=5):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, d))
    target = np.clip(np.round(3 + matrix[:, 0] + 0.5 * matrix[:, 1] + rng.normal(0, 0.5, n)), 1, 6)
    return matrix, target


@st.composite
def sets(draw):
    """Calibration features and scores, new features, and the scale."""
    low, high, step = draw(st.sampled_from(SCALES))
    n, m, d = draw(st.integers(2, 25)), draw(st.integers(1, 10)), draw(st.integers(1, 3))
    rows = draw(st.lists(st.lists(CELLS, min_size=d, max_size=d), min_size=n + m, max_size=n + m))
    halves = st.integers(0, 2 * round((high - low) / step)).map(lambda k: low + k * step / 2)
    target = draw(st.lists(halves, min_size=n, max_size=n))
    return np.array(rows[:n]), np.array(target), np.array(rows[n:]), (low, high, step)


@pytest.mark.parametrize("seed", range(5))
def test_is_the_published_mapping(seed):
    matrix, target = graded(seed)
    new = np.random.default_rng(seed + 100).normal(size=(40, 5))
    model, score = published(matrix, target)
    found = apply(fit(matrix, target, 1, 6), new, (1, 6, 1))
    np.testing.assert_allclose(found.latent, model.predict(new), atol=1e-9)
    np.testing.assert_allclose(found.aligned, score(new), atol=1e-9)
    np.testing.assert_array_equal(found.score, np.floor(score(new) + 0.5 + 1e-9))


@pytest.mark.parametrize("seed", range(5))
def test_without_the_map_the_latent_is_clipped_to_the_scale_and_rounded(seed):
    matrix, target = graded(seed)
    new = 3 * np.random.default_rng(seed + 100).normal(size=(200, 5))
    model, _ = published(matrix, target)
    latent, seen = model.predict(new), model.predict(matrix)
    found = apply(without_map(fit(matrix, target, 1, 6)), new, (1, 6, 1))
    np.testing.assert_allclose(found.aligned, np.clip(latent, 1, 6), atol=1e-9)
    np.testing.assert_array_equal(found.score, np.clip(np.floor(latent + 0.5), 1, 6))
    np.testing.assert_array_equal(found.clipped, (latent < seen.min()) | (latent > seen.max()))
    assert (latent > 6).any()
    assert found.clipped.any()


def test_the_papers_trace_has_8_features_and_44_of_second_order():
    assert second_order(np.array([TRACE])).shape == (1, 44)
    np.testing.assert_array_equal(
        second_order(np.array([TRACE])), PolynomialFeatures(2, include_bias=False).fit_transform([TRACE])
    )
    rows = np.array([TRACE, [2, 3, 2, 3, 6.1, 0.7, 0.3, 1], [5, 5, 4, 6, 8.0, 0.9, 0.1, 0]])
    mapping = fit(rows, [4, 2, 5], 1, 6)
    assert len(mapping.coefficients) == len(mapping.means) == 44
    assert apply(mapping, rows, (1, 6, 1)).score.tolist() == [4, 2, 5]


@settings(max_examples=50)
@given(sets())
def test_is_monotone_in_the_latent_and_on_the_scale(drawn):
    matrix, target, new, scale = drawn
    low, high, step = scale
    everything = np.vstack([matrix, new, new * 10])
    found = apply(fit(matrix, target, low, high), everything, scale)
    order = np.argsort(found.latent)
    assert (np.diff(found.aligned[order]) >= -1e-9).all()
    assert (np.diff(found.score[order]) >= 0).all()
    assert ((found.aligned >= low) & (found.aligned <= high)).all()
    assert ((found.score >= low) & (found.score <= high)).all()
    steps = (found.score - low) / step
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-8)
    for latent in np.unique(found.latent):
        assert len(set(found.aligned[found.latent == latent])) == 1
    assert not found.clipped[: len(matrix)].any()


@settings(max_examples=50)
@given(sets(), st.randoms(use_true_random=False))
def test_the_order_of_calibration_rows_changes_no_bit(drawn, random):
    matrix, target, _, (low, high, _) = drawn
    order = list(range(len(matrix)))
    random.shuffle(order)
    assert fit(matrix[order], target[order], low, high) == fit(matrix, target, low, high)


def test_equal_rows_have_equal_latents_wherever_they_stand():
    matrix, target = graded(3, d=8)
    mapping = fit(matrix, target, 1, 6)
    many = np.vstack([np.tile(matrix[0], (100_003, 1)), matrix[1:], matrix[:1]])
    latent = latent_scores(mapping, many)
    assert len(set(latent[:100_003]) | {latent[-1]}) == 1
    assert latent[0] == latent_scores(mapping, matrix[:1])[0]


def test_latents_that_tie_only_in_exact_arithmetic_share_one_score():
    matrix = np.array([[0.1, 0.7]] * 5 + [[0.7, 0.7]] * 6 + [[0.7, 0.1]] * 5)
    target = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 2, 1, 1, 1, 0, 0])
    found = apply(fit(matrix, target, 0, 3), matrix, (0, 3, 1))
    assert len(set(found.aligned[[0, -1]])) == 1
    assert found.score.tolist() == [1] * 5 + [3] * 6 + [1] * 5


def test_ties_take_the_score_of_their_mean_rank():
    at, score = knots(np.array([1.0, 1.0, 1.0, 2.0, 3.0, 3.0]), np.array([0.0, 1.0, 4.0, 4.0, 5.0, 6.0]), 1e-9)
    assert at.tolist() == [1, 2, 3]
    assert score.tolist() == [1, 4, 5.5]


def test_level_stretches_keep_only_their_ends():
    at, score = knots(np.arange(8.0), np.array([1.0, 1, 1, 1, 2, 2, 2, 3]), 1e-9)
    assert at.tolist() == [0, 3, 4, 6, 7]
    assert score.tolist() == [1, 1, 2, 2, 3]


def test_constant_features_leave_one_knot_at_the_middle_score():
    mapping = fit(np.ones((5, 2)), [0, 1, 1, 2, 3], 0, 3)
    assert mapping.score_knots == (1.0,)
    assert apply(mapping, np.ones((2, 2)), (0, 3, 1)).score.tolist() == [1, 1]


def test_another_scale_stretches_the_fitted_range():
    matrix = np.arange(11.0)[:, None]
    mapping = fit(matrix, np.linspace(0, 1, 11), 0, 1)
    unit, found = apply(mapping, matrix, (0, 1, 1)), apply(mapping, matrix, (2, 12, 2))
    np.testing.assert_allclose(found.aligned, 2 + 10 * unit.aligned)
    np.testing.assert_allclose(found.latent, 2 + 10 * unit.latent)
    assert set(found.score) <= {2, 4, 6, 8, 10, 12}


def test_halves_go_up_and_steps_are_written_plainly():
    assert snap([0.5, 1.5, 2.5, -1, 9], (0, 3, 1)).tolist() == [1, 2, 3, 0, 3]
    assert snap([0.3, 0.25, 0.15], (0, 1, 0.1)).tolist() == [0.3, 0.3, 0.2]


def test_latents_outside_the_calibration_range_are_clipped_and_flagged():
    matrix = np.arange(20.0)[:, None]
    target = np.repeat([1, 2, 3, 4], 5)
    found = apply(fit(matrix, target, 0, 5), [[-9.0], [10.0], [40.0]], (0, 5, 1))
    assert found.clipped.tolist() == [True, False, True]
    assert found.aligned[[0, 2]].tolist() == [1, 4]


def test_features_constant_in_calibration_have_scale_1():
    matrix = np.column_stack([np.arange(10.0), np.full(10, 7.0)])
    mapping = fit(matrix, np.arange(10) % 4, 0, 3)
    assert (mapping.scales[1], mapping.scales[4]) == (1, 1)
    assert mapping.coefficients[1] == 0
