"""Rewards from local scores: flat, by hard gates, or by dependency-adjusted marginals (GEAR, sections 3.3 and 3.4).

The responses of a batch are computed one after the other in compiled code, each by the same additions and products in
the same order wherever it stands, so that a reward does not depend on its batch. Time and memory are linear in
criteria and edges; one core is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.settings.reward import Aggregation, Inference
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, Shorts
from rubricflow.tasks.rewards.reward.exact import exact_marginals

Unsigned = NDArray[np.uint32]
RULES: tuple[Aggregation, ...] = ("flat", "hard_verdict", "hard_local", "hard_propagated", "gear")
FLAT, HARD_VERDICT, HARD_LOCAL, HARD_PROPAGATED, GEAR = range(5)


@dataclass(frozen=True)
class Aggregated:
    """The rewards of n responses."""

    reward: Floats
    """(n,) at most 1; NaN where there is none."""
    low: Floats
    """(n,) lower bound over all that the unscored criteria could be; NaN where no bounds are asked for or needed."""
    high: Floats
    """(n,) upper bound."""
    marginal: Floats
    """(Σk,) each criterion's share after the dependencies, in [0, 1], as the local scores of the batch lie; NaN where
    it hangs on an unscored criterion."""

    def part(self, responses: slice, start: Ints) -> Aggregated:
        """Some neighbouring responses, without a copy. start: (n + 1,) as in the batch."""
        cells = slice(start[responses.start], start[responses.stop])
        return Aggregated(self.reward[responses], self.low[responses], self.high[responses], self.marginal[cells])


def aggregate(
    batch: Batch,
    aggregation: Aggregation,
    *,
    threshold: float = 0.5,
    inference: Inference = "topological",
    unscored: Literal["null", "bounds", "zero"] = "null",
) -> Aggregated:
    """The rewards and marginals of a batch: R = Σ w q / mass (Eqs. 2 and 14; `CompiledGraph.mass`).

    flat: q is the local score p. hard_verdict, hard_local and hard_propagated: q is p, or 0 where what was decided of a
    parent (`Batch.decided`), a parent's p, or a parent's q, is below the threshold. gear: q = p Π (q_parent + (1 −
    q_parent) λ) (Eq. 12) or, with exact inference, the marginal of Eq. 10; TooWide where a graph does not allow it.

    unscored: what a criterion without a usable verdict does. null: there is no reward. bounds: no reward but bounds; no
    q falls when a local score rises, so credit is least where the unscored are 0 and cost is most where they are 1, and
    the two together bound every completion without being one. zero: its local score is 0; where nothing is scored there
    is no reward all the same.
    """
    stack, all_scored = _stack(batch.compiled), bool(batch.scored.all())

    def swept_with(unknown: float) -> tuple[Floats, Floats]:
        """Marginals and rewards where every unscored criterion is this."""
        local, decided = batch.local, batch.decided
        if not all_scored:
            local, decided = (np.where(batch.scored, values, unknown) for values in (local, decided))
        marginal, reward = _swept(batch, stack, local, decided, aggregation, threshold)
        if aggregation == "gear" and inference == "exact":
            _make_exact(marginal, batch, np.nan_to_num(local))
            return marginal, worth(marginal, stack.weight)
        return marginal, reward

    def worth(marginal: Floats, weight: Floats) -> Floats:
        return _swept(batch, stack._replace(weight=weight), marginal, marginal, "flat", threshold)[1]

    marginal, reward = swept_with(0.0 if unscored == "zero" else np.nan)
    if unscored == "zero" and not all_scored:
        # (n,) whether a response has no scored criterion at all
        before = np.concatenate([[0], np.cumsum(batch.scored)])
        reward = np.where(np.asarray(np.diff(before[batch.start]) == 0), np.nan, reward)
    low = high = np.full_like(reward, np.nan)
    if unscored == "bounds" and np.isnan(reward).any():
        least, most = swept_with(0.0)[0], swept_with(1.0)[0]
        credit, cost = stack.weight.clip(min=0), stack.weight.clip(max=0)
        low = np.where(np.isnan(reward), worth(least, credit) + worth(most, cost), np.nan)
        high = np.where(np.isnan(reward), worth(most, credit) + worth(least, cost), np.nan)
    return Aggregated(reward, low, high, marginal)


class _Stack(NamedTuple):
    """The arrays of several rubrics, one after the other. What is unsigned cannot count from the end, and compiled code
    need not look whether it does."""

    edge_start: Unsigned
    """(g + 1,) where each rubric's edges begin."""
    parent: Unsigned
    """(Σe,) place of the parent among its rubric's criteria."""
    child: Unsigned
    """(Σe,) place of the child."""
    retention: Floats
    """(Σe,)."""
    weight_start: Unsigned
    """(g + 1,) where each rubric's weights begin."""
    weight: Floats
    """(ΣK,)."""
    mass: Floats
    """(g,)."""


@lru_cache(maxsize=4)
def _stack(compiled: tuple[CompiledGraph, ...]) -> _Stack:
    """The same rubrics come again with every batch of a training run. They are known by identity; nobody changes their
    arrays."""

    parents = [rubric.parent for rubric in compiled]
    children = [rubric.child for rubric in compiled]
    retentions = [rubric.retention for rubric in compiled]
    weights = [rubric.weights for rubric in compiled]
    masses = [rubric.mass for rubric in compiled]
    return _Stack(
        edge_start=_starts(parents),
        parent=_places(parents),
        child=_places(children),
        retention=np.concatenate([np.empty(0), *retentions]),
        weight_start=_starts(weights),
        weight=np.concatenate([np.empty(0), *weights]),
        mass=np.array(masses),
    )


def _starts(arrays: Sequence[Shorts] | Sequence[Floats]) -> Unsigned:
    """Where each array begins when they lie one after the other, and the end of the last."""
    return np.cumsum([0, *map(len, arrays)]).astype(np.uint32)


def _places(arrays: Sequence[Shorts]) -> Unsigned:
    return np.concatenate([np.empty(0, np.int32), *arrays]).astype(np.uint32)


def _swept(
    batch: Batch, stack: _Stack, local: Floats, decided: Floats, aggregation: Aggregation, threshold: float
) -> tuple[Floats, Floats]:
    """Marginals and rewards, without exact inference."""
    marginal, reward = np.empty_like(local), np.empty(len(batch.rubric_index))
    _sweep(
        batch.rubric_index, batch.start, stack, local, decided, RULES.index(aggregation), threshold, marginal, reward
    )
    return marginal, reward


@njit(cache=True, nogil=True)
def _sweep(
    rubric_index: Shorts,
    start: Ints,
    stack: _Stack,
    local: Floats,
    decided: Floats,
    rule: int,
    threshold: float,
    marginal: Floats,
    reward: Floats,
) -> None:
    """Fill marginals and rewards. An edge comes after all edges into its parent, whose marginal then is final. NaN
    among the local scores, for what is unscored, passes on to all that hangs on it.

    A retained share is λ + q (1 − λ): in floating point, too, it is at most 1, just 1 where the parent is certain, and
    never falls in q."""
    for r in range(len(rubric_index)):
        g = rubric_index[r]
        p, q = local[start[r] : start[r + 1]], marginal[start[r] : start[r + 1]]
        for i in range(len(p)):
            q[i] = p[i]
        first, end = stack.edge_start[g], stack.edge_start[g + 1]
        if rule == GEAR:
            for e in range(first, end):
                factor = stack.retention[e]
                q[stack.child[e]] *= factor + q[stack.parent[e]] * (1.0 - factor)
        elif rule == HARD_VERDICT:
            verdicts = decided[start[r] : start[r + 1]]
            for e in range(first, end):
                parent = verdicts[stack.parent[e]]
                q[stack.child[e]] *= (parent >= threshold) + 0.0 * parent  # 0 · NaN stays NaN
        elif rule == HARD_LOCAL:
            for e in range(first, end):
                parent = p[stack.parent[e]]
                q[stack.child[e]] *= (parent >= threshold) + 0.0 * parent
        elif rule == HARD_PROPAGATED:
            for e in range(first, end):
                parent = q[stack.parent[e]]
                q[stack.child[e]] *= (parent >= threshold) + 0.0 * parent
        weight = stack.weight[stack.weight_start[g] : stack.weight_start[g + 1]]
        total = 0.0
        for i in range(len(weight)):
            total += weight[i] * q[i]
        reward[r] = total / stack.mass[g]


def _make_exact(marginal: Floats, batch: Batch, local: Floats) -> None:
    """Put exact marginals in place of those of the topological update, but where there is none, rubric by rubric."""
    for rubric in np.unique(batch.rubric_index):
        compiled = batch.compiled[rubric]
        cells = batch.start[:-1][batch.rubric_index == rubric, None] + np.arange(len(compiled.criteria))
        marginal[cells] = exact_marginals(compiled, local[cells]) + 0.0 * marginal[cells]  # NaN stays NaN
