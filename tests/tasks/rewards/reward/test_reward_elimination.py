"""The order in which edges act: what has to hold at each of them, for any graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rubric_graphs import edges_among, rubric


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
