"""Variance components: worked examples, the analysis of variance, and the dense likelihood written out."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tasks.stats import components as vc
from tasks.stats.agreement import icc_2_1

NAN = np.nan
SHROUT = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
GAPS = [[1, 2, NAN], [3, NAN, 5], [NAN, 4, 6], [2, 2, 3], [5, 5, NAN], [4, NAN, 5], [1, 1, NAN], [NAN, 3, 4]]


def sample(seed, n=12, k=4, missing=0.35, person=1.0, rater=0.5):
    rng = np.random.default_rng(seed)
    table = rng.normal(0, person, (n, 1)) + rng.normal(0, rater, k) + rng.normal(0, 1, (n, k))
    table[rng.random((n, k)) < missing] = NAN
    return table


def deviance(table, variances):
    """-2 log restricted likelihood less a constant, with the full covariance matrix."""
    row, rater = np.nonzero(~np.isnan(table))
    y, ones = table[row, rater], np.ones((len(row), 1))
    person, between, error = variances
    whole = person * (row[:, None] == row) + between * (rater[:, None] == rater) + error * np.eye(len(row))
    inverse = np.linalg.inv(whole)
    information = ones.T @ inverse @ ones
    left = y - (ones.T @ inverse @ y / information).item()
    return np.linalg.slogdet(whole)[1] + np.linalg.slogdet(information)[1] + left @ inverse @ left


@pytest.mark.parametrize(("table", "published"), [(SHROUT, 0.289764), (GAPS, 0.71766)])
def test_worked_icc(table, published):
    components = vc.variance_components(table)
    digits = 5.1e-7 if published == 0.289764 else 5.1e-6
    assert components.person / sum(components) == pytest.approx(published, abs=digits)


@pytest.mark.parametrize("seed", range(8))
def test_complete_tables_give_the_analysis_of_variance(seed):
    table = sample(seed, missing=0, person=2, rater=2)
    n, k = table.shape
    rows, columns = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    error = ((table - rows - columns + table.mean()) ** 2).sum() / ((n - 1) * (k - 1))
    person, rater = rows.var(ddof=1) - error / k, columns.var(ddof=1) - error / n
    assert min(person, rater) > 0
    components = vc.variance_components(table)
    assert components == pytest.approx((person, rater, error), rel=1e-6)
    assert vc.generalizability(components, 1)[1] == pytest.approx(icc_2_1(table).value, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_components_are_likelier(seed):
    table = sample(seed, person=seed % 3, rater=seed % 2)
    found = vc.variance_components(table)
    starts = [(1, 1, 1), (0.1, 0.1, 1), (3, 0.1, 0.5), tuple(max(one, 1e-4) for one in found)]
    best = min(
        minimize(lambda at: deviance(table, at), start, bounds=[(0, None), (0, None), (1e-6, None)]).fun
        for start in starts
    )
    assert deviance(table, found) <= best + 1e-6


def test_a_component_on_its_bound_is_exactly_zero():
    found = [vc.variance_components(sample(seed, person=0, rater=0)) for seed in range(12)]
    assert sum(one.person == 0 for one in found) >= 3
    assert sum(one.rater == 0 for one in found) >= 3
    assert all(value == 0 or value > 1e-6 for one in found for value in one[:2])


def test_recovers_what_was_put_in_from_many_ratings():
    table = sample(0, n=2000, k=40, missing=0.5, person=1.5, rater=0.5)
    assert vc.variance_components(table) == pytest.approx((2.25, 0.25, 1), rel=0.3)
    assert vc.variance_components(table).error == pytest.approx(1, rel=0.02)


def test_units_square():
    table = sample(3)
    plain, scaled = vc.variance_components(table), vc.variance_components(10 * table + 500)
    assert scaled == pytest.approx([100 * one for one in plain], rel=1e-5, abs=1e-5)


def test_without_error_the_effects_speak():
    table = np.add.outer([0, 1, 3.0], [0, 0.1])
    table[0, 1] = NAN
    found = vc.variance_components(table)
    assert found == pytest.approx((np.var([0, 1, 3], ddof=1), np.var([0, 0.1], ddof=1), 0))
    assert found.error == 0


def test_without_error_is_the_limit_of_little_error():
    rng = np.random.default_rng(0)
    table = np.add.outer(rng.normal(size=8), rng.normal(size=3))
    table[[0, 3], [1, 2]] = NAN
    nearly = vc.variance_components(table + rng.normal(0, 1e-4, table.shape))
    assert vc.variance_components(table)[:2] == pytest.approx(nearly[:2], rel=1e-3)


@pytest.mark.parametrize(
    "table",
    [
        np.empty((0, 2)),
        [[1, 2]],
        [[1], [2], [3]],
        [[1, NAN], [NAN, 2], [2, NAN]],
        [[1, 2, NAN, NAN], [3, 5, NAN, NAN], [NAN, NAN, 2, 3], [NAN, NAN, 1, 5]],
        [[1, 2], [3, NAN], [4, NAN]],
    ],
    ids=["no rows", "one response", "one rater", "no doubles", "two islands", "nothing left"],
)
def test_nothing_to_tell_apart(table):
    assert vc.variance_components(table) is None


@pytest.mark.parametrize(
    ("table", "linked"),
    [
        ([[1, 2, NAN], [NAN, 2, 3]], True),
        ([[1, 2, NAN], [NAN, NAN, 3]], False),
        ([[1, 2, NAN], [2, 2, NAN]], True),
        ([[1, 2, NAN, NAN], [NAN, NAN, 2, 3]], False),
        ([[1, 2, NAN, NAN], [NAN, NAN, 2, 3], [NAN, 1, 1, NAN]], True),
        ([[NAN, NAN]], True),
        (np.empty((0, 3)), True),
    ],
)
def test_connected(table, linked):
    assert vc.connected(table) is linked


def test_generalizability_by_hand():
    components = vc.Components(person=4, rater=1, error=2)
    assert vc.generalizability(components, 2) == pytest.approx((4 / 5, 4 / 5.5))
    assert vc.generalizability(vc.Components(0, 1, 0), 3) == (None, 0)
    assert vc.generalizability(vc.Components(0, 0, 0), 1) == (None, None)
    with pytest.raises(ValueError, match="needs a rater"):
        vc.generalizability(components, 0)


def test_generalizability_is_the_reliability_of_means():
    rng = np.random.default_rng(4)
    person, rater, error = 1.2, 0.6, 0.9
    truth = rng.normal(0, np.sqrt(person), 100_000)
    # Absolute: every response has raters of its own.
    noise = rng.normal(0, np.sqrt(rater), (100_000, 3)) + rng.normal(0, np.sqrt(error), (100_000, 3))
    squared = np.corrcoef(truth, truth + noise.mean(axis=1))[0, 1] ** 2
    assert vc.generalizability(vc.Components(person, rater, error), 3)[1] == pytest.approx(squared, abs=0.01)
