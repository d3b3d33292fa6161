"""Exact marginals of a rubric graph (GEAR, Eqs. 7-10), by eliminating criteria edge by edge.

A criterion holds where its own score p does and every edge into it lets it: always where the parent holds, else with
probability λ, all independently: z_i = b_i Π (z_j or b_ji) with b_i ~ p_i and b_ji ~ λ_ji. That is Eq. 7, taken apart
into edges. Nothing is observed, so one sweep is enough. It holds the joint distribution of the criteria whose edges
have acted in part, as a probability for each state; the bit of a criterion's slot says whether it holds. Time and
memory grow with 2 to the criteria held together, not with those of the rubric.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph
from rubricflow.tasks.rewards.reward.elimination import MOST, Elimination


class TooWide(ContractError):
    """A graph whose exact marginals would take too much memory and time."""


def exact_marginals(compiled: CompiledGraph, local: Floats) -> Floats:
    """P(z = 1) of every criterion, where z_i is 1 with probability p_i Π_{j∈Pa(i)} (z_j + (1 − z_j) λ_ji).

    local: (n, k) local scores p in [0, 1]. Gives (n, k) in [0, p]. TooWide where more than MOST criteria would have to
    be held together by the order found, which need not be the best there is.
    """
    plan = _narrow(compiled)
    marginal = np.array(local, dtype=np.float64)
    _sweep(plan, compiled.retention[plan.edge], np.asarray(local, dtype=np.float64), marginal)
    return marginal


def check_widths(compiled: Iterable[CompiledGraph]) -> None:
    """TooWide where a rubric's graph does not allow exact marginals."""
    for rubric in compiled:
        _narrow(rubric)


def _narrow(compiled: CompiledGraph) -> Elimination:
    """The elimination of a rubric's graph; TooWide where there is none."""
    if not compiled.elimination.is_narrow:
        raise TooWide(
            f"rubric '{compiled.rubric_id}': exact inference would hold {compiled.elimination.width} of its criteria "
            f"together, more than {MOST}; the topological update has no such bound"
        )
    return compiled.elimination


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
    above, below = 1 << parent, 1 << child
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
    bit, total = 1 << slot, 0.0
    for state in range(len(states)):
        if state & bit:
            total += states[state]
    return total
