"""Probabilities of levels against the levels given: libraries, plain loops, simulations whose answer is known; and
conformal intervals: worked examples, exact ranks and simulation."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

from rubricflow.tasks.core.stats import probability as cf
from rubricflow.tasks.core.stats.probability import (
    CLIP,
    Top,
    bins_of,
    brier,
    ece,
    ece_by_chance,
    log_loss,
    ranked,
    reliability,
    rps,
    top,
)


def drawn(rng, n=400, levels=4, sharp=1.0):
    """Distributions, and levels drawn from them: calibrated by construction."""
    p = rng.dirichlet(np.full(levels, sharp), size=n)
    y = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return p, y


def test_log_loss_is_sklearns():
    p, y = drawn(np.random.default_rng(1), sharp=2.0)
    assert log_loss(p, y).mean() == pytest.approx(sklearn_log_loss(y, p, labels=range(4)))


def test_brier_of_two_levels_is_twice_sklearns():
    p, y = drawn(np.random.default_rng(2), levels=2)
    assert brier(p, y).mean() == pytest.approx(2 * brier_score_loss(y, p[:, 1]))


def test_brier_and_ranked_by_plain_loops():
    p, y = drawn(np.random.default_rng(3), n=40)
    for row in range(40):
        squares = sum((p[row, k] - (k == y[row])) ** 2 for k in range(4))
        steps = [(sum(p[row, t:]) - (y[row] >= t)) ** 2 for t in range(1, 4)]
        assert brier(p, y)[row] == pytest.approx(squares)
        assert ranked(p, y)[row] == pytest.approx(sum(steps) / 3)


def test_ranked_is_the_ordinal_score_a_threshold():
    p, y = drawn(np.random.default_rng(4))
    assert ranked(p, y).mean() == pytest.approx(rps(p, y).value / 3)


def test_a_near_miss_costs_less_than_a_far_one_only_in_the_ranked_score():
    p = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert ranked(p, [1, 2]).tolist() == [0.5, 1.0]
    assert brier(p, [1, 2]).tolist() == [2.0, 2.0]


def test_log_loss_of_a_level_called_impossible_is_clipped():
    assert log_loss([[1.0, 0.0]], [1])[0] == pytest.approx(-np.log(CLIP))


def test_top_takes_the_lowest_of_equally_likely_levels():
    found = top([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]], [0, 1])
    assert found.confidence.tolist() == [0.4, 0.7]
    assert found.correct.tolist() == [True, False]


def test_ece_by_a_plain_loop_over_sorted_tenths():
    rng = np.random.default_rng(5)
    confidence = np.sort(rng.random(200))
    correct = rng.random(200) < confidence**2
    gaps = [abs(confidence[at : at + 20].mean() - correct[at : at + 20].mean()) for at in range(0, 200, 20)]
    assert ece(Top(confidence, correct)).value == pytest.approx(np.mean(gaps))


def test_calibrated_probabilities_have_no_more_error_than_chance_makes():
    rng = np.random.default_rng(6)
    found = [(ece(of).value, ece_by_chance(of, 0).value) for of in (top(*drawn(rng)) for _ in range(60))]
    own, chance = np.mean(found, axis=0)
    assert own == pytest.approx(chance, rel=0.1)
    assert ece(top(*drawn(rng, n=200_000))).value < 0.005


def test_confidence_that_is_too_high_by_a_known_amount_is_found():
    rng = np.random.default_rng(7)
    right = rng.uniform(0.4, 0.8, 100_000)
    assert ece(Top(right + 0.15, rng.random(100_000) < right)).value == pytest.approx(0.15, abs=0.005)


def test_the_table_has_the_exact_intervals_and_all_rows():
    rng = np.random.default_rng(8)
    of = top(*drawn(rng, n=95))
    table = reliability(of)
    assert len(table) == 9
    assert sum(one.n for one in table) == 95
    for one in table:
        exact = binomtest(round(one.accuracy * one.n), one.n).proportion_ci(0.95)
        assert (one.low, one.high) == pytest.approx((exact.low, exact.high))


@given(st.lists(st.sampled_from([0.3, 0.5, 0.55, 0.8, 1.0]), min_size=1, max_size=120), st.randoms())
def test_bins_do_not_part_ties_and_do_not_depend_on_the_order(values, random):
    at = bins_of(values)
    assert all(len({int(b) for v, b in zip(values, at, strict=True) if v == value}) <= 1 for value in values)
    order = list(range(len(values)))
    random.shuffle(order)
    assert bins_of([values[i] for i in order]).tolist() == [at[i] for i in order]
    assert sorted(set(at.tolist())) == list(range(max(at) + 1))
    by_value = sorted(zip(values, at.tolist(), strict=True))
    assert [b for _, b in by_value] == sorted(b for _, b in by_value)


def test_without_rows_everything_is_undefined_and_with_few_there_is_one_bin():
    none = Top(np.empty(0), np.empty(0, dtype=bool))
    assert ece(none).value is None
    assert ece_by_chance(none, 0).value is None
    assert reliability(none) == []
    few = ece(Top(np.array([0.9, 0.7]), np.array([True, False])))
    assert few.value == pytest.approx(0.3)
    assert few.note == "2 rows make one bin only"


@pytest.mark.parametrize(
    ("p", "y"),
    [
        ([[0.5, 0.6]], [0]),
        ([[1.2, -0.2]], [0]),
        ([[0.5, 0.5]], [2]),
        ([[0.5, 0.5]], [0.5]),
        ([[0.5, 0.5]], [0, 1]),
        ([[1.0]], [0]),
        ([[np.nan, 1.0]], [0]),
    ],
)
def test_what_is_no_distribution_is_refused(p, y):
    with pytest.raises(ValueError, match=r"probabilities|levels"):
        brier(p, y)


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
