"""Rewards against recursions written from the equations, worked numbers, limiting cases and laws."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_scene import study
from rubric_graphs import RETENTION, bundle, edges_among, graph, rubric, shares, weights_of

from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.rewards.reward.aggregate import PLAIN_DOUBT, Aggregated, aggregate, averaged, weights_of_doubts
from rubricflow.tasks.rewards.reward.compiled import batch, compile_graph
from rubricflow.tasks.rewards.reward.exact import reward_variances

ALL: tuple[Aggregation, ...] = ("flat", "hard_verdict", "hard_local", "hard_propagated", "gear")
EVERY = pytest.mark.parametrize(
    ("aggregation", "inference"), [*((name, "topological") for name in ALL), ("gear", "exact")]
)
laws = settings(max_examples=15)  # the first example compiles
DIAMOND = [(0, 1, 0.5), (0, 2, 0.5), (1, 3, 0.5), (2, 3, 0.5)]


def one(compiled, local, aggregation="gear", scored=None, decided=None, **settings) -> Aggregated:
    """A response alone."""
    return aggregate(batch([compiled], [0], local, scored, decided), aggregation, **settings)


def recursion(aggregation, local, edges, threshold=0.5, decided=None) -> list[float]:
    """Each criterion's share after its dependencies, from the definition."""

    def share(place: int) -> float:
        found = local[place]
        for parent, kept in [(a, kept) for a, b, kept in edges if b == place]:
            if aggregation == "gear":
                found *= share(parent) + (1 - share(parent)) * kept
            elif aggregation == "hard_verdict":
                found *= (decided or local)[parent] >= threshold
            elif aggregation == "hard_local":
                found *= local[parent] >= threshold
            elif aggregation == "hard_propagated":
                found *= share(parent) >= threshold
        return found

    return [share(place) for place in range(len(local))]


def mass(weights) -> float:
    return math.fsum(weight for weight in weights if weight > 0) or math.fsum(map(abs, weights))


@pytest.mark.parametrize("aggregation", ALL)
@laws
@given(st.data())
def test_an_aggregation_is_its_definition(aggregation, data):
    weights = data.draw(weights_of(6))
    edges, local = data.draw(edges_among(len(weights))), data.draw(shares(len(weights)))
    threshold, decided = data.draw(st.sampled_from([0.3, 0.5, 1.0])), data.draw(shares(len(weights)))
    expected = recursion(aggregation, local, edges, threshold, decided)
    found = one(rubric(weights, edges), local, aggregation, decided=decided, threshold=threshold)
    assert found.marginal == pytest.approx(expected, abs=1e-12)
    worth = math.fsum(weight * share for weight, share in zip(weights, expected, strict=True)) / mass(weights)
    assert found.reward[0] == pytest.approx(worth, abs=1e-12 * max(1, sum(map(abs, weights)) / mass(weights)))


def test_a_parent_without_a_verdict_leaves_its_child_without_a_share():
    found = one(rubric([1, 1], [(0, 1, 0.6)]), [0.0, 0.9], "hard_verdict", [False, True], decided=[0.0, 1.0])
    assert np.isnan(found.reward[0])
    assert np.isnan(found.marginal[1])


def test_a_parent_just_at_the_threshold_opens_the_gate():
    compiled = rubric([1, 1], [(0, 1, 0.6)])
    for aggregation in ("hard_verdict", "hard_local", "hard_propagated"):
        assert one(compiled, [0.5, 0.9], aggregation).marginal.tolist() == [0.5, 0.9]
        assert one(compiled, [0.5, 0.9], aggregation, threshold=0.51).marginal.tolist() == [0.5, 0.0]


@laws
@given(st.data())
def test_full_retention_is_flat_to_the_last_bit(data):
    weights = data.draw(weights_of())
    compiled = rubric(weights, data.draw(edges_among(len(weights), st.just(1.0))))
    local = data.draw(shares(len(weights)))
    gear, flat = one(compiled, local), one(compiled, local, "flat")
    assert gear.marginal.tolist() == flat.marginal.tolist() == local
    assert gear.reward[0] == flat.reward[0]


@laws
@given(st.data())
def test_suppression_strength_0_is_flat_whatever_the_factors(data):
    weights = data.draw(weights_of())
    edges = data.draw(edges_among(len(weights)))
    pairs = [(a, b) for a, b, _ in edges]
    factors = {(f"c{a}", f"c{b}"): kept for a, b, kept in edges}
    compiled = compile_graph("r", bundle(weights), graph(len(weights), pairs), RETENTION, eta=0.0, learned=factors)
    local = data.draw(shares(len(weights)))
    assert one(compiled, local).reward[0] == one(compiled, local, "flat").reward[0]


@laws
@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=60), st.lists(st.floats(-1000, -0.01), max_size=5))
def test_full_credit_without_penalties_is_exactly_1(credits, penalties):
    local = [1.0] * len(credits) + [0.0] * len(penalties)
    assert one(rubric(credits + penalties), local, "flat").reward[0] == 1.0


@pytest.mark.parametrize("aggregation", ALL)
@laws
@given(st.data())
def test_a_rubric_of_penalties_alone_rewards_between_minus_1_and_0(aggregation, data):
    weights = data.draw(st.lists(st.floats(-10, -0.01), min_size=1, max_size=30))
    compiled = rubric(weights, data.draw(edges_among(min(len(weights), 6))))
    assert -1 <= one(compiled, data.draw(shares(len(weights))), aggregation).reward[0] <= 0
    assert one(compiled, np.ones(len(weights)), aggregation).reward[0] == -1.0
    assert one(compiled, np.zeros(len(weights)), aggregation).reward[0] == 0.0


@pytest.mark.parametrize("inference", ["topological", "exact"])
def test_a_chain_of_500_criteria_has_the_closed_form(inference):
    kept, share = 0.2, 0.9
    compiled = rubric([1] * 500, [(at, at + 1, kept) for at in range(499)])
    limit = share * kept / (1 - share * (1 - kept))  # where q = p (λ + (1 − λ) q)
    expected = limit + (share - limit) * (share * (1 - kept)) ** np.arange(500)
    found = one(compiled, np.full(500, share), inference=inference)
    assert found.marginal == pytest.approx(expected, abs=1e-12)
    assert found.reward[0] == pytest.approx(expected.mean(), abs=1e-12)


@pytest.mark.parametrize("aggregation", ALL)
def test_a_batch_of_none_has_no_rewards(aggregation):
    for compiled in ([], [rubric([1, 2])]):
        found = aggregate(batch(compiled, [], []), aggregation, unscored="bounds")
        assert len(found.reward) == len(found.low) == len(found.high) == len(found.marginal) == 0


@pytest.mark.parametrize("aggregation", ALL)
@pytest.mark.parametrize("unscored", ["null", "bounds", "zero"])
def test_a_mixed_batch_is_its_responses_one_by_one(aggregation, unscored):
    rng = np.random.default_rng(5)
    compiled = [rubric([1], name="one"), rubric([1, 2, -1, 3], DIAMOND, "four"), rubric([-2, -1], [(1, 0, 0.3)], "two")]
    of = rng.integers(0, 3, 40)
    local = [rng.random(len(compiled[which].criteria)) for which in of]
    scored = [rng.random(len(own)) < 0.8 for own in local]
    together = aggregate(
        batch(compiled, of, np.concatenate(local), np.concatenate(scored)), aggregation, unscored=unscored
    )
    alone = [
        one(compiled[which], own, aggregation, mask, unscored=unscored)
        for which, own, mask in zip(of, local, scored, strict=True)
    ]
    for name in ("reward", "low", "high", "marginal"):
        np.testing.assert_array_equal(getattr(together, name), np.concatenate([getattr(a, name) for a in alone]))


@EVERY
@laws
@given(st.data())
def test_null_takes_away_the_reward_and_what_hangs_on_the_unscored(aggregation, inference, data):
    weights = data.draw(weights_of())
    edges, local = data.draw(edges_among(len(weights))), data.draw(shares(len(weights)))
    scored = data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    compiled = rubric(weights, edges)
    below = nx.DiGraph([(a, b) for a, b, _ in edges])
    below.add_nodes_from(range(len(weights)))
    reach = {
        "flat": lambda place: set(),
        "hard_verdict": lambda place: set(below.successors(place)),
        "hard_local": lambda place: set(below.successors(place)),
        "hard_propagated": lambda place: nx.descendants(below, place),
        "gear": lambda place: nx.descendants(below, place),
    }[aggregation]
    lost = {place for at in range(len(weights)) if not scored[at] for place in {at, *reach(at)}}
    whole = one(compiled, np.where(scored, local, 0), aggregation, inference=inference)
    found = one(compiled, local, aggregation, scored, inference=inference)
    assert set(np.flatnonzero(np.isnan(found.marginal))) == lost
    rest = sorted(set(range(len(weights))) - lost)
    assert found.marginal[rest].tolist() == whole.marginal[rest].tolist()
    assert np.isnan(found.reward[0]) == (not all(scored))
    assert np.isnan([found.low[0], found.high[0]]).all()


@EVERY
@laws
@given(st.data())
def test_bounds_hold_every_completion(aggregation, inference, data):
    weights = data.draw(weights_of())
    compiled = rubric(weights, data.draw(edges_among(len(weights))))
    local = np.array(data.draw(shares(len(weights))))
    scored = np.array(data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights))))
    found = one(compiled, local, aggregation, scored, inference=inference, unscored="bounds")
    if scored.all():
        assert np.isnan([found.low[0], found.high[0]]).all()
        return
    assert np.isnan(found.reward[0])
    others = np.array([local, np.zeros(len(local)), np.ones(len(local)), *(data.draw(shares(len(weights))),)])
    slack = 1e-12 * max(1, sum(map(abs, weights)) / mass(weights))
    for other in others:
        reward = one(compiled, np.where(scored, local, other), aggregation, inference=inference).reward[0]
        assert found.low[0] - slack <= reward <= found.high[0] + slack


def test_bounds_of_credit_alone_are_reached():
    compiled, scored = rubric([1, 3], [(0, 1, 0.2)]), [False, True]
    found = one(compiled, [0.7, 0.5], scored=scored, unscored="bounds")
    assert [found.low[0], found.high[0]] == pytest.approx([3 * 0.5 * 0.2 / 4, (1 + 3 * 0.5) / 4])


def test_an_unscored_penalty_is_not_free():
    found = one(rubric([2, -1]), [1.0, 0.0], "flat", [True, False], unscored="bounds")
    assert (found.low[0], found.high[0]) == (0.5, 1.0)


@pytest.mark.parametrize("aggregation", ALL)
@laws
@given(st.data())
def test_zero_counts_the_unscored_as_missed(aggregation, data):
    weights = data.draw(weights_of())
    compiled = rubric(weights, data.draw(edges_among(len(weights))))
    local = np.array(data.draw(shares(len(weights))))
    scored = data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    found = one(compiled, local, aggregation, scored, unscored="zero")
    missed = one(compiled, np.where(scored, local, 0), aggregation)
    if any(scored):
        assert found.reward[0] == missed.reward[0]
    else:  # nobody said anything about this response
        assert np.isnan(found.reward[0])
    assert found.marginal.tolist() == missed.marginal.tolist()


def test_exact_inference_leaves_gates_alone():
    compiled, local = rubric([0, 0, 0, 1], DIAMOND), [0.5, 1.0, 1.0, 1.0]
    for aggregation in ("flat", "hard_verdict", "hard_local", "hard_propagated"):
        assert one(compiled, local, aggregation, inference="exact").reward[0] == 1.0


def test_a_verdict_gates_whatever_probability_stands_beside_it():
    wired = rubric([1, 1, 1], [(0, 1, 0.6), (1, 2, 0.6)])
    local, yes_no = [0.4, 0.9, 0.7], [1, 0, 1]
    assert one(wired, local, "hard_verdict", decided=yes_no).marginal.tolist() == [0.4, 0.9, 0.0]
    assert one(wired, local, "hard_local", decided=yes_no).marginal.tolist() == [0.4, 0.0, 0.7]


# What another reply is worth, and what two replies come to: by finite outcomes, by hand, and by simulation.


TREE = [(0, 1, 0.2), (0, 2, 0.6), (1, 3, 0.2), (0, 4, 0.0)]
WEIGHTS = [3.0, 2.0, 5.0, 4.0, -2.0]


def judged(compiled, local, variance=None, scored=None):
    """Responses of one rubric; variances are those of a yes or no where not given. All (n, k)."""
    local = np.atleast_2d(np.asarray(local, dtype=float))
    variance = local * (1 - local) if variance is None else np.atleast_2d(np.asarray(variance, dtype=float))
    known = None if scored is None else np.atleast_2d(scored).ravel()
    return batch([compiled], np.zeros(len(local), np.int32), local.ravel(), known, variance=variance.ravel())


def doubts(responses, aggregation="gear"):
    return weights_of_doubts(responses, aggregation, study())


@settings(max_examples=15)
@given(st.data())
def test_no_doubt_outweighs_the_variance_of_the_reward(data):
    weights = data.draw(weights_of(most=6))
    edges = [edge for edge in data.draw(edges_among(len(weights))) if edge[1] == edge[0] + 1]  # parents are independent
    responses = judged(rubric(weights, edges), data.draw(shares(len(weights))))
    found, whole = doubts(responses), reward_variances(responses, "gear")[0]
    assert (found >= 0).all()
    assert found.sum() <= whole * (1 + 1e-9) + 1e-12


def test_the_doubts_of_a_plain_sum_are_its_variance():
    responses = judged(rubric(WEIGHTS, TREE), [0.5, 0.2, 0.9, 1.0, 0.4])
    assert doubts(responses, "flat").sum() == pytest.approx(reward_variances(responses, "flat")[0])
    assert doubts(responses, "flat")[3] == 0


def test_what_much_hangs_on_weighs_more_and_what_hangs_on_nothing_less():
    found = doubts(judged(rubric([1.0, 1.0, 1.0], [(0, 1, 0.0), (0, 2, 0.0)]), [0.5, 0.5, 0.5]))
    slopes = np.array([1 + 0.5 + 0.5, 0.5, 0.5]) / 3
    np.testing.assert_allclose(found, slopes**2 / 4)


def test_a_verdict_without_a_probability_counts_as_one_that_was_drawn_once():
    found = doubts(judged(rubric([1.0, 1.0], []), [1.0, 0.0], [np.nan, np.nan]))
    np.testing.assert_allclose(found, PLAIN_DOUBT / 4)


def test_a_response_with_a_hole_is_not_asked_about_again():
    scored = [[True, False], [True, True]]
    assert doubts(judged(rubric([1.0, 1.0], []), np.full((2, 2), 0.5), scored=scored)).tolist()[:2] == [0, 0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6))
def test_two_replies_come_to_their_mixture(pairs):
    first, second = np.array(pairs).T
    compiled = rubric([1.0] * len(pairs), [])
    both = averaged(judged(compiled, first), judged(compiled, second), np.array([0]))
    mean = (first + second) / 2
    np.testing.assert_allclose(both.local, mean)
    np.testing.assert_allclose(both.variance, mean * (1 - mean), atol=1e-12)  # of yes or no the mean says it all


def test_only_the_responses_that_were_judged_again_and_what_was_scored_twice_change():
    compiled = rubric([1.0, 1.0], [])
    first = judged(compiled, [[0.2, 0.4], [0.6, 0.8], [0.0, 1.0]])
    second = judged(compiled, [[1.0, 0.0], [0.4, 0.9]], scored=[[True, True], [True, False]])
    both = averaged(first, second, np.array([2, 1]))
    np.testing.assert_allclose(both.local, [0.2, 0.4, 0.5, 0.8, 0.5, 0.5])
    assert first.local.tolist() == [0.2, 0.4, 0.6, 0.8, 0.0, 1.0]
