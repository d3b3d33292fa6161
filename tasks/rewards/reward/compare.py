"""All figures of a study's rewards: every aggregation, what of the graph makes the difference, and who else scored.

What of a graph makes the difference? Its edges rewired at random, or its relations made one (GEAR, appendix H).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from rubricflow.tasks.core.contracts.settings.reward import Inference, Reward
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, shared_factor, topological, untyped
from rubricflow.tasks.rewards.reward.figures import (
    Record,
    Resampling,
    RewardFigure,
    agreement,
    correlation,
    correlation_terms,
    record,
    reward_figures,
)
from rubricflow.tasks.rewards.reward.leakage import diagnose
from rubricflow.tasks.rewards.reward.local import Locals

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Values of η that the paper sweeps (Table 16)."""
SMALL = 14
"""Criteria of the graphs on which exact and topological marginals are compared."""
Unscored = Literal["null", "bounds", "zero"]
CompileAt = Callable[[float], Mapping[str, CompiledGraph]]
"""Suppression strength η → each rubric ready to be computed with."""


def figures(judged: Locals, name: str, aggregated: Aggregated, settings: Reward) -> list[Record]:
    """The rows of `diagnostics` about one aggregation, or an ablation of one: rewards, leakage and preservation."""
    return [*reward_figures(judged, name, aggregated, settings), *diagnose(judged, name, aggregated, settings)]


def ablations(judged: Locals, compile_at: CompileAt, settings: Reward, unscored: Unscored = "null") -> list[Record]:
    """The rows of `diagnostics` about what of a graph makes the difference: gear's `figures` with a random and an
    untyped graph and at other strengths, and how near the topological update comes to exact inference.

    unscored: what an unscored criterion does. The random graphs, which may be too wide for exact inference, are
    computed by the topological update whatever the settings say.
    """
    graphs = judged.batch.compiled

    def ablated(name: str, compiled: Sequence[CompiledGraph], inference: Inference) -> list[Record]:
        """GEAR's figures with the same local scores under other graphs."""
        rewired = replace(judged.batch, compiled=tuple(compiled))
        return figures(judged, name, aggregate(rewired, "gear", inference=inference, unscored=unscored), settings)

    records = ablated("random_graph", [random_graph(graph, settings.seed) for graph in graphs], "topological")
    factor = shared_factor(graphs)
    note = "there is no edge" if factor is None else f"one factor for all edges: {factor:.3f}"
    records += [_noted(row, note) for row in ablated("untyped", untyped(graphs), settings.inference)]
    for eta in STRENGTHS:
        compiled = compile_at(eta)
        stronger = [compiled[graph.rubric_id] for graph in graphs]
        records += ablated(f"gear, eta {eta:g}", stronger, settings.inference)
    return records + _inference(judged, settings, unscored)


def against(
    judged: Locals, rewards: Mapping[Aggregation, Floats], gradings: pa.Table, settings: Reward
) -> list[Record]:
    """How the rewards of every aggregation, (n,), stand to the scores that others gave the same responses.

    gradings: response_id, rater_id, rater_kind and score of one rater or several. For each rater and aggregation
    `spearman: <rater>`, over all responses that have both; and of flat rewards the `largest difference: <rater>` from
    scores that a machine recorded, which are sums of the same points.
    """
    records = []
    gradings = gradings.filter(pc.is_valid(gradings["score"]))
    for rater in sorted(pc.unique(gradings["rater_id"]).to_pylist()):
        theirs = gradings.filter(pc.equal(gradings["rater_id"], rater))
        places = pc.index_in(judged.response_id, value_set=theirs["response_id"].combine_chunks())
        score = np.asarray(theirs["score"].take(places), dtype=np.float64)  # no score is NaN
        for name, reward in rewards.items():
            both = np.flatnonzero(~np.isnan(score) & ~np.isnan(reward))
            if not len(both):
                continue
            missing = len(score) - len(both)
            # Pearson's correlation of the ranks, with ranks taken once for all draws.
            middle = (len(both) + 1) / 2
            a = rankdata(reward[both]) - middle
            b = rankdata(score[both]) - middle
            correlated = Resampling.plan(judged, settings).figure(correlation, both, correlation_terms(a, b))
            records.append(record(f"spearman: {rater}", name, correlated, len(both), missing))
            if name == "flat" and theirs["rater_kind"][0].as_py() == "replayed":
                gap = float(np.abs(reward - score)[both].max())
                largest = RewardFigure(gap, None, None, None)
                records.append(record(f"largest difference: {rater}", name, largest, len(both), missing))
    return records


def _noted(row: Record, note: str) -> Record:
    return row | {"note": "; ".join(text for text in (row["note"], note) if text)}


def _inference(judged: Locals, settings: Reward, unscored: Unscored) -> list[Record]:
    """Topological against exact marginals on the small graphs."""
    small = np.array([len(graph.criteria) <= SMALL for graph in judged.batch.compiled])[judged.batch.rubric_index]
    if not small.any():
        return []
    on_small_graphs = judged if small.all() else judged.only(small)
    near = aggregate(on_small_graphs.batch, "gear", inference="topological", unscored=unscored)
    exact = aggregate(on_small_graphs.batch, "gear", inference="exact", unscored=unscored)
    note = f"graphs of at most {SMALL} criteria"
    return [_noted(row, note) for row in agreement(on_small_graphs, near, exact, settings)]


def random_graph(compiled: CompiledGraph, seed: int) -> CompiledGraph:
    """The same rubric with as many edges between random criteria, acyclic, none twice.

    Relations are kept with their retention factors, as often as they occur, and dealt out anew. Criteria are put into a
    random order and pairs drawn without replacement that go forward in it. Roles are not respected: dependencies become
    arbitrary. The draw depends on the seed and the rubric_id alone.
    """
    rng = np.random.default_rng([seed, *hashlib.sha256(compiled.rubric_id.encode()).digest()])
    k = len(compiled.criteria)
    e = len(compiled.parent)
    shuffled = rng.permutation(k)
    earlier, later = np.triu_indices(k, 1)
    drawn = rng.choice(len(earlier), e, replace=False)
    pairs = zip(shuffled[earlier[drawn]].tolist(), shuffled[later[drawn]].tolist(), strict=True)
    dealt = dict(zip(pairs, rng.permutation(e).tolist(), strict=True))
    order, edges = topological(k, dealt)
    sources = [dealt[pair] for pair in edges]
    return replace(
        compiled,
        graph_id=f"random {seed} of {compiled.graph_id}",
        order=order,
        parent=np.array([parent for parent, _ in edges], dtype=np.int32),
        child=np.array([child for _, child in edges], dtype=np.int32),
        relation=tuple(compiled.relation[source] for source in sources),
        retention=compiled.retention[sources],
    )
