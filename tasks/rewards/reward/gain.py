"""What learned retention factors gain on responses that they were not fitted to.

What of a graph makes the difference? Its edges rewired at random, or its relations made one (GEAR, appendix H).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.agreement import pearson, qwk, rmse, spearman
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import paired_bootstrap
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph
from rubricflow.tasks.rewards.reward.learn import Learned, complete, line, rewards_and_slopes


def random_graph(compiled: CompiledGraph, seed: int) -> CompiledGraph:
    """The same rubric with as many edges between random criteria, acyclic, none twice.

    Relations are kept with their retention factors, as often as they occur, and dealt out anew. Criteria are put into a
    random order and pairs drawn without replacement that go forward in it. Roles are not respected: dependencies become
    arbitrary. The draw depends on the seed and the rubric_id alone.
    """
    rng = np.random.default_rng([seed, *hashlib.sha256(compiled.rubric_id.encode()).digest()])
    k, e = len(compiled.criteria), len(compiled.parent)
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
    relations = tuple(compiled.relation[source] for source in sources)
    return replace(
        compiled,
        graph_id=f"random {seed} of {compiled.graph_id}",
        order=np.array(order, dtype=np.int32),
        parent=np.array(parents, dtype=np.int32),
        child=np.array(children, dtype=np.int32),
        relation=relations,
        retention=compiled.retention[sources],
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


Method = Literal["flat", "typed", "untyped", "learned", "weights"]
"""flat: no dependencies (Eq. 2); typed: the relations' factors; untyped: one factor for all edges; learned: the edges'
own; weights: no dependencies, but a weight of its own sign refitted for each criterion, which is what learning
dependencies has to beat."""
METHODS: tuple[Method, ...] = ("flat", "typed", "untyped", "learned", "weights")
PAIRS: tuple[tuple[Method, Method], ...] = (
    ("flat", "typed"),
    ("flat", "learned"),
    ("typed", "learned"),
    ("untyped", "learned"),
    ("weights", "learned"),
)
"""Compared: what the second gains over the first."""
STATISTICS = ("rmse", "pearson", "spearman", "qwk")


@dataclass(frozen=True)
class GainFigure:
    """One statistic of a method, or of the difference between two, on held-out responses."""

    statistic: str
    """rmse (score units), pearson, spearman, or qwk of scores rounded to the scale's steps."""
    method: Method
    """The method."""
    over: Method | None
    """The method whose figure is taken away; None for the figure itself."""
    value: float | None
    """The figure; None where it is undefined. A difference in rmse below 0 is a gain."""
    low: float | None
    """Lower end of the 95% interval of a difference, whole clusters resampled; None for spearman and single figures."""
    high: float | None
    """Upper end."""
    n: int
    """Responses it is taken over."""
    clusters: int | None = None
    """How many were resampled; None without an interval."""


def predict(train: Batch, scores: Floats, learned: list[Learned], test: Batch) -> dict[Method, Floats]:
    """The human score of each response of `test`, (m,), by each method, everything fitted to `train` alone.

    Both batches have the same rubrics, with the relations' factors; scores: (n,) as `learn` took them; learned: what it
    gave. NaN where a criterion is unscored or nothing could be fitted for the rubric. ContractError for other rubrics.
    """
    if [graph.graph_id for graph in train.compiled] != [graph.graph_id for graph in test.compiled]:
        raise ContractError("what is learned on one set of rubrics cannot be tried on another")
    predicted: dict[Method, Floats] = {method: np.full(len(test.rubric_index), np.nan) for method in METHODS}
    shared = untyped(train.compiled)
    for rubric, (compiled, of_rubric) in enumerate(zip(train.compiled, learned, strict=True)):
        if not of_rubric.fitted:
            continue
        rows, local = complete(train, rubric)
        labelled = ~np.isnan(scores[rows])
        y, local = scores[rows[labelled]], local[:, labelled]
        places, unseen = complete(test, rubric)
        of_methods: dict[Method, Floats] = {
            "flat": np.ones_like(compiled.retention),
            "typed": compiled.retention,
            "untyped": shared[rubric].retention,
            "learned": np.array([of_rubric.factors[edge] for edge in compiled.edges]),
        }
        for method, factors in of_methods.items():
            intercept, slope = line(rewards_and_slopes(compiled, local, factors)[0], y)
            predicted[method][places] = intercept + slope * rewards_and_slopes(compiled, unseen, factors)[0]
        # Scores of unseen responses (m,) by the least-squares weights of the rubric's signs, fitted to local (k, n).
        signed = local * np.sign(compiled.weights)[:, None]
        middle, level = signed.mean(axis=1), y.mean()
        weights, _ = nnls((signed - middle[:, None]).T, y - level)
        predicted["weights"][places] = np.asarray(
            level + weights @ (unseen * np.sign(compiled.weights)[:, None] - middle[:, None])
        )
    return predicted


def gains(
    scores: Floats,
    predicted: dict[Method, Floats],
    clusters: NDArray[Any],
    scale: tuple[float, float, float],
    draws: int = 2000,
    seed: int = 0,
) -> list[GainFigure]:
    """Each method's figures, then the differences of PAIRS, over the responses that have a score and a prediction.

    scores: (m,) human scores, NaN where there is none; clusters: (m,) ids of what is resampled together; scale: (low,
    high, step) of the human score. Empty where no response can be compared.
    """
    compared = ~np.isnan(scores) & np.all([~np.isnan(values) for values in predicted.values()], axis=0)
    if not compared.any():
        return []
    y, n = scores[compared], int(compared.sum())
    values = {method: _statistics(y, predicted[method][compared], scale) for method in METHODS}
    figures = []
    for method, name in itertools.product(METHODS, STATISTICS):
        figures.append(GainFigure(name, method, over=None, value=values[method][name], low=None, high=None, n=n))
    for over, method in PAIRS:
        first, second = predicted[over][compared], predicted[method][compared]
        drawn = paired_bootstrap(y, first, second, clusters[compared], scale, draws=draws, seed=seed)
        for name in STATISTICS:
            ours, theirs = values[method][name], values[over][name]
            gap = None if ours is None or theirs is None else ours - theirs
            figure = GainFigure(name, method, over, gap, low=None, high=None, n=n)
            if name in drawn:
                ends = drawn[name]
                figure = replace(figure, low=ends.low, high=ends.high, clusters=ends.clusters)
            figures.append(figure)
    return figures


def _statistics(scores: Floats, predicted: Floats, scale: tuple[float, float, float]) -> dict[str, float | None]:
    return {
        "rmse": rmse(scores, predicted).value,
        "pearson": pearson(scores, predicted).value,
        "spearman": spearman(scores, predicted).value,
        "qwk": qwk(scores, predicted, *scale).value,
    }
