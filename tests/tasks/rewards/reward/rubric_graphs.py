"""Rubrics with graphs for the tests: authored by place, or drawn."""

from __future__ import annotations

from collections.abc import Sequence

from builders.bundles import bundle as locked
from builders.bundles import criterion
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph

RETENTION = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
Edges = Sequence[tuple[int, int, float]]


def bundle(weights: Sequence[float]) -> Bundle:
    """Criteria c0, c1, … with these weights."""
    criteria = (criterion(f"c{at}", weight=weight) for at, weight in enumerate(weights))
    return locked(*criteria, ends=(0, 1), name="pointwise", final_score="weighted_points")


def graph(count: int, edges: Sequence[tuple[int, int]], relation: str = "weak_prerequisite") -> Graph:
    """Edges (parent, child) among so many criteria, by their places."""
    return Graph(
        nodes=tuple(Node(criterion_id=f"c{at}", role="core") for at in range(count)),
        edges=tuple(Edge(parent=f"c{a}", child=f"c{b}", relation=relation) for a, b in edges),
    )


def rubric(weights: Sequence[float], edges: Edges = (), name: str = "r") -> CompiledGraph:
    """Criteria with these weights and edges (parent, child, retention factor) among them."""
    pairs = [(a, b) for a, b, _ in edges]
    factors = {(f"c{a}", f"c{b}"): kept for a, b, kept in edges}
    return compile_graph(name, bundle(weights), graph(len(weights), pairs), RETENTION, learned=factors)


SHARES = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
WEIGHTS = st.floats(-10, 10).map(lambda weight: round(weight, 2))


@st.composite
def edges_among(
    draw: st.DrawFn, count: int, factors: st.SearchStrategy[float] = SHARES
) -> list[tuple[int, int, float]]:
    """Edges of a directed acyclic graph whose topological order is any order of the places."""
    order = draw(st.permutations(range(count)))
    pairs = [(order[a], order[b]) for b in range(count) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return [(a, b, draw(factors)) for a, b in chosen]


@st.composite
def weights_of(draw: st.DrawFn, most: int = 8) -> list[float]:
    """Signed weights, not all of them 0."""
    return draw(st.lists(WEIGHTS, min_size=1, max_size=most).filter(any))


def shares(count: int) -> st.SearchStrategy[list[float]]:
    """A local score for each of so many criteria."""
    return st.lists(SHARES, min_size=count, max_size=count)
