"""Learned retention factors: a simulation whose factors are known, finite differences, and the limiting cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.bootstrap import folds_of
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch
from rubricflow.tasks.rewards.reward.learn import error_left_out, learn, line, rewards_and_slopes

# c0 licenses c1 and c2, those license c3, c0 also licenses c3; c4 is a penalty licensed by c2.
EDGES = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (2, 4)]
PRIOR = [0.6, 0.2, 0.6, 0.6, 0.2, 0.0]
TRUE = np.array([0.1, 0.9, 0.4, 0.0, 0.7, 0.5])
WEIGHTS = [3.0, 5.0, 4.0, 6.0, -5.0]


def rubric(edges=EDGES, prior=PRIOR, weights=WEIGHTS):
    parent, child = np.array(edges, dtype=np.int32).reshape(-1, 2).T
    return CompiledGraph(
        rubric_id="essay",
        graph_id="a" * 64,
        criteria=tuple(f"c{at}" for at in range(len(weights))),
        weights=np.array(weights),
        order=np.arange(len(weights), dtype=np.int32),
        parent=parent,
        child=child,
        relation=("weak_prerequisite",) * len(edges),
        retention=np.array(prior),
    )


def reward(local, factors, edges=EDGES, weights=WEIGHTS):
    """Eqs. 12 and 14 as they are printed, one response at a time."""
    found = []
    for row in local:
        share = {}
        for child in range(len(weights)):
            share[child] = row[child]
            for factor, (parent, to) in zip(factors, edges, strict=True):
                if to == child:
                    share[child] *= share[parent] + (1 - share[parent]) * factor
        mass = sum(weight for weight in weights if weight > 0)
        found.append(sum(weight * share[at] for at, weight in enumerate(weights)) / mass)
    return np.array(found)


def simulated(n, noise, seed=3, factors=TRUE):
    """Local scores (n, 5) and human scores of a rater with these factors."""
    rng = np.random.default_rng(seed)
    local = rng.random((n, len(WEIGHTS)))
    return local, 2 + 4 * reward(local, factors) + rng.normal(0, noise, n)


def fitted(local, scores, compiled=None, names=None, **given):
    """What is learned about one rubric, each response a cluster of its own."""
    found = batch([compiled or rubric()], np.zeros(len(local), dtype=int), local.ravel())
    (one,) = learn(found, scores, np.arange(len(local)) if names is None else names, **given)
    return one


def test_known_factors_are_found_again() -> None:
    one = fitted(*simulated(4000, noise=0.02))
    np.testing.assert_allclose([one.factors[edge] for edge in rubric().edges], TRUE, atol=0.03)


def test_noise_alone_leaves_the_relations_factors() -> None:
    local, _ = simulated(60, noise=0)
    noise = np.random.default_rng(0).normal(size=60)
    one = fitted(local, 0.2 * reward(local, PRIOR) + noise)
    np.testing.assert_allclose(list(one.factors.values()), PRIOR, atol=0.1)


@given(st.data())
@settings(max_examples=15)
def test_slopes_are_those_of_finite_differences(data) -> None:
    local = np.array(data.draw(st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=4)))
    factors = np.array(data.draw(st.lists(st.floats(0.01, 0.99), min_size=6, max_size=6)))
    found, slopes = rewards_and_slopes(rubric(), local.T.copy(), factors)
    np.testing.assert_allclose(found, reward(local, factors), atol=1e-12)
    for at in range(len(factors)):
        step = np.zeros(len(factors))
        step[at] = 1e-3  # the reward is linear in each factor, so that the step may be long
        by_hand = (reward(local, factors + step) - reward(local, factors - step)) / 2e-3
        np.testing.assert_allclose(slopes[at], by_hand, atol=1e-10)


def test_an_unsupported_parent_with_no_retention_divides_by_nothing() -> None:
    local = np.zeros((5, 1))
    local[3] = 1.0
    _, slopes = rewards_and_slopes(rubric(), local, np.zeros(6))
    assert np.isfinite(slopes).all()


@given(st.integers(0, 10_000), st.sampled_from([9, 12, 40]))
@settings(max_examples=6)
def test_every_factor_is_a_share(seed, n) -> None:
    rng = np.random.default_rng(seed)
    one = fitted(rng.random((n, 5)).round(1), rng.integers(0, 4, n).astype(float))
    assert all(0 <= factor <= 1 for factor in one.factors.values())


def test_the_errors_are_those_of_fits_that_have_not_seen_the_fold() -> None:
    local, scores = simulated(200, noise=0.3)
    fold = folds_of(np.arange(200), 4, 7)
    missed = []
    for one in range(4):
        train = fold != one
        intercept, slope = line(reward(local[train], PRIOR), scores[train])
        missed.append(scores[~train] - intercept - slope * reward(local[~train], PRIOR))
    error = error_left_out(rubric(), local.T, scores, fold, math.inf)
    assert error == pytest.approx(np.mean(np.concatenate(missed) ** 2))


def test_an_edge_whose_parent_is_always_supported_keeps_its_factor() -> None:
    local, scores = simulated(400, noise=0.05)
    local[:, 0] = 1.0
    one = fitted(local, scores)
    assert [one.factors["c0", child] for child in ("c1", "c2", "c3")] == [0.6, 0.2, 0.6]
    assert one.factors["c1", "c3"] != 0.6


def test_an_edge_that_moves_all_rewards_alike_keeps_its_factor() -> None:
    compiled = rubric(edges=[(0, 1), (0, 2)], prior=[0.3, 0.6], weights=[1.0, 1.0, 1.0])
    local = np.column_stack([np.full(100, 0.5), np.full(100, 0.7), np.random.default_rng(0).random(100)])
    assert fitted(local, local[:, 2] ** 2, compiled).factors["c0", "c1"] == 0.3


def test_an_activation_edge_that_gates_everything_can_still_be_learned() -> None:
    compiled = rubric(edges=[(0, 2), (1, 2)], prior=[0.0, 0.0], weights=[1.0, 1.0, 4.0])
    rng = np.random.default_rng(0)
    local = np.column_stack([np.zeros(500), rng.random(500), rng.random(500)])
    scores = reward(local, [0.8, 0.3], [(0, 2), (1, 2)], [1.0, 1.0, 4.0])
    assert all(factor > 0 for factor in fitted(local, scores, compiled).factors.values())


def test_the_order_of_the_responses_does_not_matter() -> None:
    local, scores = simulated(200, noise=0.2)
    order = np.random.default_rng(1).permutation(200)
    one, other = fitted(local, scores), fitted(local[order], scores[order], names=order)
    np.testing.assert_allclose(list(one.factors.values()), list(other.factors.values()), atol=1e-5)


def test_a_cluster_is_never_split_between_folds_and_folds_are_even() -> None:
    clusters = np.repeat(np.arange(53), 3)
    fold = folds_of(clusters, 5, 0)
    assert all(len(set(fold[clusters == one])) == 1 for one in range(53))
    assert sorted(np.bincount(fold)) == [30, 30, 33, 33, 33]


def test_each_rubric_of_a_batch_is_fitted_alone() -> None:
    local, scores = simulated(150, noise=0.1)
    other = rubric(edges=[(0, 1)], prior=[0.5], weights=[1.0, 2.0])
    pairs = np.random.default_rng(5).random((90, 2))
    wanted = reward(pairs, [0.9], [(0, 1)], [1.0, 2.0]) * 7
    of = np.repeat([1, 0], [90, 150])
    both = batch([rubric(), other], of, np.concatenate([pairs.ravel(), local.ravel()]))
    names = np.concatenate([np.arange(90), np.arange(150)])
    first, second = learn(both, np.concatenate([wanted, scores]), names)
    assert first == fitted(local, scores)
    assert second == fitted(pairs, wanted, other)


def test_responses_without_a_score_or_with_an_unscored_criterion_are_left_out() -> None:
    local, scores = simulated(200, noise=0.1)
    scores[:20] = np.nan
    scored = np.ones(local.shape, dtype=bool)
    scored[20:50, 2] = False
    (one,) = learn(batch([rubric()], np.zeros(200, int), local.ravel(), scored.ravel()), scores, np.arange(200))
    assert one == fitted(local[50:], scores[50:], names=np.arange(50, 200))
    assert one.n == 150


def test_without_edges_only_the_line_is_fitted() -> None:
    local, scores = simulated(50, noise=0.1)
    assert fitted(local, scores, rubric(edges=[], prior=[])).factors == {}
    assert line(reward(local, [], []), scores) == pytest.approx(np.polyfit(reward(local, [], []), scores, 1)[::-1])


def test_scores_that_fall_with_the_reward_leave_the_relations_factors_and_say_so() -> None:
    local, scores = simulated(200, noise=0.01)
    one = fitted(local, -scores)
    assert "does not rise" in one.note
    assert list(one.factors.values()) == PRIOR


@pytest.mark.parametrize(
    ("n", "scores", "says"),
    [
        (8, np.arange(8.0), "8 labelled responses for 6 edges; needs 9"),
        (0, np.empty(0), "0 labelled responses for 6 edges; needs 9"),
        (20, np.full(20, 3.0), "every human score is 3"),
    ],
)
def test_too_little_to_learn_from_is_refused_with_the_reason(n, scores, says) -> None:
    one = fitted(np.random.default_rng(0).random((n, 5)), scores)
    assert one.note == says
    assert one.factors is None


def test_too_few_clusters_for_the_folds_are_refused() -> None:
    one = fitted(*simulated(40, noise=0.1), names=np.arange(40) % 4)
    assert one.note == "too few clusters for 5 folds"
