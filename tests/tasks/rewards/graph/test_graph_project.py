"""The projection: valid, acyclic, and nothing dropped that did not have to be."""

from __future__ import annotations

import itertools
import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.rewards.graph.project import EdgeProposal, project

KINDS: tuple[Relation, ...] = ("weak_prerequisite", "strong_prerequisite", "activation")
NAMES = tuple("abcdef")
CORE: dict[str, Role] = dict.fromkeys(NAMES, "core")


def edge(
    pair: str, relation: Relation | None = "weak_prerequisite", confidence: float | None = None, **more: Any
) -> EdgeProposal:
    return EdgeProposal(pair[0], pair[1], relation, confidence, **more)


def told(found: tuple[EdgeProposal, ...]) -> dict[str, str | None]:
    return {one.parent + one.child: one.dropped for one in found}


def kept(found: tuple[EdgeProposal, ...]) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(NAMES)
    graph.add_edges_from(one.pair for one in found if not one.dropped)
    return graph


def rank(one: EdgeProposal) -> tuple[Any, ...]:
    """The stated rule, weakest first."""
    sure = 1.0 if one.confidence is None else one.confidence
    return (
        one.source == "vote",
        KINDS.index(one.relation or KINDS[0]),
        sure,
        -NAMES.index(one.parent),
        -NAMES.index(one.child),
    )


ANY_EDGES = st.lists(
    st.builds(
        EdgeProposal,
        parent=st.sampled_from(NAMES),
        child=st.sampled_from(NAMES),
        relation=st.sampled_from(KINDS),
        confidence=st.sampled_from([None, 0.2, 0.7, 1.0]),
        source=st.sampled_from(["authored", "vote"]),  # roles do not bind these
    ),
    max_size=24,
)
DISTINCT = st.lists(
    st.tuples(
        st.sampled_from(list(itertools.permutations(NAMES, 2))),
        st.sampled_from(KINDS),
        st.sampled_from([None, 0.2, 0.7]),
        st.sampled_from(["authored", "vote"]),
    ),
    unique_by=lambda one: one[0],
    max_size=24,
).map(lambda found: [EdgeProposal(*pair, *more) for pair, *more in found])


@given(ANY_EDGES)
def test_what_is_kept_has_no_circle(proposals: list[EdgeProposal]) -> None:
    found = project(CORE, proposals)
    assert nx.is_directed_acyclic_graph(kept(found))
    assert len(found) == len(proposals)


@given(DISTINCT)
def test_a_graph_without_circles_loses_nothing(proposals: list[EdgeProposal]) -> None:
    forward = [one for one in proposals if one.parent < one.child]
    assert all(one.dropped is None for one in project(CORE, forward))


@given(DISTINCT)
def test_a_dropped_edge_is_the_weakest_of_a_circle_that_it_closes_with_kept_ones(proposals: list[EdgeProposal]) -> None:
    found = project(CORE, proposals)
    for one in (one for one in found if one.dropped):
        assert one.dropped == "cycle"
        stronger = nx.DiGraph([other.pair for other in found if not other.dropped and rank(other) > rank(one)])
        assert one.child in stronger
        assert nx.has_path(stronger, one.child, one.parent)


@given(ANY_EDGES, st.randoms(use_true_random=False))
def test_the_order_of_the_proposals_plays_no_part(proposals: list[EdgeProposal], draw: random.Random) -> None:
    mixed = list(proposals)
    draw.shuffle(mixed)
    assert project(CORE, mixed) == project(CORE, proposals)


def test_proposals_come_back_in_candidate_order() -> None:
    found = project(CORE, [edge("cb"), edge("ac"), edge("ab"), EdgeProposal("z", "a", "activation")])
    assert [one.pair for one in found] == [("a", "b"), ("a", "c"), ("c", "b"), ("z", "a")]


def test_of_equals_the_last_in_candidate_order_goes_and_the_circle_is_told() -> None:
    found = project(CORE, [edge("ca"), edge("ab"), edge("bc")])
    assert told(found) == {"ab": None, "bc": None, "ca": "cycle"}
    assert found[-1].detail == "the weakest of the circle a → b → c → a"


def test_of_a_pair_given_twice_the_strongest_relation_stays() -> None:
    found = project(CORE, [edge("ab", "weak_prerequisite", 1.0), edge("ab", "strong_prerequisite", 0.1)])
    assert [(one.relation, one.dropped) for one in found] == [
        ("strong_prerequisite", None),
        ("weak_prerequisite", "duplicate"),
    ]


@pytest.mark.parametrize(
    ("proposal", "reason", "detail"),
    [
        (EdgeProposal("a", "z", "weak_prerequisite"), "unknown_criterion", "there is no criterion 'z'"),
        (EdgeProposal("a", "a", "weak_prerequisite"), "itself", "no criterion licenses itself"),
        (EdgeProposal("a", "b", "activation"), "roles", "core → core allows no activation"),
        (EdgeProposal("a", "p", "activation"), "roles", "core → penalty allows no activation"),
        (EdgeProposal("p", "a", "weak_prerequisite"), "roles", "penalty → core allows no weak_prerequisite"),
    ],
)
def test_a_proposal_that_breaks_a_rule_is_dropped_with_its_reason(
    proposal: EdgeProposal, reason: str, detail: str
) -> None:
    (found,) = project({**CORE, "p": "penalty"}, [proposal])
    assert (found.dropped, found.detail) == (reason, detail)


def test_roles_bind_no_person() -> None:
    roles: dict[str, Role] = {"a": "additional", "b": "core"}
    found = project(roles, [edge("ab", source="vote"), edge("ba", source="authored")])
    assert told(found) == {"ab": None, "ba": "cycle"}


def test_what_is_dropped_already_stays_so_and_blocks_nothing() -> None:
    found = project(CORE, [edge("ab", None, dropped="one_order", detail="no label"), edge("ba")])
    assert told(found) == {"ab": "one_order", "ba": None}
    assert found[0].detail == "no label"
