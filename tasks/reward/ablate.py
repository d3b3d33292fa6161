"""What of a graph makes the difference? Its edges rewired at random, or its relations made one (GEAR, appendix H)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np

from tasks.reward.wire import Wired


def random_graph(wired: Wired, seed: int) -> Wired:
    """The same rubric with as many edges between random criteria, acyclic, none twice.

    Relations are kept with their retention factors, as often as they occur, and dealt out anew. Criteria are put into a
    random order and pairs drawn without replacement that go forward in it. Roles are not respected: dependencies become
    arbitrary. The draw depends on the seed and the rubric_id alone.
    """
    rng = np.random.default_rng([seed, *hashlib.sha256(wired.rubric_id.encode()).digest()])
    k, e = len(wired.criteria), len(wired.parent)
    shuffled = rng.permutation(k)
    earlier, later = np.triu_indices(k, 1)
    drawn = rng.choice(len(earlier), e, replace=False)
    pairs = zip(shuffled[earlier[drawn]].tolist(), shuffled[later[drawn]].tolist(), strict=True)
    dealt = dict(zip(pairs, rng.permutation(e).tolist(), strict=True))
    directed: nx.DiGraph[int] = nx.DiGraph()
    directed.add_nodes_from(range(k))
    directed.add_edges_from(dealt)
    order = list(nx.lexicographical_topological_sort(directed))
    rank = {place: position for position, place in enumerate(order)}
    edges = sorted(dealt, key=lambda pair: (rank[pair[1]], rank[pair[0]]))
    sources = [dealt[pair] for pair in edges]
    parents = [parent for parent, _ in edges]
    children = [child for _, child in edges]
    relations = tuple(wired.relation[source] for source in sources)
    return replace(
        wired,
        graph_id=f"random {seed} of {wired.graph_id}",
        order=np.array(order, dtype=np.int32),
        parent=np.array(parents, dtype=np.int32),
        child=np.array(children, dtype=np.int32),
        relation=relations,
        retention=wired.retention[sources],
    )


def shared_factor(wired: Sequence[Wired]) -> float | None:
    """The mean retention factor of all edges of these graphs; None where there is no edge."""
    factors = np.concatenate([np.empty(0), *(graph.retention for graph in wired)])
    return float(factors.mean()) if len(factors) else None


def untyped(wired: Sequence[Wired]) -> list[Wired]:
    """The same graphs with `shared_factor` for every edge. Relations stay as names, for the slices of diagnostics."""
    factor = shared_factor(wired)
    if factor is None:
        return list(wired)
    return [_with_one_factor(graph, factor) for graph in wired]


def _with_one_factor(graph: Wired, factor: float) -> Wired:
    return replace(graph, graph_id=f"untyped of {graph.graph_id}", retention=np.full(len(graph.retention), factor))
