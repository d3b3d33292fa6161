"""Exact marginals of a rubric graph (GEAR, Eqs. 7-10), by eliminating criteria along a topological order.

Nothing is observed, so one sweep forward is enough: the joint distribution of the criteria that still have children to
come, the frontier, gives the next criterion's marginal; it joins the frontier, and those whose last child it was are
summed out. Time and memory grow with 2 to the width of the frontier, not with the number of criteria.
"""

from __future__ import annotations

import numpy as np

from tasks.contracts.errors import ContractError
from tasks.reward.wire import Floats, Wired

MOST = 18
"""Criteria that may be held together: 2^18 joint probabilities are 2 MiB for one response."""
CHUNK_BYTES = 2**24
"""Joint probabilities held at a time."""


class TooWide(ContractError):
    """A graph whose exact marginals would take too much memory and time."""


def exact_marginals(wired: Wired, local: Floats) -> Floats:
    """P(z = 1) of every criterion, where z_i is 1 with probability θ_i = p_i Π_{j∈Pa(i)} (z_j + (1 − z_j) λ_ji).

    local: (n, k) local scores p in [0, 1]. Gives (n, k) in [0, 1]. TooWide where more than MOST criteria would have to
    be held together, in the order found; it is not always the best there is.
    """
    order, width = _elimination(wired)
    if width > MOST:
        raise TooWide(
            f"rubric '{wired.rubric_id}': exact inference would hold {width} criteria together, more than {MOST}; "
            "its topological update is linear"
        )
    local = np.asarray(local, dtype=np.float64)
    found = np.empty_like(local)
    rows = max(1, CHUNK_BYTES // (8 * 2**width))
    for at in range(0, len(local), rows):
        found[at : at + rows] = _sweep(wired, order, local[at : at + rows])
    return found


def _elimination(wired: Wired) -> tuple[list[int], int]:
    """Places in the order of the sweep, and the most that it holds together.

    Of the criteria whose parents are done, next is the one that leaves the narrowest frontier; among equals the one
    that brings a child nearest to having all its parents, then the first.
    """
    parents, children = _relatives(wired)
    missing = [len(found) for found in parents]
    waiting = [len(found) for found in children]
    ready = {place for place, count in enumerate(missing) if count == 0}
    order: list[int] = []
    held = width = 0

    def grows(place: int) -> int:
        return bool(children[place]) - sum(waiting[parent] == 1 for parent, _ in parents[place])

    while ready:
        place = min(
            ready, key=lambda one: (grows(one), min((missing[child] for child in children[one]), default=0), one)
        )
        ready.remove(place)
        order.append(place)
        width = max(width, held + bool(children[place]))
        held += grows(place)
        for parent, _ in parents[place]:
            waiting[parent] -= 1
        for child in children[place]:
            missing[child] -= 1
            if missing[child] == 0:
                ready.add(child)
    return order, width


def _relatives(wired: Wired) -> tuple[list[list[tuple[int, float]]], list[list[int]]]:
    """Each criterion's parents with their retention factors, and its children, by place."""
    parents: list[list[tuple[int, float]]] = [[] for _ in wired.criteria]
    children: list[list[int]] = [[] for _ in wired.criteria]
    for parent, child, kept in zip(wired.parent.tolist(), wired.child.tolist(), wired.retention.tolist(), strict=True):
        parents[child].append((parent, kept))
        children[parent].append(child)
    return parents, children


def _sweep(wired: Wired, order: list[int], local: Floats) -> Floats:
    """Marginals of a chunk. The joint has a row for each state of the frontier, whose bit b is the b-th criterion held,
    and a column for each response."""
    parents, children = _relatives(wired)
    waiting = [len(found) for found in children]
    frontier: list[int] = []
    joint = np.ones((1, len(local)))
    marginal = np.empty_like(local)
    for place in order:
        state = np.arange(len(joint))
        licensed = np.ones(len(joint))
        for parent, kept in parents[place]:
            licensed *= np.where(state >> frontier.index(parent) & 1, 1.0, kept)
            waiting[parent] -= 1
        # the sum of all probabilities may exceed 1 by a rounding
        marginal[:, place] = local[:, place] * np.minimum(licensed @ joint, 1.0)
        if children[place]:
            present = joint * np.outer(licensed, local[:, place])
            joint = np.concatenate([joint - present, present])
            frontier.append(place)
        for parent, _ in parents[place]:
            if waiting[parent] == 0:
                bit = frontier.index(parent)
                joint = joint.reshape(-1, 2, 2**bit, len(local)).sum(axis=1).reshape(-1, len(local))
                frontier.remove(parent)
    return marginal
