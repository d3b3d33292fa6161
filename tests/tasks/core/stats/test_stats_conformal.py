"""Conformal intervals: worked examples, exact ranks and simulation."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats import probability as cf

RESIDUALS = [0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.1]
SCALES = [(0.0, 4.0, 1.0), (1.0, 6.0, 0.5), (0.0, 1.0, 0.1), (-2.0, 2.0, 1.0)]


@pytest.mark.parametrize(("count", "alpha", "q"), [(9, 0.2, 0.8), (9, 0.1, 1.1), (8, 0.1, float("inf"))])
def test_worked_quantiles(count, alpha, q):
    assert cf.conformal_quantile(RESIDUALS[:count], alpha) == q


def test_worked_intervals():
    assert cf.interval(2.6, 0.8, (0, 4, 1), 1) == (2, 3)
    assert cf.interval(2.6, 0.8, (0, 4, 1), 1 / 2) == (2, 3)
    assert cf.interval(2.6, 0.95, (0, 4, 1), 1 / 2) == (2, 3.5)
    assert cf.interval(2.6, 0.8, (0, 4, 1), 1 / 3) == (2, 3.333333334)
    assert cf.interval(2.6, 0.8, (0, 4, 1), 0) == (1.8, 3.4)
    assert cf.interval(2.6, float("inf"), (0, 4, 1), 1) == (0, 4)


@given(st.integers(0, 3000), st.integers(1, 999))
@settings(max_examples=40)
def test_rank_is_exact(n, thousandths):
    rank = cf.quantile_rank(n, thousandths / 1000)
    # The least rank r with r / (n + 1) >= 1 - alpha.
    wanted = 1 - Fraction(thousandths, 1000)
    assert Fraction(rank, n + 1) >= wanted > Fraction(rank - 1, n + 1)


def test_quantile_takes_signed_residuals():
    signed = [-one if at % 2 else one for at, one in enumerate(RESIDUALS)]
    assert cf.conformal_quantile(signed, 0.2) == 0.8


def test_quantile_covers_at_the_promised_rate():
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(4000, 20))
    held = [row[-1] <= cf.conformal_quantile(row[:-1], 0.15) for row in rows]
    # Rank 17 of 19: a new residual is equally likely to fall in each of 20 places.
    assert np.mean(held) == pytest.approx(17 / 20, abs=3 * np.sqrt(0.15 * 0.85 / 4000))


@given(st.sampled_from(SCALES), st.sampled_from([1, 2, 3, 6]), st.integers(-40, 140), st.integers(0, 60))
@settings(max_examples=40)
def test_an_interval_spans_the_scores_on_the_grid_within_reach_and_the_nearest_level(scale, parts, place, reach):
    low, _, step = (Fraction(str(end)) for end in scale)
    grid = [low + at * step / parts for at in range(parts * round((scale[1] - scale[0]) / scale[2]) + 1)]
    score, q = low + Fraction(place, 20) * step, Fraction(reach, 20) * step
    gap = min(abs(level - score) for level in grid[::parts])
    nearest = max(level for level in grid[::parts] if abs(level - score) == gap)
    within = [nearest, *(at for at in grid if abs(at - score) <= q)]
    found = cf.interval(float(score), float(q), scale, 1 / parts)
    assert found == pytest.approx((float(min(within)), float(max(within))), abs=1.1e-9)
    # Where nine digits do not suffice, the human score lies inside all the same.
    assert found[0] <= min(within) + Fraction(1, 10**12)
    assert found[1] >= max(within) - Fraction(1, 10**12)


@given(st.sampled_from(SCALES), st.lists(st.integers(0, 4), min_size=1, max_size=7), st.integers(0, 80), st.data())
@settings(max_examples=40)
def test_rounding_the_ends_costs_no_human_score_on_the_grid(scale, marks, place, data):
    """Means are taken in floats, as they arrive; q is the distance of one of them, the closest that may be held."""
    low, _, step = scale
    human = np.mean([low + step * at for at in marks])
    score = low + step * place / 20
    grain = data.draw(st.sampled_from([1 / len(marks), 1 / (2 * len(marks)), 0]))
    lowest, highest = cf.interval(score, abs(human - score), scale, grain)
    assert lowest - 1e-9 <= human <= highest + 1e-9


def test_intervals_of_many_scores_at_once():
    low, high = cf.interval([0.2, 3.7, 9.0], [0.1, 1, 0.5], (0, 4, 1), 1)
    assert (low.tolist(), high.tolist()) == ([0, 3, 4], [0, 4, 4])
