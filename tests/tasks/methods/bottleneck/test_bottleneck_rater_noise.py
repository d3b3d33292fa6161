"""Rater noise: planted values, the likelihood written out, variance components, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.rater_noise import (
    BY_CHANCE,
    EQUAL,
    NOBODY_SHARES,
    ONE_MARK,
    consensus,
    rater_noise,
)

FINE = 100
"""Levels so many that rounding plays no part."""


def some_marks(
    n: int, noise: np.ndarray, severity: np.ndarray | float = 0.0, missing: float = 0.0, top: int = FINE, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(marks (n, 1, R), true shares (n,))."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0.5, 0.15, n)
    shares = truth[:, None] + severity + rng.normal(size=(n, len(noise))) * noise
    marks = np.clip(np.round(shares * top), 0, top)
    marks[rng.random(marks.shape) < missing] = np.nan
    return marks[:, None, :], truth


def test_planted_noise_and_severity_come_back() -> None:
    noise, severity = np.array([0.05, 0.1, 0.2]), np.array([0.06, 0.0, -0.06])
    marks, truth = some_marks(4000, noise, severity, missing=0.3)
    found = rater_noise(marks, np.array([FINE]))
    assert found.noise[0] == pytest.approx(noise, rel=0.08)
    assert found.severity[0] == pytest.approx(severity, abs=0.01)
    assert found.mean[0] == pytest.approx(0.5, abs=0.01)
    assert np.sqrt(found.variance[0]) == pytest.approx(0.15, rel=0.06)
    assert found.reliability[0] == pytest.approx(0.15**2 / (0.15**2 + noise**2), abs=0.04)
    assert found.notes == (None,)
    error = found.latent[:, 0] - truth
    assert np.mean(error**2) == pytest.approx(found.latent_variance.mean(), rel=0.08)


def test_the_fit_is_at_the_top_of_the_likelihood() -> None:
    """Against a search over the marginal normal likelihood, with gaps."""
    marks, _ = some_marks(60, np.array([0.08, 0.12, 0.2]), np.array([0.05, 0.0, -0.05]), missing=0.2, seed=3)
    shares = marks[:, 0] / FINE
    found = rater_noise(marks, np.array([FINE]))

    def deviance(means: np.ndarray, variance: float, noise: np.ndarray) -> float:
        total = 0.0
        for row in shares:
            on = ~np.isnan(row)
            if on.any():
                spread = variance + np.diag(noise[on] ** 2)
                total -= 2 * multivariate_normal(means[on], spread).logpdf(row[on])
        return total

    best = minimize(
        lambda at: deviance(at[:3], np.exp(at[3]), np.exp(at[4:])),
        np.concatenate([np.nanmean(shares, axis=0), [np.log(0.02)], np.log([0.1] * 3)]),
        method="BFGS",
        options={"gtol": 1e-3},
    )
    ours = deviance(found.mean[0] + found.severity[0], found.variance[0], found.noise[0])
    assert ours == pytest.approx(best.fun, abs=1e-3)
    assert found.noise[0] == pytest.approx(np.exp(best.x[4:]), rel=0.02)


def test_two_raters_share_their_noise_and_give_the_intraclass_correlation() -> None:
    marks, _ = some_marks(800, np.array([0.1, 0.1]), np.array([0.04, -0.04]))
    found = rater_noise(marks, np.array([FINE]))
    assert found.notes == (EQUAL,)
    assert found.noise[0, 0] == found.noise[0, 1]
    first, second = marks[:, 0].T / FINE  # the analysis of variance: half the spread of differences is the error
    error = (first - second).var(ddof=1) / 2
    assert found.variance[0] == pytest.approx(((first + second) / 2).var(ddof=1) - error / 2, rel=0.01)
    assert found.noise[0, 0] ** 2 == pytest.approx(error, rel=0.01)
    between = 2 * ((first + second) / 2).var(ddof=1)
    assert found.reliability[0] == pytest.approx((between - error) / (between + error), abs=0.003)  # ICC(C,1)


def test_pairs_all_round_tell_the_noise_and_pairs_in_a_chain_do_not() -> None:
    """Every response has two of three raters: with all three pairs each has their own noise; with two pairs none."""
    noise = np.array([0.05, 0.1, 0.2])
    marks, _ = some_marks(3000, noise)
    marks[np.arange(3000), 0, np.arange(3000) % 3] = np.nan
    assert rater_noise(marks, np.array([FINE])).noise[0] == pytest.approx(noise, rel=0.12)
    chain = marks[np.arange(3000) % 3 != 1]
    found = rater_noise(chain, np.array([FINE]))
    assert found.notes == (EQUAL,)
    assert np.ptp(found.noise[0]) == pytest.approx(0)


def test_who_shares_nothing_gets_the_noise_of_all_and_no_severity() -> None:
    marks, _ = some_marks(1000, np.array([0.05, 0.1, 0.2, 0.1]), np.array([0.0, 0.0, 0.0, 0.2]))
    marks[:200, 0, :3] = np.nan
    marks[200:, 0, 3] = np.nan
    found = rater_noise(marks, np.array([FINE]))
    assert found.severity[0, 3] == 0
    assert found.noise[0, 3] ** 2 == pytest.approx(np.mean(found.noise[0, :3] ** 2))
    assert found.noise[0, :3] == pytest.approx([0.05, 0.1, 0.2], rel=0.12)
    assert found.notes == (EQUAL,)


def test_what_cannot_be_told_is_refused_or_said() -> None:
    rng = np.random.default_rng(0)
    alone = np.full((40, 2, 3), np.nan)
    alone[np.arange(40), :, np.arange(40) % 3] = rng.integers(0, 3, (40, 2))
    with pytest.raises(InputError, match="two persons"):
        rater_noise(alone, np.array([2, 2]))
    marks = np.concatenate([alone[:, :1], rng.integers(0, 3, (40, 1, 3)), np.full((40, 1, 3), 2.0)], axis=1)
    found = consensus(marks, np.array([2, 2, 2]))
    assert found.notes == (NOBODY_SHARES, BY_CHANCE, ONE_MARK)
    assert (found.weights == 1).all()
    assert (found.levels[:, 0] == np.nanmax(marks[:, 0], axis=1)).all()
    assert (found.levels[:, 1] == np.floor(marks[:, 1].mean(axis=1) + 0.5)).all()
    assert (found.levels[:, 2] == 2).all()


def test_a_consensus_follows_the_precise_rater_and_weighs_by_what_is_known() -> None:
    marks, _ = some_marks(2000, np.array([0.02, 0.25, 0.25]), top=4, seed=5)
    marks[:500, 0, 0] = np.nan
    marks[500, 0] = np.nan
    found = consensus(marks, np.array([4]))
    assert found.levels[500, 0] == MISSING
    assert found.weights[500, 0] == 1
    others = np.arange(2000) > 500
    follows = found.levels[others, 0] == marks[others, 0, 0]
    assert follows.mean() > 0.9
    assert found.weights[:500, 0].max() < found.weights[others, 0].min()
    assert ((found.weights > 0) & (found.weights <= 1)).all()


def test_a_consensus_spreads_as_the_truth_does() -> None:
    marks, truth = some_marks(4000, np.array([0.15, 0.15, 0.15]))
    levels = consensus(marks, np.array([FINE])).levels[:, 0] / FINE
    assert levels.std() == pytest.approx(truth.std(), rel=0.03)
    assert rater_noise(marks, np.array([FINE])).latent.std() < 0.9 * truth.std()


def test_responses_do_not_care_for_their_order() -> None:
    marks, _ = some_marks(300, np.array([0.1, 0.2, 0.3]), missing=0.2, top=3, seed=6)
    one, other = consensus(marks, np.array([3])), consensus(marks[::-1], np.array([3]))
    assert (one.levels == other.levels[::-1]).all()
    assert one.weights == pytest.approx(other.weights[::-1])
