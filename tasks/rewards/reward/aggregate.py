"""Rewards from local scores: flat, by hard gates, or by dependency-adjusted marginals (GEAR, sections 3.3 and 3.4).

The responses of a batch are computed one after the other in compiled code, each by the same additions and products in
the same order wherever it stands, so that a reward does not depend on its batch. Time and memory are linear in
criteria and edges; one core is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.settings.reward import Inference, Reward
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, Shorts
from rubricflow.tasks.rewards.reward.exact import exact_marginals

Unsigned = NDArray[np.uint32]
RULES: tuple[Aggregation, ...] = ("flat", "hard_verdict", "hard_local", "hard_propagated", "gear")
FLAT, HARD_VERDICT, HARD_LOCAL, _, GEAR = range(5)


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
    stack = _stack(batch.compiled)
    all_scored = bool(batch.scored.all())

    def swept_with(unknown: float) -> tuple[Floats, Floats]:
        """Marginals and rewards where every unscored criterion is this."""
        local = batch.local
        decided = batch.decided
        if not all_scored:
            local, decided = (np.where(batch.scored, values, unknown) for values in (local, decided))
        marginal, reward = _swept(batch, stack, local, decided, aggregation, threshold)
        if aggregation == "gear" and inference == "exact":
            for rubric in np.unique(batch.rubric_index):
                compiled = batch.compiled[rubric]
                cells = batch.start[:-1][batch.rubric_index == rubric, None] + np.arange(len(compiled.criteria))
                exact = exact_marginals(compiled, np.nan_to_num(local[cells]))
                marginal[cells] = exact + 0.0 * marginal[cells]  # NaN stays NaN
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
        least = swept_with(0.0)[0]
        most = swept_with(1.0)[0]
        credit = stack.weight.clip(min=0)
        cost = stack.weight.clip(max=0)
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
    weights = [rubric.weights for rubric in compiled]
    none = np.empty(0, np.int32)
    return _Stack(
        edge_start=np.cumsum([0, *map(len, parents)]).astype(np.uint32),
        parent=np.concatenate([none, *parents]).astype(np.uint32),
        child=np.concatenate([none, *(rubric.child for rubric in compiled)]).astype(np.uint32),
        retention=np.concatenate([np.empty(0), *(rubric.retention for rubric in compiled)]),
        weight_start=np.cumsum([0, *map(len, weights)]).astype(np.uint32),
        weight=np.concatenate([np.empty(0), *weights]),
        mass=np.array([rubric.mass for rubric in compiled]),
    )


def _swept(
    batch: Batch, stack: _Stack, local: Floats, decided: Floats, aggregation: Aggregation, threshold: float
) -> tuple[Floats, Floats]:
    """Marginals and rewards, without exact inference."""
    marginal = np.empty_like(local)
    reward = np.empty(len(batch.rubric_index))
    rule = RULES.index(aggregation)
    _sweep(batch.rubric_index, batch.start, stack, local, decided, rule, threshold, marginal, reward)
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
        p = local[start[r] : start[r + 1]]
        q = marginal[start[r] : start[r + 1]]
        for i in range(len(p)):
            q[i] = p[i]
        first = stack.edge_start[g]
        end = stack.edge_start[g + 1]
        if rule == GEAR:
            for e in range(first, end):
                factor = stack.retention[e]
                q[stack.child[e]] *= factor + q[stack.parent[e]] * (1.0 - factor)
        elif rule != FLAT:
            gate = q  # hard_propagated
            if rule == HARD_VERDICT:
                gate = decided[start[r] : start[r + 1]]
            elif rule == HARD_LOCAL:
                gate = p
            for e in range(first, end):
                parent = gate[stack.parent[e]]
                q[stack.child[e]] *= (parent >= threshold) + 0.0 * parent  # 0 · NaN stays NaN
        weight = stack.weight[stack.weight_start[g] : stack.weight_start[g + 1]]
        total = 0.0
        for i in range(len(weight)):
            total += weight[i] * q[i]
        reward[r] = total / stack.mass[g]


# Which criteria are worth another reply of the judge, and what two replies come to. The doubt about a criterion moves
# the reward by what depends on it: with verdict 1 in place of 0 by a slope, and so by slope² · v, where v is the
# variance of its local score. Another reply takes about half of that away, whatever the criterion, so the doubts that
# weigh most are asked about first.

PLAIN_DOUBT = 3 / 16
"""Variance of a verdict that came without a probability: half a verdict of each kind is added to the one that was seen,
so that its probability is 3/4 or 1/4."""


def weights_of_doubts(batch: Batch, aggregation: Aggregation, settings: Reward) -> Floats:
    """(Σk,) the part of the reward's variance that settling a criterion would take away; 0 in responses of which a
    criterion is unscored."""
    pay = partial(aggregate, aggregation=aggregation, threshold=settings.threshold, inference=settings.inference)
    doubts = np.where(np.isnan(batch.variance), PLAIN_DOUBT, batch.variance)
    weights = np.zeros(len(batch.local))
    sizes = np.diff(batch.start)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        cells = batch.start[rows] + place
        rewards = []
        for verdict in (1.0, 0.0):
            local = batch.local.copy()
            decided = batch.decided.copy()
            local[cells] = decided[cells] = verdict
            rewards.append(pay(replace(batch, local=local, decided=decided)).reward[rows])
        weights[cells] = np.nan_to_num((rewards[0] - rewards[1]) ** 2 * doubts[cells])
    return weights


def averaged(batch: Batch, again: Batch, rows: Ints) -> Batch:
    """The batch with the mean of two judgings of some of its responses, where both have a score.

    again: the second judging of the responses `rows`, in that order. The variance of a mean share is that of drawing
    one of the two replies and then a level: that they differ adds to it.
    """
    cells = np.concatenate([np.arange(batch.start[row], batch.start[row + 1]) for row in rows])
    both = batch.scored[cells] & again.scored
    cells = cells[both]
    second = np.flatnonzero(both)
    local = batch.local.copy()
    decided = batch.decided.copy()
    variance = batch.variance.copy()
    squares = (variance[cells] + local[cells] ** 2 + again.variance[second] + again.local[second] ** 2) / 2
    local[cells] = (local[cells] + again.local[second]) / 2
    decided[cells] = (decided[cells] + again.decided[second]) / 2
    variance[cells] = np.clip(squares - local[cells] ** 2, 0.0, local[cells] * (1.0 - local[cells]))
    return replace(batch, local=local, decided=decided, variance=variance)
