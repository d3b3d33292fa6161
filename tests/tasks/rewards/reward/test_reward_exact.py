"""Exact marginals against all 2^k states, and trees of any size by their own recursion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_graphs import edges_among, rubric, shares, weights_of

from rubricflow.tasks.rewards.reward.compiled import MOST, batch
from rubricflow.tasks.rewards.reward.exact import WIDEST, TooWide, exact_marginals, reward_variances


def enumerated(local, edges) -> list[float]:
    """Marginals by summing Eq. 9 over every state of every criterion."""
    found = np.zeros(len(local))
    for state in itertools.product((0, 1), repeat=len(local)):
        probability = 1.0
        for place, share in enumerate(local):
            for parent, child, kept in edges:
                if child == place:
                    share *= 1.0 if state[parent] else kept
            probability *= share if state[place] else 1 - share
        found += probability * np.array(state)
    return found.tolist()


@settings(max_examples=15)
@given(st.data())
def test_marginals_are_the_sums_over_all_states(data):
    count = data.draw(st.integers(1, 8))
    edges, local = data.draw(edges_among(count)), data.draw(shares(count))
    found = exact_marginals(rubric([1] * count, edges), np.array([local]))
    assert found[0] == pytest.approx(enumerated(local, edges), abs=1e-12)


def test_no_rounding_lifts_a_marginal_above_its_local_score():
    local = np.array(list(itertools.product(np.linspace(0, 1, 11), repeat=3)))
    found = exact_marginals(rubric([1] * 3, [(0, 2, 1.0), (1, 2, 1.0)]), local)
    assert np.all(found <= local)
    np.testing.assert_allclose(found, local, atol=1e-15)


@pytest.mark.parametrize(
    ("edges", "shape"),
    [
        ([(0, at, 0.3) for at in range(1, 200)], "one parent of many"),
        ([(at, 199, 0.99) for at in range(199)], "one child of many"),
        ([((at - 1) // 2, at, 0.3) for at in range(1, 200)], "a tree"),
        ([(at, (at - 1) // 2, 0.3) for at in range(1, 200)], "a tree upside down"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trees_of_any_size_are_narrow(edges, shape):
    rng = np.random.default_rng(5)
    local = rng.uniform(0.5, 1, 200)
    found = exact_marginals(rubric([1] * 200, edges), local[None])[0]
    parents = {place: [(a, kept) for a, b, kept in edges if b == place] for place in range(200)}

    def share(place: int) -> float:  # the parents in a tree are independent
        return local[place] * np.prod([share(a) + (1 - share(a)) * kept for a, kept in parents[place]])

    assert found == pytest.approx([share(place) for place in range(200)], abs=1e-12)


def test_a_graph_of_14_criteria_is_never_too_wide():
    pairs = itertools.combinations(range(14), 2)
    compiled = rubric([1] * 14, [(a, b, 0.5) for a, b in pairs])
    assert exact_marginals(compiled, np.ones((1, 14))).tolist() == [[1.0] * 14]


def test_a_wider_graph_is_refused_with_its_rubric_and_width():
    pairs = itertools.combinations(range(MOST + 2), 2)
    compiled = rubric([1] * (MOST + 2), [(a, b, 0.5) for a, b in pairs], "essay-7")
    with pytest.raises(TooWide, match=f"rubric 'essay-7': exact inference would hold {MOST + 1} "):
        exact_marginals(compiled, np.ones((1, MOST + 2)))


# Variances of rewards, against every outcome of the judge's doubts, by draws, and in their limits.


DIAMOND = [(0, 1, 0.2), (0, 2, 0.6), (1, 3, 0.2), (2, 3, 0.0), (0, 4, 0.0)]
WEIGHTS = [3.0, 2.0, 5.0, 4.0, -2.0]


def variance(compiled, local, doubt, aggregation="gear", scored=None):
    """(n,) of responses with these local scores and variances, (n, k)."""
    local, doubt = np.atleast_2d(local), np.atleast_2d(doubt)
    known = None if scored is None else np.atleast_2d(scored).ravel()
    responses = batch([compiled], np.zeros(len(local), dtype=np.int32), local.ravel(), known, variance=doubt.ravel())
    return reward_variances(responses, aggregation)


def rewards_of(compiled, outcomes):
    """What the judge would pay without doubts, (outcomes,)."""
    return exact_marginals(compiled, outcomes) @ compiled.weights / compiled.mass


def two_points(share, doubt):
    """Two shares in [0, 1] with this mean and variance, the upper with probability `share`."""
    spread = np.sqrt(doubt)
    odds = np.sqrt(share / (1 - share))
    return np.clip([share - spread * odds, share + spread / odds], 0, 1)


@settings(max_examples=15)
@given(st.data())
def test_it_is_the_variance_over_every_outcome_of_the_doubts(data):
    weights = data.draw(weights_of(most=6))
    compiled = rubric(weights, data.draw(edges_among(len(weights))))
    local = np.clip(data.draw(shares(len(weights))), 0.01, 0.99)
    doubt = local * (1 - local) * np.array(data.draw(shares(len(weights))))
    points = np.array([two_points(*pair) for pair in zip(local, doubt, strict=True)])
    chosen = np.array(list(itertools.product((0, 1), repeat=len(weights))))
    rewards = rewards_of(compiled, points[np.arange(len(weights)), chosen])
    chance = np.where(chosen == 1, local, 1 - local).prod(axis=1)
    expected = chance @ (rewards - chance @ rewards) ** 2
    scale = (np.abs(compiled.weights).sum() / compiled.mass) ** 2
    assert variance(compiled, local, doubt)[0] == pytest.approx(expected, abs=1e-12 * scale, rel=1e-7)


def test_gates_that_jump_have_none():
    assert np.isnan(variance(rubric(WEIGHTS, DIAMOND), [0.5] * 5, [0.25] * 5, "hard_local")).all()


@pytest.mark.parametrize("aggregation", ["flat", "gear"])
def test_what_is_unscored_or_gives_no_probabilities_has_none(aggregation):
    compiled = rubric([1.0, 1.0], [(0, 1, 0.2)])
    doubt = np.array([[0.25, 0.25], [0.25, np.nan], [0.25, 0.25]])
    scored = np.array([[True, True], [True, True], [True, False]])
    found = variance(compiled, np.full((3, 2), 0.5), doubt, aggregation, scored)
    assert np.isnan(found).tolist() == [False, True, True]


def test_a_graph_that_is_too_wide_has_none():
    def dense(count):
        pairs = itertools.combinations(range(count), 2)
        return rubric([1.0] * count, [(parent, child, 0.5) for parent, child in pairs])

    wide, narrow = dense(WIDEST + 1), dense(WIDEST)
    assert np.isnan(variance(wide, [0.5] * (WIDEST + 1), [0.25] * (WIDEST + 1))).all()
    assert variance(narrow, [0.5] * WIDEST, [0.25] * WIDEST)[0] > 0


def test_responses_and_rubrics_do_not_touch_one_another():
    rng = np.random.default_rng(1)
    rubrics = [rubric(WEIGHTS, DIAMOND, "five"), rubric([1.0, 2.0], [(0, 1, 0.2)], "two")]
    of = np.array([0, 1, 1, 0, 1], np.int32)
    local = [rng.random(len(rubrics[which].criteria)) for which in of]
    together = np.concatenate(local)
    found = reward_variances(batch(rubrics, of, together, variance=together * (1 - together)), "gear")
    alone = [variance(rubrics[which], one, one * (1 - one))[0] for which, one in zip(of, local, strict=True)]
    assert found.tolist() == alone


# The order in which edges act: what has to hold at each of them, for any graph.


@given(st.data())
def test_every_edge_acts_once_after_those_into_its_parent(data):
    count = data.draw(st.integers(1, 9))
    compiled = rubric([1.0] * count, data.draw(edges_among(count)))
    plan = compiled.elimination
    assert sorted(plan.edge) == list(range(len(compiled.parent)))
    waiting = plan.edge.tolist()
    for edge in plan.edge.tolist():
        waiting.remove(edge)
        assert compiled.parent[edge] not in compiled.child[waiting].tolist()


@given(st.data())
def test_no_two_criteria_are_held_in_one_slot(data):
    count = data.draw(st.integers(1, 9))
    plan = rubric([1.0] * count, data.draw(edges_among(count))).elimination
    slots: dict[int, int] = {}
    for step in range(len(plan.edge)):
        for place, slot, enters in zip(plan.ends[step], plan.slots[step], plan.enters[step], strict=True):
            assert (slot not in slots) == enters
            assert slots.setdefault(slot, place) == place
        assert len(slots) <= plan.width
        for slot, leaves in zip(plan.slots[step], plan.leaves[step], strict=True):
            if leaves:
                del slots[slot]
    assert not slots


def test_a_wide_graph_is_left_before_it_takes_long():
    edges = [(parent, child, 0.5) for child in range(60) for parent in range(child)]
    assert not rubric([1.0] * 60, edges).elimination.is_narrow
