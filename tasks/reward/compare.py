"""All figures of a study's rewards: every aggregation, what of the graph makes the difference, and who else scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from tasks.contracts.settings.reward import Aggregation, Inference, Reward
from tasks.reward.ablate import random_graph, shared_factor, untyped
from tasks.reward.aggregate import Aggregated, aggregate
from tasks.reward.figures import Record, Resampling, RewardFigure, agreement, correlation, record, reward_figures
from tasks.reward.leakage import diagnose
from tasks.reward.local import Locals
from tasks.reward.wire import Wired, batch
from tasks.stats.arrays import Floats

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Values of η that the paper sweeps (Table 16)."""
SMALL = 14
"""Criteria of the graphs on which exact and topological marginals are compared."""
Unscored = Literal["null", "bounds", "zero"]
Wiring = Callable[[float], Mapping[str, Wired]]
"""Suppression strength η → each rubric ready to be computed with."""


def figures(
    of: Locals,
    found: Mapping[Aggregation, Aggregated],
    wiring: Wiring,
    settings: Reward,
    unscored: Unscored = "null",
) -> list[Record]:
    """The rows of `diagnostics`: rewards, leakage and preservation under every aggregation, with a random and an
    untyped graph and at other strengths, and how near the topological update comes to exact inference.

    unscored: what an unscored criterion does, as it did in `found`. The random graphs, which may be too wide for exact
    inference, are computed by the topological update whatever the settings say.
    """
    records: list[Record] = []
    for name, one in found.items():
        records += _both(of, name, one, settings)
    graphs = of.batch.wired

    def ablated(name: str, wired: Sequence[Wired], inference: Inference) -> list[Record]:
        """GEAR's figures with the same local scores under other graphs."""
        mine = of.batch
        other = aggregate(
            batch(wired, mine.of, mine.local, mine.scored, mine.decided), "gear", inference=inference, unscored=unscored
        )
        return _both(of, name, other, settings)

    records += ablated("random_graph", [random_graph(one, settings.seed) for one in graphs], "topological")
    factor = shared_factor(graphs)
    note = "there is no edge" if factor is None else f"one factor for all edges: {factor:.3f}"
    records += [_noted(row, note) for row in ablated("untyped", untyped(graphs), settings.inference)]
    for eta in STRENGTHS:
        wired = wiring(eta)
        records += ablated(f"gear, eta {eta:g}", [wired[one.rubric_id] for one in graphs], settings.inference)
    return records + _inference(of, settings, unscored)


def against(of: Locals, found: Mapping[Aggregation, Aggregated], gradings: pa.Table, settings: Reward) -> list[Record]:
    """How the rewards stand to the scores that others gave the same responses.

    gradings: response_id, rater_id, rater_kind and score of one rater or several. For each rater and aggregation
    `spearman: <rater>`, over all responses that have both; and of flat rewards the `largest difference: <rater>` from
    scores that a machine recorded, which are sums of the same points.
    """
    records = []
    gradings = gradings.filter(pc.is_valid(gradings["score"]))
    for rater in sorted(pc.unique(gradings["rater_id"]).to_pylist()):
        theirs = gradings.filter(pc.equal(gradings["rater_id"], rater))
        at = pc.index_in(of.response_id, value_set=theirs["response_id"].combine_chunks())
        score = np.asarray(theirs["score"].take(at), dtype=np.float64)  # no score is NaN
        for name, one in found.items():
            both = np.flatnonzero(~np.isnan(score) & ~np.isnan(one.reward))
            if not len(both):
                continue
            missing = len(score) - len(both)
            records.append(_spearman(of, f"spearman: {rater}", name, one.reward, score, both, settings))
            if name == "flat" and theirs["rater_kind"][0].as_py() == "replayed":
                gap = float(np.abs(one.reward - score)[both].max())
                records.append(
                    record(
                        f"largest difference: {rater}", name, RewardFigure(gap, None, None, None), len(both), missing
                    )
                )
    return records


def _both(of: Locals, name: str, one: Aggregated, settings: Reward) -> list[Record]:
    return [*reward_figures(of, name, one, settings), *diagnose(of, name, one, settings)]


def _noted(row: Record, note: str) -> Record:
    return row | {"note": "; ".join(one for one in (row["note"], note) if one)}


def _inference(of: Locals, settings: Reward, unscored: Unscored) -> list[Record]:
    """Topological against exact marginals on the small graphs."""
    small = np.array([len(one.criteria) <= SMALL for one in of.batch.wired])[of.batch.of]
    if not small.any():
        return []
    some = of.only(small)
    near = aggregate(some.batch, "gear", inference="topological", unscored=unscored)
    exact = aggregate(some.batch, "gear", inference="exact", unscored=unscored)
    note = f"graphs of at most {SMALL} criteria"
    return [_noted(row, note) for row in agreement(some, near, exact, settings)]


def _spearman(
    of: Locals, metric: str, name: str, reward: Floats, score: Floats, both: np.ndarray, settings: Reward
) -> Record:
    """Pearson's correlation of the ranks, with ranks taken once for all draws."""
    a, b = (rankdata(values[both]) - (len(both) + 1) / 2 for values in (reward, score))
    found = Resampling.plan(of, settings).figure(correlation, both, [np.ones(len(both)), a, b, a * a, b * b, a * b])
    return record(metric, name, found, len(both), len(score) - len(both))
