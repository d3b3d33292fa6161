"""A bundle and its graph as arrays, and a batch of responses over many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.composite import excluding, together
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.graph import Graph, Relation
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.rewards.reward.elimination import Elimination, eliminate

Shorts = NDArray[np.int32]


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
    ContractError where the graph is not that of the bundle's criteria, every weight is 0, η is below 0, or a learned
    factor lies outside [0, 1] or belongs to no edge.
    """
    if not 0 <= eta < np.inf:
        raise ContractError(f"the suppression strength η is {eta}, not a number from 0 on")
    top_level = bundle.whole
    criteria = tuple(criterion.id for criterion in top_level)
    weights = np.array([criterion.weight for criterion in top_level], dtype=np.float64)
    overrides = dict(learned or {})
    _refuse_misfits(rubric_id, graph, criteria, weights, overrides)
    place = {name: position for position, name in enumerate(criteria)}
    directed: nx.DiGraph[int] = nx.DiGraph()
    directed.add_nodes_from(range(len(criteria)))
    directed.add_edges_from((place[edge.parent], place[edge.child]) for edge in graph.edges)
    order = np.array(list(nx.lexicographical_topological_sort(directed)), dtype=np.int32)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    edges = sorted(graph.edges, key=lambda edge: (rank[place[edge.child]], rank[place[edge.parent]]))
    factors = retention.model_dump()
    parents = [place[edge.parent] for edge in edges]
    children = [place[edge.child] for edge in edges]
    retentions = [overrides.get((edge.parent, edge.child), factors[edge.relation]) for edge in edges]
    return CompiledGraph(
        rubric_id=rubric_id,
        graph_id=graph.graph_id,
        criteria=criteria,
        weights=weights,
        order=order,
        parent=np.array(parents, dtype=np.int32),
        child=np.array(children, dtype=np.int32),
        relation=tuple(edge.relation for edge in edges),
        retention=np.array(retentions, dtype=float) ** eta,
        reachable=_reachable(top_level),
    )


def _refuse_misfits(
    rubric_id: str,
    graph: Graph,
    criteria: Sequence[str],
    weights: Floats,
    learned: Mapping[tuple[str, str], float],
) -> None:
    """ContractError where graph, weights or learned factors are not such as a reward can be computed with."""
    nodes = {node.criterion_id for node in graph.nodes}
    if nodes != set(criteria):
        odd = sorted(nodes ^ set(criteria))
        raise ContractError(f"rubric '{rubric_id}': its graph is of another rubric; they differ in {', '.join(odd)}")
    if not 0 < sum(map(abs, weights.tolist())) < np.inf:
        raise ContractError(f"rubric '{rubric_id}': its weights are all 0 or beyond all bounds: nothing to reward by")
    edges = {(edge.parent, edge.child) for edge in graph.edges}
    for pair, factor in learned.items():
        if pair not in edges:
            raise ContractError(f"rubric '{rubric_id}': a factor is given for {' → '.join(pair)}, which is no edge")
        if not 0 <= factor <= 1:
            raise ContractError(f"rubric '{rubric_id}': the factor of {' → '.join(pair)} is {factor}, not in [0, 1]")


def _reachable(criteria: Sequence[Criterion]) -> float | None:
    if not excluding(criteria):
        return None
    return together([criterion for criterion in criteria if criterion.weight > 0]) or together(criteria)


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

    def part(self, responses: slice) -> Batch:
        """Some neighbouring responses, under the same rubrics, without a copy."""
        start = self.start[responses.start : responses.stop + 1]
        cells = slice(start[0], start[-1])
        return Batch(
            compiled=self.compiled,
            rubric_index=self.rubric_index[responses],
            local=self.local[cells],
            scored=self.scored[cells],
            decided=self.decided[cells],
            start=start - start[0],
            variance=self.variance[cells],
        )


def batch(
    compiled: Sequence[CompiledGraph],
    rubric_index: Shorts,
    local: Floats,
    scored: Bools | None = None,
    decided: Floats | None = None,
    variance: Floats | None = None,
) -> Batch:
    """A batch; ContractError for a local score that is NaN or outside [0, 1], or arrays that do not fit.

    local: (Σk,) as in `Batch`. scored: all of them where not given; what stands at an unscored place is passed over.
    decided: (Σk,) as in `Batch`; the local scores where not given. variance: (Σk,) as in `Batch`; nothing is known of
    it where not given.
    """
    sizes = np.array([len(graph.criteria) for graph in compiled], dtype=np.int64)
    rubric_index = np.array(rubric_index, dtype=np.int32)
    if len(rubric_index) and not (rubric_index.min() >= 0 and rubric_index.max() < len(compiled)):
        odd = int(rubric_index.min()) if rubric_index.min() < 0 else int(rubric_index.max())
        raise ContractError(f"a response is under rubric {odd}; there are {len(compiled)}, from 0")
    start = np.concatenate([[0], np.cumsum(sizes[rubric_index])]).astype(np.int64)
    scored = np.ones(len(local), dtype=bool) if scored is None else np.asarray(scored, dtype=bool)
    decided = local if decided is None else decided
    if not len(local) == len(scored) == len(decided) == start[-1]:
        raise ContractError(
            f"{len(local)} local scores and {len(scored)} marks of what is scored, for {int(start[-1])} criteria of "
            f"{len(rubric_index)} responses"
        )
    local, decided = (np.where(scored, np.asarray(shares, dtype=np.float64), 0.0) for shares in (local, decided))
    for values in (local, decided):
        _refuse_no_share(values, compiled, rubric_index, start)
    doubts = np.full(len(local), np.nan) if variance is None else np.asarray(variance, dtype=np.float64)
    return Batch(
        compiled=tuple(compiled),
        rubric_index=rubric_index,
        local=local,
        scored=scored,
        decided=decided,
        start=start,
        variance=doubts,
    )


def _refuse_no_share(values: Floats, compiled: Sequence[CompiledGraph], rubric_index: Shorts, start: Ints) -> None:
    usable = (values >= 0) & (values <= 1)  # false for NaN, too
    if usable.all():
        return
    place = int(usable.argmin())
    response = int(np.searchsorted(start, place, side="right")) - 1
    graph = compiled[rubric_index[response]]
    name = graph.criteria[place - int(start[response])]
    raise ContractError(
        f"response {response} of the batch, rubric '{graph.rubric_id}', criterion '{name}': {values[place]} is no "
        "local score in [0, 1]"
    )
