"""What is made of several margins: chosen inside folds of items, and by nothing that has seen the item."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.stats.preferences import _fitted, chosen, cross_fitted, folds_of, right

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
