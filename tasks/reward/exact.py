"""Exact marginals of a rubric graph (GEAR, Eqs. 7-10), by eliminating criteria edge by edge.

A criterion holds where its own score p does and every edge into it lets it: always where the parent holds, else with
probability λ, all independently: z_i = b_i Π (z_j or b_ji) with b_i ~ p_i and b_ji ~ λ_ji. That is Eq. 7, taken apart
into edges. Nothing is observed, so one sweep is enough. It holds the joint distribution of the criteria whose edges
have acted in part, lets one edge after the other act on it, reads a criterion's marginal when the last edge into it has
acted and sums the criterion out when the last from it has. Time and memory grow with 2 to the criteria held together,
not with those of the rubric: a tree of any size needs few.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tasks.contracts.errors import ContractError
from tasks.reward.wire import Shorts, Wired
from tasks.stats.arrays import Floats, Ints

MOST = 18
"""Criteria that may be held together: 2^18 probabilities are 2 MiB for one response."""
CHUNK_BYTES = 2**24
"""Probabilities held at a time, but for a few copies."""


class TooWide(ContractError):
    """A graph whose exact marginals would take too much memory and time."""


def exact_marginals(wired: Wired, local: Floats) -> Floats:
    """P(z = 1) of every criterion, where z_i is 1 with probability p_i Π_{j∈Pa(i)} (z_j + (1 − z_j) λ_ji).

    local: (n, k) local scores p in [0, 1]. Gives (n, k) in [0, p]. TooWide where more than MOST criteria would have to
    be held together by the order found, which need not be the best there is.
    """
    edges, width = _elimination(wired)
    local = np.asarray(local, dtype=np.float64)
    rows = max(1, CHUNK_BYTES // (8 * 2**width))
    chunks = [_sweep(wired, edges, local[at : at + rows]) for at in range(0, len(local), rows)]
    return np.concatenate([local[:0], *chunks])


def check_widths(wired: Iterable[Wired]) -> None:
    """TooWide where a rubric's graph does not allow exact marginals."""
    for one in wired:
        _elimination(one)


def _elimination(wired: Wired) -> tuple[list[int], int]:
    """The edges in the order in which they act, and the most criteria that are held together then.

    An edge can act once all edges into its parent have. Next is the one that leaves the fewest criteria held; among
    equals the one that adds the fewest, then the one whose child waits for the fewest others, then the one whose parent
    was taken up last, then the first.
    """
    parent, child = wired.parent.tolist(), wired.child.tolist()
    into, out = _degrees(wired)
    held: list[int] = []
    left = set(range(len(parent)))
    order: list[int] = []
    width = 0

    def added(edge: int) -> list[int]:
        return [place for place in (parent[edge], child[edge]) if place not in held]

    def dropped(edge: int) -> list[int]:
        done = [parent[edge]] if out[parent[edge]] == 1 else []
        return [*done, child[edge]] if into[child[edge]] == 1 and out[child[edge]] == 0 else done

    def cost(edge: int) -> tuple[int, int, int, int, int]:
        grown, taken = len(added(edge)), held.index(parent[edge]) if parent[edge] in held else -1
        return grown - len(dropped(edge)), grown, int(into[child[edge]]), -taken, edge

    while left:
        edge = min((one for one in left if into[parent[one]] == 0), key=cost)
        done = dropped(edge)
        held += added(edge)
        width = max(width, len(held))
        if width > MOST:
            raise TooWide(
                f"rubric '{wired.rubric_id}': exact inference would hold {width} of its criteria together, more than "
                f"{MOST}; the topological update has no such bound"
            )
        held = [place for place in held if place not in done]
        out[parent[edge]] -= 1
        into[child[edge]] -= 1
        left.remove(edge)
        order.append(edge)
    return order, width


def _degrees(wired: Wired) -> tuple[Ints, Ints]:
    """How many edges come into each criterion, and how many leave it."""

    def counts(ends: Shorts) -> Ints:
        return np.bincount(ends, minlength=len(wired.criteria))

    return counts(wired.child), counts(wired.parent)


def _sweep(wired: Wired, edges: list[int], local: Floats) -> Floats:
    """Marginals of a chunk. The joint distribution has one axis of 0 and 1 for each criterion held, and the responses
    as its last."""
    into, out = _degrees(wired)
    marginal = local.copy()
    held: list[int] = []
    joint = np.ones(len(local))

    def where(states: dict[int, int]) -> tuple[int | slice, ...]:
        return tuple(states.get(place, slice(None)) for place in held)

    for parent, child, kept in zip(
        wired.parent[edges].tolist(), wired.child[edges].tolist(), wired.retention[edges].tolist(), strict=True
    ):
        for place in (parent, child):
            if place not in held:
                held.insert(0, place)
                joint = np.stack([joint * (1.0 - local[:, place]), joint * local[:, place]])
        suppressed = (1.0 - kept) * joint[where({parent: 0, child: 1})]
        joint[where({parent: 0, child: 1})] -= suppressed
        joint[where({parent: 0, child: 0})] += suppressed
        out[parent] -= 1
        into[child] -= 1
        if into[child] == 0:
            present = joint[where({child: 1})].reshape(-1, len(local)).sum(axis=0)
            marginal[:, child] = np.minimum(present, local[:, child])  # a sum may exceed it by a rounding
        for place in (parent, child):
            if into[place] == 0 and out[place] == 0:
                joint = joint.sum(axis=held.index(place))
                held.remove(place)
    return marginal
