"""The order in which edges act: what has to hold at each of them, for any graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_graphs import edges_among, rubric, shares

from tasks.reward.aggregate import aggregate
from tasks.reward.exact import NARROW, exact_marginals, is_exact
from tasks.reward.wire import batch

DIAMOND = [(0, 1, 0.2), (0, 2, 0.6), (1, 3, 0.2), (2, 3, 0.0)]


@settings(deadline=None)
@given(st.data())
def test_every_edge_acts_once_after_those_into_its_parent(data):
    count = data.draw(st.integers(1, 9))
    wired = rubric([1.0] * count, data.draw(edges_among(count)))
    plan = wired.elimination
    assert sorted(plan.edge) == list(range(len(wired.parent)))
    waiting = plan.edge.tolist()
    for edge in plan.edge.tolist():
        waiting.remove(edge)
        assert wired.parent[edge] not in wired.child[waiting].tolist()


@settings(deadline=None)
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


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_where_the_update_is_called_exact_it_is(data):
    count = data.draw(st.integers(1, 7))
    wired = rubric([1.0] * count, data.draw(edges_among(count)))
    local = np.array([data.draw(shares(count))])
    update = aggregate(batch([wired], np.zeros(1, np.int32), local.ravel()), "gear").marginal
    if wired.is_updated_exactly:
        np.testing.assert_allclose(update, exact_marginals(wired, local)[0], atol=1e-12)


@pytest.mark.parametrize(
    ("edges", "is_updated_exactly"),
    [
        ([], True),
        ([(0, 1, 0.2), (1, 2, 0.2), (0, 3, 0.2)], True),
        ([(0, 2, 0.2), (1, 2, 0.2), (2, 3, 0.2)], True),
        ([(0, 1, 0.2), (0, 2, 0.2), (1, 2, 0.2)], False),
        (DIAMOND, False),
    ],
    ids=["none", "tree", "independent parents", "parent of a parent", "common cause"],
)
def test_the_update_is_exact_unless_parents_hang_together(edges, is_updated_exactly):
    assert rubric([1.0] * 4, edges).is_updated_exactly == is_updated_exactly


def test_hybrid_rewards_are_exact_in_narrow_graphs_and_the_update_in_wide_ones():
    rng = np.random.default_rng(0)
    count = NARROW + 3
    dense = [(parent, child, 0.5) for child in range(count) for parent in range(child)]
    wide, narrow = rubric([1.0] * count, dense, "wide"), rubric([1.0] * 4, DIAMOND, "narrow")
    assert (is_exact(wide), is_exact(narrow)) == (False, True)
    responses = batch([wide, narrow], np.array([0, 1, 0, 1], np.int32), rng.uniform(0.2, 1, 2 * count + 8))
    update, exact, hybrid = (
        aggregate(responses, "gear", inference=inference) for inference in ("topological", "exact", "hybrid")
    )
    assert hybrid.reward.tolist() == [update.reward[0], exact.reward[1], update.reward[2], exact.reward[3]]
    assert update.reward[1] != pytest.approx(exact.reward[1], abs=1e-6)


def test_a_wide_graph_is_left_before_it_takes_long():
    edges = [(parent, child, 0.5) for child in range(60) for parent in range(child)]
    assert not rubric([1.0] * 60, edges).elimination.is_narrow
