"""Probabilities of levels against the levels given: libraries, plain loops, simulations whose answer is known; and
conformal intervals: worked examples, exact ranks and simulation."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, wasserstein_distance
from sklearn.metrics import log_loss as sklearn_log_loss

from rubricflow.tasks.core.stats import probability as cf
from rubricflow.tasks.core.stats import probability as sv
from rubricflow.tasks.core.stats.probability import (
    CLIP,
    Top,
    bins_of,
    brier,
    ece,
    ece_by_chance,
    log_loss,
    ordinal_ece,
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


# Ordinal calibration: worked examples, a plain loop, and where bins begin.


FIRST = ([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.05, 0.15, 0.8]], [0, 1, 2, 2])
SECOND = ([[0.9, 0.1, 0], [0.3, 0.4, 0.3], [0.3, 0.4, 0.3], [0, 0.5, 0.5], [0.1, 0.2, 0.7]], [0, 0, 2, 1, 2])


def forecasts(seed, n=200, size=5):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(size), n), rng.integers(0, size, n)


def looped(table, levels, bins):
    gaps = []
    for threshold in range(1, table.shape[1]):
        p, y = table[:, threshold:].sum(axis=1), levels >= threshold
        gap = 0.0
        for at in range(bins):
            low, high = at / bins, (at + 1) / bins
            inside = (p >= low) & (p < high) if at < bins - 1 else p >= low
            if inside.any():
                gap += inside.mean() * abs(p[inside].mean() - y[inside].mean())
        gaps.append(gap)
    return np.mean(gaps)


@pytest.mark.parametrize(("case", "published"), [(FIRST, (0.143750, 0.193125)), (SECOND, (0.1, 0.304))])
def test_worked_example(case, published):
    assert (ordinal_ece(*case, bins=2).value, rps(*case).value) == pytest.approx(published, abs=5.1e-7)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bins", [1, 2, 10])
def test_equals_a_loop_over_bins(seed, bins):
    table, levels = forecasts(seed)
    assert ordinal_ece(table, levels, bins).value == pytest.approx(looped(table, levels, bins), rel=1e-12)


def test_a_bin_begins_at_its_lower_edge():
    # A half goes with 0.9, where the two errors partly cancel, and not into a bin of its own.
    assert ordinal_ece([[0.5, 0.5], [0.1, 0.9]], [0, 1], bins=2).value == pytest.approx(abs(0.5 + 0.9 - 1) / 2)


def test_the_last_bin_holds_certainty():
    assert ordinal_ece([[0, 1], [0.05, 0.95]], [0, 1]).value == pytest.approx(abs(1 + 0.95 - 1) / 2)


def test_an_edge_missed_by_rounding_counts_as_the_edge():
    # 0.1 + 0.7 is 0.7999999999999999 and belongs with 0.85, not with 0.75.
    table = [[0.2, 0.1, 0.7], [0.15, 0.85, 0], [0.25, 0.75, 0]]
    ours = ordinal_ece(table, [0, 1, 1], bins=10).value
    first = (abs(0.8 + 0.85 - 1) + abs(0.75 - 1)) / 3
    assert ours == pytest.approx((first + 0.7 / 3) / 2)


def test_rps_of_a_certain_forecast_is_the_distance_in_levels():
    for said in range(4):
        forecast = np.eye(4)[[said]]
        assert rps(forecast, [1]).value == pytest.approx(wasserstein_distance([said], [1]))


def test_no_rows():
    assert [ordinal_ece(np.empty((0, 3)), []).value, rps(np.empty((0, 3)), []).value] == [None, None]


@pytest.mark.parametrize(
    ("table", "levels"),
    [
        ([[1.0]], [0]),
        ([0.5, 0.5], [0, 1]),
        ([[0.5, 0.5]], [0, 1]),
        ([[0.5, 0.4]], [0]),
        ([[1.5, -0.5]], [0]),
        ([[np.nan, 1]], [0]),
        ([[0.5, 0.5]], [2]),
        ([[0.5, 0.5]], [0.5]),
        ([[0.5, 0.5]], [np.nan]),
    ],
)
def test_bad_input_is_refused(table, levels):
    for statistic in (ordinal_ece, rps):
        with pytest.raises(ValueError, match=r"needs probabilities|must"):
            statistic(table, levels)


def test_a_bin_is_needed():
    with pytest.raises(ValueError, match="needs a bin"):
        ordinal_ece(*FIRST, bins=0)


# Risk and coverage: worked examples, all orders of a tie, and the ends between oracle and chance.


A_LOSS, A_CONFIDENCE = [1, 0, 0, 0, 1, 0, 0, 1], [0.9, 0.8, 0.6, 0.6, 0.5, 0.4, 0.95, 0.3]
B_LOSS = [0.5, 0.2, 0.2, 0.9, 0.4, 0.4, 0.9, 0.9, 0.4, 0.2]
B_CONFIDENCE = [0.7, 0.7, 0.9, 0.5, 0.8, 0.6, 0.4, 0.3, 0.85, 0.65]
PAIRS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 4)), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("loss", "confidence", "published"),
    [
        (A_LOSS, A_CONFIDENCE, [0.284673, 0.171875, 0.103423]),
        (B_LOSS, B_CONFIDENCE, [0.351163, 0.213500, 0.311413]),
    ],
)
def test_worked_risk_and_coverage(loss, confidence, published):
    ours = [sv.aurc(loss, confidence), sv.augrc(loss, confidence), sv.oracle_aurc(loss)]
    assert ours == pytest.approx(published, abs=5.1e-7)


def test_ties_count_as_the_mean_over_their_orders():
    loss, confidence = np.array([3, 0, 1, 5, 2.0]), [9, 7, 7, 7, 4]
    orders = [loss[[0, *tie, 4]] for tie in permutations([1, 2, 3])]
    curves = [np.cumsum(order) / np.arange(1, 6) for order in orders]
    np.testing.assert_allclose(sv.risk_coverage(loss, confidence), np.mean(curves, axis=0), rtol=1e-12)


@given(PAIRS)
@settings(max_examples=20)
def test_between_the_oracle_and_its_opposite(rows):
    loss, confidence = map(list, zip(*rows, strict=True))
    worst = sv.aurc(loss, loss)
    assert sv.oracle_aurc(loss) - 1e-9 <= sv.aurc(loss, confidence) <= worst + 1e-9


def test_random_is_the_mean_over_all_orders():
    loss = np.array([0, 1, 4, 2.0])
    areas = [np.mean(np.cumsum(order) / np.arange(1, 5)) for order in permutations(loss)]
    assert sv.random_aurc(loss) == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(("loss", "confidence"), [([], []), ([1, 2], [1]), ([np.nan], [1]), ([1], [np.inf])])
def test_bad_losses_are_refused(loss, confidence):
    with pytest.raises(ValueError, match=r"needs rows|scores must be"):
        sv.risk_coverage(loss, confidence)
