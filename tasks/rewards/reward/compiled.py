"""A bundle and its graph as arrays, the order in which its edges act, and a batch of responses over many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.composite import excluding, together
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.graph import Graph, Relation
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

Shorts = NDArray[np.int32]
MOST = 18
"""Criteria that may be held together in exact inference: 2^18 probabilities are 2 MiB."""


class Elimination(NamedTuple):
    """The order of a graph's e edges, with what happens at each. Where more than MOST criteria would be held, the order
    ends there and `width` says how many it came to."""

    edge: Ints
    """(e,) places of the edges, in the order in which they act."""
    ends: Ints
    """(e, 2) places of parent and child."""
    slots: Ints
    """(e, 2) where parent and child are held, from 0 to width - 1."""
    enters: Bools
    """(e, 2) whether each is taken up by this edge."""
    leaves: Bools
    """(e, 2) whether each is summed out after it."""
    settles: Bools
    """(e,) whether it is the last edge into its child."""
    width: int
    """Most criteria held together."""

    @property
    def is_narrow(self) -> bool:
        """Whether the order is whole."""
        return self.width <= MOST


@dataclass(frozen=True, eq=False)
class CompiledGraph:
    """One rubric ready to be computed with: k criteria, addressed by their place in `criteria`, and e edges. Two are
    the same only where they are one object."""

    rubric_id: str
    graph_id: str
    criteria: tuple[str, ...]
    """The bundle's criteria that are no sub-points, in its order."""
    weights: Floats
    """(k,) signed."""
    order: Shorts
    """(k,) places in a topological order: parents before children, otherwise by place."""
    parent: Shorts
    """(e,) place of each edge's parent; edges in the topological order of their children, then of their parents."""
    child: Shorts
    """(e,) place of each edge's child."""
    relation: tuple[Relation, ...]
    """(e,)."""
    retention: Floats
    """(e,) retention factor at the suppression strength, in [0, 1]."""
    reachable: float | None = None
    """Where criteria exclude each other, the mass of those that can hold together; None where none do."""

    @cached_property
    def mass(self) -> float:
        """What a reward is a share of: the sum of the positive weights (Eq. 2) or, where there is none, of all |w|, so
        that a rubric that can only cost rewards between -1 and 0. Added one after the other, as a reward is, so that
        full credit is exactly 1. Of criteria that exclude each other only those that can hold together."""
        if self.reachable is not None:
            return self.reachable
        positive, total = 0.0, 0.0
        for weight in self.weights.tolist():
            positive += max(weight, 0.0)
            total += abs(weight)
        return positive or total

    @cached_property
    def elimination(self) -> Elimination:
        """The order in which its edges act in exact inference."""
        return eliminate(self.parent, self.child, len(self.criteria))

    @property
    def edges(self) -> list[tuple[str, str]]:
        """(parent, child) of each edge, by id."""
        return [(self.criteria[a], self.criteria[b]) for a, b in zip(self.parent, self.child, strict=True)]


def compile_graph(
    rubric_id: str,
    bundle: Bundle,
    graph: Graph,
    retention: Retention,
    eta: float = 1.0,
    learned: Mapping[tuple[str, str], float] | None = None,
) -> CompiledGraph:
    """The arrays of a bundle and its graph.

    learned: (parent, child) → retention factor in place of the relation's, before η; in [0, 1].
    ContractError where the graph is not that of the bundle's criteria, every weight is 0, one is beyond all bounds
    next to the others, or a learned factor lies outside [0, 1] or belongs to no edge.
    """
    top_level = bundle.whole
    criteria = tuple(criterion.id for criterion in top_level)
    weights = np.array([criterion.weight for criterion in top_level], dtype=np.float64)
    nodes = {node.criterion_id for node in graph.nodes}
    factors = dict(learned or {})
    if nodes != set(criteria):
        odd = sorted(nodes ^ set(criteria))
        raise ContractError(f"rubric '{rubric_id}': its graph is of another rubric; they differ in {', '.join(odd)}")
    if not 0 < sum(map(abs, weights.tolist())) < np.inf:
        raise ContractError(f"rubric '{rubric_id}': its weights are all 0 or beyond all bounds: nothing to reward by")
    pairs = {(edge.parent, edge.child) for edge in graph.edges}
    for pair, factor in factors.items():
        if pair not in pairs:
            raise ContractError(f"rubric '{rubric_id}': a factor is given for {' → '.join(pair)}, which is no edge")
        if not 0 <= factor <= 1:
            raise ContractError(f"rubric '{rubric_id}': the factor of {' → '.join(pair)} is {factor}, not in [0, 1]")
    place = {name: position for position, name in enumerate(criteria)}
    by_relation = retention.model_dump()
    edges = {}
    for edge in graph.edges:
        factor = factors.get((edge.parent, edge.child), by_relation[edge.relation])
        edges[place[edge.parent], place[edge.child]] = edge.relation, factor
    order, ends = topological(len(criteria), edges)
    reachable = None
    if excluding(top_level):
        reachable = together([criterion for criterion in top_level if criterion.weight > 0]) or together(top_level)
    compiled = CompiledGraph(
        rubric_id=rubric_id,
        graph_id=graph.graph_id,
        criteria=criteria,
        weights=weights,
        order=order,
        parent=np.array([parent for parent, _ in ends], dtype=np.int32),
        child=np.array([child for _, child in ends], dtype=np.int32),
        relation=tuple(edges[pair][0] for pair in ends),
        retention=np.array([edges[pair][1] for pair in ends], dtype=float) ** eta,
        reachable=reachable,
    )
    with np.errstate(over="ignore"):
        spread = np.square(weights / compiled.mass).sum()
    if not np.isfinite(spread):
        raise ContractError(f"rubric '{rubric_id}': its weights lie too far apart: no reward could be told")
    return compiled


def topological(criteria: int, edges: Iterable[tuple[int, int]]) -> tuple[Shorts, list[tuple[int, int]]]:
    """Places of so many criteria in topological order, and the (parent, child) edges in that of their children, then of
    their parents."""
    directed: nx.DiGraph[int] = nx.DiGraph()
    directed.add_nodes_from(range(criteria))
    directed.add_edges_from(edges)
    order = list(nx.lexicographical_topological_sort(directed))
    rank = {place: position for position, place in enumerate(order)}
    ends = sorted(directed.edges, key=lambda pair: (rank[pair[1]], rank[pair[0]]))
    return np.array(order, dtype=np.int32), ends


def eliminate(parents: Shorts, children: Shorts, criteria: int) -> Elimination:
    """The elimination of a graph of so many criteria. parents, children: (e,) places of each edge's ends.

    An edge can act once all edges into its parent have. A criterion is taken up at its first edge, its marginal stands
    when the last edge into it has acted, and it is summed out when the last from it has. What is held together costs 2
    to the criteria held: few for a tree of any size, all but one where every pair is an edge.

    Next is the edge that leaves the fewest criteria held; among equals the one that adds the fewest, then the one whose
    child waits for the fewest others, then the one whose parent was taken up last, then the first. The order need not
    be the best there is.
    """
    ends = list(zip(parents.tolist(), children.tolist(), strict=True))
    out, into = (np.bincount(places, minlength=criteria).tolist() for places in (parents, children))
    active: list[int] = []  # criteria that are held, in the order in which they were taken up
    free: list[int] = []  # slots that were given back
    slot_of: dict[int, int] = {}
    waiting = set(range(len(ends)))
    width = 0
    steps = []

    def leaves(edge: int) -> tuple[bool, bool]:
        """Whether parent and child are done with after it."""
        parent, child = ends[edge]
        return out[parent] == 1, into[child] == 1 and out[child] == 0

    def cost(edge: int) -> tuple[int, ...]:
        """The least is next."""
        parent, child = ends[edge]
        added = (parent not in slot_of) + (child not in slot_of)
        taken_up = active.index(parent) if parent in slot_of else -1
        return added - sum(leaves(edge)), added, into[child], -taken_up, edge

    while waiting and width <= MOST:
        edge = min((edge for edge in waiting if into[ends[edge][0]] == 0), key=cost)
        parent, child = ends[edge]
        leaving = leaves(edge)
        settles = into[child] == 1
        enters = parent not in slot_of, child not in slot_of
        for place in ends[edge]:
            if place not in slot_of:
                slot_of[place] = free.pop() if free else len(active)
                active.append(place)
        width = max(width, len(active))
        steps.append((edge, ends[edge], (slot_of[parent], slot_of[child]), enters, leaving, settles))
        out[parent] -= 1
        into[child] -= 1
        waiting.remove(edge)
        for place, is_done in zip(ends[edge], leaving, strict=True):
            if is_done:
                active.remove(place)
                free.append(slot_of.pop(place))
    edges, pairs, slots, entering, left, settled = zip(*steps, strict=True) if steps else [()] * 6
    return Elimination(
        edge=np.array(edges, dtype=np.int64),
        ends=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        slots=np.array(slots, dtype=np.int64).reshape(-1, 2),
        enters=np.array(entering, dtype=bool).reshape(-1, 2),
        leaves=np.array(left, dtype=bool).reshape(-1, 2),
        settles=np.array(settled, dtype=bool),
        width=width,
    )


@dataclass(frozen=True)
class Batch:
    """n responses, each under one of several rubrics; their criteria lie one after the other in flat arrays."""

    compiled: tuple[CompiledGraph, ...]
    """The rubrics."""
    rubric_index: Shorts
    """(n,) which of them each response is under."""
    local: Floats
    """(Σk,) each response's local scores in [0, 1], in the order of its rubric's criteria; 0 where unscored."""
    scored: Bools
    """(Σk,) whether there is a usable verdict."""
    decided: Floats
    """(Σk,) what the judge decided, in [0, 1], without the probabilities that a local score may be made of."""
    start: Ints
    """(n + 1,) where each response's scores begin, and the end of the last."""
    variance: Floats
    """(Σk,) how far the judge thinks that each local score may lie from what it would be without doubt, as a variance
    in [0, p (1 − p)]; NaN where it says nothing of its doubts."""


def batch(
    compiled: Sequence[CompiledGraph],
    rubric_index: Shorts,
    local: Floats,
    scored: Bools | None = None,
    decided: Floats | None = None,
    variance: Floats | None = None,
) -> Batch:
    """A batch; ContractError for a local score that is NaN or outside [0, 1].

    local: (Σk,) as in `Batch`. scored: all of them where not given; what stands at an unscored place is passed over.
    decided: (Σk,) as in `Batch`; the local scores where not given. variance: (Σk,) as in `Batch`; nothing is known of
    it where not given.
    """
    sizes = np.array([len(graph.criteria) for graph in compiled], dtype=np.int64)
    rubric_index = np.asarray(rubric_index, dtype=np.int32)
    start = np.concatenate([[0], np.cumsum(sizes[rubric_index])]).astype(np.int64)
    scored = np.ones(len(local), dtype=bool) if scored is None else np.asarray(scored, dtype=bool)
    local, decided = (np.where(scored, shares, 0.0) for shares in (local, local if decided is None else decided))
    for values in (local, decided):
        usable = (values >= 0) & (values <= 1)  # false for NaN, too
        if not usable.all():
            place = int(usable.argmin())
            response = int(np.searchsorted(start, place, side="right")) - 1
            graph = compiled[rubric_index[response]]
            where = f"response {response}, rubric '{graph.rubric_id}', criterion {place - int(start[response])}"
            raise ContractError(f"{where} of the batch: {values[place]} is no local score in [0, 1]")
    doubts = np.full(len(local), np.nan) if variance is None else variance
    return Batch(tuple(compiled), rubric_index, local, scored, decided, start, doubts)


def some_of(responses: Batch, chosen: Bools, compiled: Sequence[CompiledGraph] | None = None) -> Batch:
    """Some of the responses of a batch. chosen: (n,); compiled: in place of its rubrics, others with the same
    criteria."""
    cells = np.repeat(chosen, np.diff(responses.start))
    return batch(
        compiled or responses.compiled,
        responses.rubric_index[chosen],
        responses.local[cells],
        scored=responses.scored[cells],
        decided=responses.decided[cells],
        variance=responses.variance[cells],
    )


def shared_factor(compiled: Sequence[CompiledGraph]) -> float | None:
    """The mean retention factor of all edges of these graphs; None where there is no edge."""
    factors = np.concatenate([np.empty(0), *(graph.retention for graph in compiled)])
    return float(factors.mean()) if len(factors) else None


def untyped(compiled: Sequence[CompiledGraph]) -> list[CompiledGraph]:
    """The same graphs with `shared_factor` for every edge. Relations stay as names, for the slices of diagnostics."""
    factor = shared_factor(compiled)
    if factor is None:
        return list(compiled)
    return [
        replace(graph, graph_id=f"untyped of {graph.graph_id}", retention=np.full(len(graph.retention), factor))
        for graph in compiled
    ]
