"""Conformal intervals and promised shares of errors: worked examples, exact ranks, libraries and simulation."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from tasks.stats import conformal as cf

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
@settings(max_examples=300, deadline=None)
def test_rank_is_exact(n, thousandths):
    rank = cf.quantile_rank(n, thousandths / 1000)
    # The least rank r with r / (n + 1) >= 1 - alpha.
    wanted = 1 - Fraction(thousandths, 1000)
    assert Fraction(rank, n + 1) >= wanted > Fraction(rank - 1, n + 1)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, np.nan])
def test_rank_refuses(alpha):
    with pytest.raises(ValueError, match="alpha"):
        cf.quantile_rank(10, alpha)


def test_quantile_takes_signed_residuals():
    signed = [-one if at % 2 else one for at, one in enumerate(RESIDUALS)]
    assert cf.conformal_quantile(signed, 0.2) == 0.8


@pytest.mark.parametrize("residuals", [[[1]], [np.nan], [np.inf]])
def test_quantile_refuses(residuals):
    with pytest.raises(ValueError, match="residuals"):
        cf.conformal_quantile(residuals, 0.1)


def test_quantile_covers_at_the_promised_rate():
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(4000, 20))
    held = [row[-1] <= cf.conformal_quantile(row[:-1], 0.15) for row in rows]
    # Rank 17 of 19: a new residual is equally likely to fall in each of 20 places.
    assert np.mean(held) == pytest.approx(17 / 20, abs=3 * np.sqrt(0.15 * 0.85 / 4000))


@given(st.sampled_from(SCALES), st.sampled_from([1, 2, 3, 6]), st.integers(-40, 140), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
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
@settings(max_examples=300, deadline=None)
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


@pytest.mark.parametrize(
    ("score", "q", "grain"), [(1, -0.1, 1), (1, np.nan, 1), (np.nan, 1, 1), (1, 1, 2), (1, 1, 0.4), (1, 1, -0.5)]
)
def test_interval_refuses(score, q, grain):
    with pytest.raises(ValueError, match="must be"):
        cf.interval(score, q, (0, 4, 1), grain)


@pytest.mark.parametrize(("wrong", "released"), [(0, 59), (1, 100), (4, 200), (7, 20), (19, 20)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_upper_bound_equals_scipy(wrong, released, confidence):
    theirs = binomtest(wrong, released, alternative="less").proportion_ci(confidence, method="exact").high
    assert cf.upper_bound(wrong, released, confidence) == pytest.approx(theirs, abs=1e-9)


def test_upper_bound_edges():
    assert (cf.upper_bound(0, 0, 0.95), cf.upper_bound(3, 3, 0.95)) == (1, 1)
    for bad in [(2, 1, 0.95), (-1, 1, 0.95), (0, 1, 1)]:
        with pytest.raises(ValueError, match="needs"):
            cf.upper_bound(*bad)


def test_published_counts_for_five_percent():
    assert cf.fewest_without_error(0.05, 0.95) == 59
    assert cf.upper_bound(1, 100, 0.95) <= 0.05 < cf.upper_bound(2, 100, 0.95)
    assert cf.upper_bound(4, 200, 0.95) <= 0.05 < cf.upper_bound(5, 200, 0.95)


@pytest.mark.parametrize("target", [0.01, 0.05, 0.3, 0.5])
@pytest.mark.parametrize("confidence", [0.5, 0.75, 0.9, 0.95])
def test_fewest_without_error_is_the_first_that_suffices(target, confidence):
    n = cf.fewest_without_error(target, confidence)
    left, goal = 1 - Fraction(str(target)), 1 - Fraction(str(confidence))
    assert left**n <= goal < left ** (n - 1)


def test_fewest_refuses():
    with pytest.raises(ValueError, match="inside"):
        cf.fewest_without_error(0, 0.95)


def graded(seed, n=400):
    rng = np.random.default_rng(seed)
    risk = np.round(0.5 * rng.random(n) ** 2, 2)
    return risk, rng.random(n) < 0.7 * risk


@pytest.mark.parametrize("seed", range(20))
def test_promise_equals_holm_in_statsmodels(seed):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    risk, wrong = graded(seed)
    thresholds = sorted({np.sort(risk)[round(share * 400) - 1] for share in cf.COVERAGES})
    kept = [at for at in thresholds if (risk <= at).sum() >= cf.fewest_without_error(0.1, 0.9)]
    p = [binomtest(int(wrong[risk <= at].sum()), int((risk <= at).sum()), 0.1, "less").pvalue for at in kept]
    rejected = [at for at, yes in zip(kept, multitest.multipletests(p, 0.1, "holm")[0], strict=True) if yes]
    made = cf.promise(risk, wrong, 0.1, 0.9)
    assert made.threshold == (max(rejected) if rejected else None)
    assert (made.released, made.wrong) == (
        ((risk <= made.threshold).sum(), wrong[risk <= made.threshold].sum()) if rejected else (0, 0)
    )


def test_step_down_stops_at_the_first_that_fails():
    # p is 0.053 of the first 60 and 0.058 of all: each below 0.1, the smaller not below the 0.05 that comes first.
    wrong = np.isin(np.arange(100), [0, 1, 97, 98, 99])
    assert cf.promise(np.arange(100), wrong, 0.1, 0.9, (0.6, 1)).threshold is None
    assert cf.promise(np.arange(100), wrong, 0.1, 0.9, (1,)).released == 100


def test_some_of_those_promises_release_something():
    made = [cf.promise(*graded(seed), 0.1, 0.9) for seed in range(20)]
    kept = [one for one in made if one.threshold is not None]
    assert len(kept) >= 10
    assert all(one.upper == cf.upper_bound(one.wrong, one.released, 0.9) <= 0.1 for one in kept)


def test_rows_tied_at_the_threshold_go_together():
    made = cf.promise([0.1] * 500, [False] * 500, 0.05, 0.95)
    assert (made.threshold, made.released, made.wrong) == (0.1, 500, 0)


def test_too_few_rows_promise_nothing():
    assert cf.promise([0.1] * 58, [False] * 58, 0.05, 0.95) == (None, 0, 0, None)
    assert cf.promise([], [], 0.05, 0.95) == (None, 0, 0, None)


def test_coverages_too_small_to_pass_cost_nothing():
    # Of ten preset coverages of 59 rows only the last can pass, and it does without a correction for the others.
    assert cf.promise(np.arange(59), [False] * 59, 0.05, 0.95).released == 59


def realised(kind, rng, n=300):
    """(risk estimates, wrong, the true share of wrong ones at or below a threshold)."""
    place = rng.random(n)
    if kind == "calibrated":
        # P(wrong) is 0.4 u^2, so below u its mean is a third of that at u.
        return 0.4 * place**2, rng.random(n) < 0.4 * place**2, lambda at: at / 3
    if kind == "overconfident":
        return 0.05 * place**2, rng.random(n) < 0.4 * place**2, lambda at: 8 * at / 3
    return place, rng.random(n) < 0.1000001, lambda at: 0.1000001


@pytest.mark.parametrize("kind", ["calibrated", "overconfident", "useless"])
def test_a_promise_is_broken_no_more_often_than_it_says(kind):
    rng = np.random.default_rng(5)
    repetitions, broken, kept = 1500, 0, 0
    for _ in range(repetitions):
        risk, wrong, truth = realised(kind, rng)
        made = cf.promise(risk, wrong, target=0.1, confidence=0.9)
        kept += made.threshold is not None
        broken += made.threshold is not None and truth(made.threshold) > 0.1
    assert broken / repetitions <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repetitions)
    assert kept > 0.5 * repetitions or kind == "useless"


@pytest.mark.parametrize(
    ("risk", "wrong", "coverages"),
    [([0.1], [True, False], (1,)), ([np.nan], [True], (1,)), ([0.1], [True], (0,)), ([0.1], [True], (1.1,))],
)
def test_promise_refuses(risk, wrong, coverages):
    with pytest.raises(ValueError, match="must"):
        cf.promise(risk, wrong, 0.05, 0.95, coverages)
