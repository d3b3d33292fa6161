"""Strengths of answers, held against a generic optimiser and simulated judges with a planted effect of
order; and what is made of several margins: chosen inside folds of items, and by nothing that has seen the item."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.stats.bootstrap import folds_of
from rubricflow.tasks.core.stats.preferences import (
    PRIOR_SD,
    _fitted,
    chosen,
    cross_fitted,
    right,
    strengths,
    win_shares,
)

DRAW = np.random.default_rng(3)
ITEMS = [f"q{n}" for n in range(120)]
Y = DRAW.choice([-1.0, 1.0], len(ITEMS))


def margins(*chances: float, seed: int = 0) -> np.ndarray:
    """A sample for each chance to be right."""
    draw = np.random.default_rng(seed)
    return np.column_stack([np.where(draw.random(len(Y)) < chance, Y, -Y) for chance in chances])


def test_who_does_not_choose_is_right_by_half() -> None:
    assert right(np.array([2.0, -0.1, 0.0]), np.array([1.0, 1.0, -1.0])).tolist() == [1, 0, 0.5]


def test_folds_hold_items_whole_and_are_even() -> None:
    fold = folds_of([*ITEMS, *ITEMS], 10, seed=1)
    assert fold[:120].tolist() == fold[120:].tolist()
    assert np.bincount(fold).tolist() == [24] * 10


def test_no_pair_is_judged_by_a_rule_that_has_seen_it() -> None:
    told = margins(0.8, 0.7, 0.6)
    odds, _ = cross_fitted(told, Y, ITEMS)
    turned = Y.copy()
    turned[5] *= -1
    again, _ = cross_fitted(told, turned, ITEMS)
    assert again[5] == odds[5]
    assert not np.allclose(again, odds)


def test_the_one_good_sample_among_noise_is_found() -> None:
    told = margins(0.9, *[0.5] * 8)
    odds, _ = cross_fitted(told, Y, ITEMS)
    alone, even = (right(one, Y).mean() for one in (told[:, 0], told.mean(axis=1)))
    assert right(odds, Y).mean() >= alone - 0.03 > even


def test_of_many_alike_the_mean_or_weights_near_it_are_better_than_the_best() -> None:
    told = margins(*[0.7] * 9)
    odds, names = cross_fitted(told, Y, ITEMS)
    assert right(odds, Y).mean() > max(right(one, Y).mean() for one in told.T)
    assert "best" not in names


def test_to_exchange_the_answers_exchanges_the_verdict() -> None:
    rule, _ = chosen(margins(0.8, 0.6), Y, ITEMS)
    new = margins(0.7, 0.7, seed=4)
    np.testing.assert_allclose(rule(-new), -rule(new))


@pytest.mark.parametrize("variance", [0.01, 1.0, 100.0])
def test_a_fit_is_that_of_a_library(variance: float) -> None:
    told = margins(0.8, 0.6, 0.5)
    rule = _fitted(told, Y, variance, lambda new: new)
    both = np.concatenate([Y, -Y]), np.full(2 * len(Y), 0.5)
    library = LogisticRegression(C=variance, fit_intercept=False, tol=1e-10).fit(np.vstack([told, -told]), *both)
    np.testing.assert_allclose(rule(told), library.decision_function(told), atol=1e-4)


def test_weights_are_finite_where_a_sample_is_always_right() -> None:
    assert np.isfinite(_fitted(margins(1.0, 1.0), Y, 100.0, lambda new: new)(margins(1.0, 1.0))).all()


def test_a_sample_without_verdicts_does_no_harm() -> None:
    told = np.column_stack([margins(0.8), np.zeros(len(Y))])
    odds, _ = cross_fitted(told, Y, ITEMS)
    assert right(odds, Y).mean() == right(told[:, 0], Y).mean()


def test_too_few_items_choose_nothing() -> None:
    with pytest.raises(ValueError, match="20 items"):
        cross_fitted(margins(0.8)[:19], Y[:19], ITEMS[:19])


BOTH = np.array([*permutations(range(5), 2)])
OUTCOMES = np.random.default_rng(4).choice([0.0, 0.5, 1.0], len(BOTH))


def posterior(values: np.ndarray, first: np.ndarray, second: np.ndarray, won: np.ndarray) -> float:
    """Minus the log posterior, written down once more: the effect of order has five times the strengths' deviation."""
    odds = values[first] - values[second] + values[-1]
    likelihood = won * np.log(expit(odds)) + (1 - won) * np.log(expit(-odds))
    prior = (values[:-1] ** 2).sum() / (2 * PRIOR_SD**2) + values[-1] ** 2 / (2 * (5 * PRIOR_SD) ** 2)
    return float(prior - likelihood.sum())


def test_the_estimate_is_the_top_of_the_posterior_and_its_errors_the_curvature_there() -> None:
    found = strengths(BOTH[:, 0], BOTH[:, 1], OUTCOMES, 5)
    top = minimize(posterior, np.zeros(6), args=(BOTH[:, 0], BOTH[:, 1], OUTCOMES), tol=1e-12).x
    from_mean = top[:5] - top[:5].mean()
    np.testing.assert_allclose(found.strength, from_mean, atol=1e-4)
    assert found.order == pytest.approx(top[-1], abs=1e-4)

    def slope(values: np.ndarray) -> np.ndarray:
        return approx_fprime(values, posterior, 1e-5, BOTH[:, 0], BOTH[:, 1], OUTCOMES)

    curvature = np.array([approx_fprime(top, lambda v, at=at: slope(v)[at], 1e-4) for at in range(6)])
    contrast = np.hstack([np.eye(5) - 1 / 5, np.zeros((5, 1))])
    errors = np.sqrt(np.diag(contrast @ np.linalg.inv(curvature) @ contrast.T))
    np.testing.assert_allclose(found.error, errors, rtol=2e-2)


def test_who_wins_everything_has_a_finite_strength_and_sets_stay_apart() -> None:
    found = strengths([0, 1, 0, 3], [1, 0, 2, 4], [1.0, 0.0, 1.0, 1.0], 6)
    assert np.isfinite([found.strength, found.error]).all()
    assert found.strength[0] == max(found.strength[:3])
    assert found.connected[0] == found.connected[1] == found.connected[2] != found.connected[3]
    assert len({*found.connected.tolist()}) == 3  # 5 was compared with nobody
    assert found.strength[5] == 0


def test_nothing_compared_says_nothing() -> None:
    found = strengths([], [], [], 2)
    assert found.strength.tolist() == [0, 0]
    assert len({*found.connected.tolist()}) == 2


@pytest.mark.parametrize(("first", "second", "won"), [([0], [0], [1]), ([0], [1], [2])])
def test_what_is_no_comparison_is_refused(first: list[int], second: list[int], won: list[float]) -> None:
    with pytest.raises(ValueError, match="two answers"):
        strengths(first, second, won, 2)


@settings(max_examples=8)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(BOTH), max_size=len(BOTH)))
def test_to_show_everything_the_other_way_round_turns_the_order_alone(won: list[float]) -> None:
    one = strengths(BOTH[:, 0], BOTH[:, 1], won, 5)
    other = strengths(BOTH[:, 1], BOTH[:, 0], 1 - np.array(won), 5)
    np.testing.assert_allclose(one.strength, other.strength, atol=1e-4)
    assert one.order == pytest.approx(-other.order, abs=1e-4)


def test_a_share_is_the_mean_chance_against_the_others() -> None:
    strength = np.array([1.0, 0.0, -2.0])
    chances = [np.mean([expit(a - b) for at, b in enumerate(strength) if at != n]) for n, a in enumerate(strength)]
    np.testing.assert_allclose(win_shares(strength), chances)
    assert win_shares(strength[:1]).tolist() == [0.5]
