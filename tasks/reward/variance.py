"""How far a reward would vary if the judge's own doubts were settled one way or the other.

A judge that gives probabilities says of each criterion an expected share p and how far the share may lie from it, its
variance v; of a plain yes or no v is p (1 − p). With the shares s drawn accordingly, independently, the reward R(s) has
the mean R(p), since exact inference is linear in each share, and a variance, which stands here. It knows nothing of
errors that the judge does not doubt, and the graph and its retention factors are taken for right.

E[R(s)²] is the joint expectation of two rubrics that share s and nothing else, so one sweep over both at once is
enough: for each state of the criteria held in both it keeps the probability and the moments of what was summed out.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.contracts.settings.reward import Aggregation
from tasks.reward.elimination import Elimination
from tasks.reward.exact import leave, suppress
from tasks.reward.wire import Batch, Wired
from tasks.stats.arrays import Floats, Ints

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
        wired = batch.wired[rubric]
        rows = np.flatnonzero(batch.rubric_index == rubric)
        cells = batch.start[rows][:, None] + np.arange(len(wired.criteria))
        is_computable = batch.scored[cells].all(axis=1) & ~np.isnan(batch.variance[cells]).any(axis=1)
        rows, cells = rows[is_computable], cells[is_computable]
        local, doubt = batch.local[cells], batch.variance[cells]
        variances[rows] = _flat(wired, doubt) if aggregation == "flat" else _licensed(wired, local, doubt)
    return variances


def _flat(wired: Wired, doubt: Floats) -> Floats:
    """Variances (n,) of the plain sum. doubt: (n, k) variances of the local scores."""
    return np.asarray(doubt @ (wired.weights / wired.mass) ** 2)


def _licensed(wired: Wired, local: Floats, doubt: Floats) -> Floats:
    """Variances (n,) under the dependencies. local, doubt: (n, k)."""
    plan = wired.elimination
    if plan.width > WIDEST:
        return np.full(len(local), np.nan)
    weights = wired.weights / wired.mass
    linked = np.zeros(len(weights), dtype=bool)
    linked[plan.ends] = True
    variances = np.zeros(len(local))
    unsure = np.flatnonzero(doubt[:, linked].any(axis=1))
    both = np.minimum(doubt + local**2, local)
    _sweep(plan, wired.retention[plan.edge], weights, local, both, unsure, variances)
    return variances + _flat(wired, np.where(linked, 0.0, doubt))


@njit(cache=True, nogil=True)
def _sweep(
    plan: Elimination, retention: Floats, weights: Floats, local: Floats, both: Floats, rows: Ints, variances: Floats
) -> None:
    """Fill the variances of these rows, over the criteria with edges. both: (n, k) the probability that a criterion
    holds in both rubrics. A criterion in slot s is held by the bits 2s and 2s + 1."""
    size = 1 << (2 * plan.width)
    chance, first, second, product = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
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
    first, second = 1 << (2 * slot), 1 << (2 * slot + 1)
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
    first_bit, second_bit = 1 << (2 * slot), 1 << (2 * slot + 1)
    for state in range(len(chance)):
        mine = weight if state & first_bit else 0.0
        theirs = weight if state & second_bit else 0.0
        product[state] += mine * second[state] + theirs * first[state] + mine * theirs * chance[state]
        first[state] += mine * chance[state]
        second[state] += theirs * chance[state]
