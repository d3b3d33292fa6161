"""Exact marginals of a rubric graph and variances of its rewards (GEAR, Eqs. 7-10), eliminated edge by edge.

A criterion holds where its own score p does and every edge into it lets it: always where the parent holds, else with
probability λ, all independently: z_i = b_i Π (z_j or b_ji) with b_i ~ p_i and b_ji ~ λ_ji. That is Eq. 7, taken apart
into edges. Nothing is observed, so one sweep is enough. It holds the joint distribution of the criteria whose edges
have acted in part, as a probability for each state; the bit of a criterion's slot says whether it holds. Time and
memory grow with 2 to the criteria held together, not with those of the rubric.

How far a reward would vary if the judge's own doubts were settled one way or the other: a judge with probabilities
states of each criterion an expected share p and how far the share may lie from it, its variance v; of a plain yes or no
v is p (1 − p). With the shares s drawn accordingly, independently, the reward R(s) has the mean R(p), since exact
inference is linear in each share, and a variance, which stands here. It knows nothing of errors that the judge does not
doubt, and the graph and its retention factors are taken for right. E[R(s)²] is the joint expectation of two rubrics
that share s and nothing else, so one sweep over both at once is enough: for each state of the criteria held in both it
keeps the probability and the moments of what was summed out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.rewards.reward.compiled import MOST, Batch, CompiledGraph, Elimination


class TooWide(ContractError):
    """A graph whose exact marginals would take too much memory and time."""


def exact_marginals(compiled: CompiledGraph, local: Floats) -> Floats:
    """P(z = 1) of every criterion, where z_i is 1 with probability p_i Π_{j∈Pa(i)} (z_j + (1 − z_j) λ_ji).

    local: (n, k) local scores p in [0, 1]. Gives (n, k) in [0, p]. TooWide where more than MOST criteria would have to
    be held together by the order found, which need not be the best there is.
    """
    check_widths([compiled])
    plan = compiled.elimination
    local = np.asarray(local, dtype=np.float64)
    marginal = local.copy()
    _sweep(plan, compiled.retention[plan.edge], local, marginal)
    return marginal


def check_widths(compiled: Iterable[CompiledGraph]) -> None:
    """TooWide where a rubric's graph does not allow exact marginals."""
    for rubric in compiled:
        if not rubric.elimination.is_narrow:
            raise TooWide(
                f"rubric '{rubric.rubric_id}': exact inference would hold {rubric.elimination.width} of its criteria "
                f"together, more than {MOST}; the topological update has no such bound"
            )


@njit(cache=True, nogil=True)
def _sweep(plan: Elimination, retention: Floats, local: Floats, marginal: Floats) -> None:
    """Fill the marginals of all criteria with edges into them. retention: (e,) in the plan's order."""
    states = np.zeros(1 << plan.width)
    for response in range(len(local)):
        p = local[response]
        states[:] = 0.0
        states[0] = 1.0
        for step in range(len(retention)):
            for end in range(2):
                if plan.enters[step, end]:
                    _enter(states, plan.slots[step, end], p[plan.ends[step, end]])
            suppress(states, plan.slots[step, 0], plan.slots[step, 1], retention[step])
            if plan.settles[step]:
                child = plan.ends[step, 1]
                probability = _held(states, plan.slots[step, 1])
                marginal[response, child] = min(probability, p[child])  # a sum may exceed it by a rounding
            for end in range(2):
                if plan.leaves[step, end]:
                    leave(states, plan.slots[step, end])


@njit(cache=True, nogil=True)
def _enter(states: Floats, slot: int, p: float) -> None:
    """Take up a criterion that holds with probability p."""
    bit = 1 << slot
    for state in range(len(states)):
        if not state & bit:
            states[state | bit] = states[state] * p
            states[state] *= 1.0 - p


@njit(cache=True, nogil=True)
def suppress(states: Floats, parent: int, child: int, retained: float) -> None:
    """Where the parent does not hold, the child does with this share of its probability."""
    above = 1 << parent
    below = 1 << child
    for state in range(len(states)):
        if state & below and not state & above:
            lost = (1.0 - retained) * states[state]
            states[state] -= lost
            states[state ^ below] += lost


@njit(cache=True, nogil=True)
def leave(states: Floats, slot: int) -> None:
    """Sum a criterion out."""
    bit = 1 << slot
    for state in range(len(states)):
        if not state & bit:
            states[state] += states[state | bit]
            states[state | bit] = 0.0


@njit(cache=True, nogil=True)
def _held(states: Floats, slot: int) -> float:
    """The probability that a criterion holds."""
    bit = 1 << slot
    total = 0.0
    for state in range(len(states)):
        if state & bit:
            total += states[state]
    return total


WIDEST = 7
"""Criteria held together up to which variances are computed: 4^7 states are some two milliseconds a response."""


def reward_variances(batch: Batch, aggregation: Aggregation) -> Floats:
    """(n,) variances of the rewards of a batch, at least 0, by exact inference whatever the reward was put together by.

    NaN where a criterion is unscored or its judge gave no probabilities; for gates, which jump where a verdict does;
    and for gear where more than WIDEST criteria would have to be held together.
    """
    variances = np.full(len(batch.rubric_index), np.nan)
    if aggregation not in ("flat", "gear"):
        return variances
    for rubric in np.unique(batch.rubric_index):
        compiled = batch.compiled[rubric]
        rows = np.flatnonzero(batch.rubric_index == rubric)
        cells = batch.start[rows][:, None] + np.arange(len(compiled.criteria))
        is_computable = batch.scored[cells].all(axis=1) & ~np.isnan(batch.variance[cells]).any(axis=1)
        rows = rows[is_computable]
        cells = cells[is_computable]
        local = batch.local[cells]
        doubt = batch.variance[cells]
        share = (compiled.weights / compiled.mass) ** 2
        if aggregation == "flat":
            variances[rows] = doubt @ share
            continue
        plan = compiled.elimination
        if plan.width <= WIDEST:
            linked = np.zeros(len(share), dtype=bool)
            linked[plan.ends] = True
            licensed = np.zeros(len(local))
            unsure = np.flatnonzero(doubt[:, linked].any(axis=1))
            both = np.minimum(doubt + local**2, local)
            weights = compiled.weights / compiled.mass
            _sweep_both(plan, compiled.retention[plan.edge], weights, local, both, unsure, licensed)
            variances[rows] = licensed + np.where(linked, 0.0, doubt) @ share
    return variances


@njit(cache=True, nogil=True)
def _sweep_both(
    plan: Elimination, retention: Floats, weights: Floats, local: Floats, both: Floats, rows: Ints, variances: Floats
) -> None:
    """Fill the variances of these rows, over the criteria with edges. both: (n, k) the probability that a criterion
    holds in both rubrics. A criterion in slot s is held by the bits 2s and 2s + 1."""
    size = 1 << (2 * plan.width)
    chance = np.zeros(size)
    first = np.zeros(size)
    second = np.zeros(size)
    product = np.zeros(size)
    moments = (chance, first, second, product)
    for row in rows:
        for states in moments:
            states[:] = 0.0
        chance[0] = 1.0
        for step in range(len(retention)):
            above, below = plan.slots[step]
            for end in range(2):
                if plan.enters[step, end]:
                    place = plan.ends[step, end]
                    for states in moments:
                        _enter_both(states, plan.slots[step, end], local[row, place], both[row, place])
            for states in moments:
                suppress(states, 2 * above, 2 * below, retention[step])
                suppress(states, 2 * above + 1, 2 * below + 1, retention[step])
            for end in range(2):
                if plan.leaves[step, end]:
                    slot = plan.slots[step, end]
                    _earn(chance, first, second, product, slot, weights[plan.ends[step, end]])
                    for states in moments:
                        leave(states, 2 * slot)
                        leave(states, 2 * slot + 1)
        variances[row] = max(0.0, product[0] - first[0] * second[0])


@njit(cache=True, nogil=True)
def _enter_both(states: Floats, slot: int, p: float, both: float) -> None:
    """Take up a criterion that holds with probability p in each rubric and with `both` in the two."""
    first = 1 << (2 * slot)
    second = 1 << (2 * slot + 1)
    for state in range(len(states)):
        if not state & (first | second):
            mass = states[state]
            states[state] = mass * max(0.0, 1.0 - 2.0 * p + both)
            states[state | first] = mass * (p - both)
            states[state | second] = mass * (p - both)
            states[state | first | second] = mass * both


@njit(cache=True, nogil=True)
def _earn(chance: Floats, first: Floats, second: Floats, product: Floats, slot: int, weight: float) -> None:
    """Add a criterion's weight to the sums of the rubrics in which it holds."""
    first_bit = 1 << (2 * slot)
    second_bit = 1 << (2 * slot + 1)
    for state in range(len(chance)):
        mine = weight if state & first_bit else 0.0
        theirs = weight if state & second_bit else 0.0
        product[state] += mine * second[state] + theirs * first[state] + mine * theirs * chance[state]
        first[state] += mine * chance[state]
        second[state] += theirs * chance[state]
