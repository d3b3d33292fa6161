"""What intervals promise, through the real fit: they hold as many human scores as they say, on whatever grid."""

import numpy as np
import pytest
from coverage_scene import Case, held
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.grading.calibrate.spread import grain_of

REPETITIONS = 8
"""Sets of 80 labels spread by 0.035 in coverage, so that the mean of these has a standard error of 0.012."""


@pytest.mark.parametrize("raters", [(1,), (3,), (1, 2, 3)])
def test_intervals_hold_the_share_they_promise_however_many_people_mark(raters):
    shares = [held(Case(raters), seed).share for seed in range(REPETITIONS)]
    assert 0.885 <= np.mean(shares) <= 0.935


@pytest.mark.parametrize(
    "case",
    [
        Case((2,), 50, noise=0.5, method="linking"),
        Case((3,), 50, skew=6, method="rulers"),
        Case((2,), scale=(0, 1, 1), noise=0.03),
        Case((1, 2), scale=(1, 6, 0.5), method="isotonic"),
        Case((2, 5), scale=(0, 100, 1), method="linear"),
        Case((3, 4, 5)),
    ],
)
def test_no_fewer_on_odd_scales_with_poor_judges_and_skewed_marks(case):
    assert np.mean([held(case, seed).share for seed in range(4)]) >= 0.885


@pytest.mark.parametrize("coverage", [0.7, 0.95])
def test_another_share_may_be_asked_for(coverage):
    shares = [held(Case((2,)), seed, coverage=coverage).share for seed in range(10)]
    assert np.mean(shares) == pytest.approx(coverage + 0.01, abs=0.03)


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([(0, 1, 1), (0, 3, 1), (1, 6, 0.5), (-2, 2, 0.1), (0, 10, 5)]),
    st.sampled_from([0.0, 0.05, 0.6]),
    st.integers(0, 10**6),
)
def test_an_interval_lies_on_the_scale_and_holds_its_score(raters, scale, noise, seed):
    found = held(Case(tuple(raters), 25, scale, noise), seed, new=40)
    assert (scale[0] <= found.low).all()
    assert (found.low <= found.score).all()
    assert (found.score <= found.high).all()
    assert (found.high <= scale[1]).all()


# the grid of human scores


@pytest.mark.parametrize(
    ("human", "ratings", "grain"),
    [
        ([0, 1, 4], [1], 1),
        ([0, 1.5], [2], 1 / 2),
        ([0, 1, 4], [2], 1 / 2),
        ([0, 1, 4], [1, 1, 2], 1 / 2),
        ([1 / 3, 2], [3], 1 / 3),
        ([0.5, 1 / 3], [2, 3], 1 / 6),
        ([2, 1 / 3], [2, 3], 1 / 6),
        ([0.25, 3], [3, 4], 1 / 12),
        ([0, 1.5], [1], 1 / 2),
        ([0.5, 1.25], [2], 1 / 4),
        ([0.123], [1], 0),
        ([0, 1], [13], 0),
        ([0.25, 1], [5, 3], 0),
    ],
)
def test_the_grain_is_what_averaging_leaves(human, ratings, grain):
    counts = np.resize(np.array(ratings, dtype=float), len(human))
    assert grain_of(np.array(human, dtype=float), counts) == pytest.approx(grain)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5), min_size=1, max_size=30))
def test_every_mean_of_as_many_marks_lies_on_the_grid(marks):
    means = np.array([np.mean(of) for of in marks])
    grain = grain_of(means, np.array([len(of) for of in marks], dtype=float))
    if grain:
        others = np.array([np.mean([at % 7 for at in of]) for of in marks])
        np.testing.assert_allclose(np.round(others / grain) * grain, others, atol=1e-9)
