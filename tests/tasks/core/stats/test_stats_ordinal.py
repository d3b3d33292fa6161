"""Ordinal calibration: worked examples, a plain loop, and where bins begin."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from rubricflow.tasks.core.stats.probability import ordinal_ece, rps

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


def test_true_probabilities_are_nearly_calibrated():
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(4), 50_000)
    levels = (rng.random((50_000, 1)) > np.cumsum(table, axis=1)).sum(axis=1)
    assert ordinal_ece(table, levels).value < 0.01


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
