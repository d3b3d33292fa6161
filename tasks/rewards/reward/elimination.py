"""In which order the edges of a rubric graph act, so that few criteria are held together.

An edge can act once all edges into its parent have. A criterion is taken up at its first edge, its marginal stands when
the last edge into it has acted, and it is summed out when the last from it has. What is held together costs 2 to the
criteria held: few for a tree of any size, all but one where every pair is an edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.stats.arrays import Bools, Ints

MOST = 18
"""Criteria that may be held together: 2^18 probabilities are 2 MiB."""


class Elimination(NamedTuple):
    """The order of a graph's e edges, with what happens at each. Where more than MOST criteria would be held, the order
    ends there and `width` says how many it came to."""

    edge: Ints
    """(e,) places of the edges, in the order in which they act."""
    ends: Ints
    """(e, 2) places of parent and child."""
    slots: Ints
    """(e, 2) where parent and child are held, from 0 to width - 1."""
    enters: Bools
    """(e, 2) whether each is taken up by this edge."""
    leaves: Bools
    """(e, 2) whether each is summed out after it."""
    settles: Bools
    """(e,) whether it is the last edge into its child."""
    width: int
    """Most criteria held together."""

    @property
    def is_narrow(self) -> bool:
        """Whether the order is whole."""
        return self.width <= MOST


class _Step(NamedTuple):
    """What happens at one edge; pairs are of parent and child."""

    edge: int
    ends: tuple[int, int]
    slots: tuple[int, int]
    enters: tuple[bool, bool]
    leaves: tuple[bool, bool]
    settles: bool


def eliminate(parents: NDArray[np.int32], children: NDArray[np.int32], criteria: int) -> Elimination:
    """The elimination of a graph of so many criteria. parents, children: (e,) places of each edge's ends.

    Next is the edge that leaves the fewest criteria held; among equals the one that adds the fewest, then the one whose
    child waits for the fewest others, then the one whose parent was taken up last, then the first. The order need not
    be the best there is.
    """
    state = _State(list(zip(parents.tolist(), children.tolist(), strict=True)), criteria)
    steps = []
    while state.waiting and state.width <= MOST:
        steps.append(state.act(min(state.ready(), key=state.cost)))
    edges = [step.edge for step in steps]
    ends = [step.ends for step in steps]
    slots = [step.slots for step in steps]
    enters = [step.enters for step in steps]
    leaves = [step.leaves for step in steps]
    settles = [step.settles for step in steps]
    return Elimination(
        edge=np.array(edges, dtype=np.int64),
        ends=np.array(ends, dtype=np.int64).reshape(-1, 2),
        slots=np.array(slots, dtype=np.int64).reshape(-1, 2),
        enters=np.array(enters, dtype=bool).reshape(-1, 2),
        leaves=np.array(leaves, dtype=bool).reshape(-1, 2),
        settles=np.array(settles, dtype=bool),
        width=state.width,
    )


@dataclass
class _State:
    """A graph of which some edges have acted."""

    edges: list[tuple[int, int]]
    criteria: int
    active: list[int] = field(default_factory=list)
    """Criteria that are held, in the order in which they were taken up."""
    slot_of: dict[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    """Slots that were given back."""
    width: int = 0

    def __post_init__(self) -> None:
        self.waiting = set(range(len(self.edges)))
        self.into, self.out = [0] * self.criteria, [0] * self.criteria
        for parent, child in self.edges:
            self.out[parent] += 1
            self.into[child] += 1

    def ready(self) -> list[int]:
        """The edges that can act."""
        return [edge for edge in self.waiting if self.into[self.edges[edge][0]] == 0]

    def cost(self, edge: int) -> tuple[int, int, int, int, int]:
        """What the order of the edges goes by; the least is next."""
        parent, child = self.edges[edge]
        added = (parent not in self.slot_of) + (child not in self.slot_of)
        taken_up = self.active.index(parent) if parent in self.slot_of else -1
        return added - sum(self._leaves(edge)), added, self.into[child], -taken_up, edge

    def act(self, edge: int) -> _Step:
        """Let an edge act."""
        parent, child = ends = self.edges[edge]
        leaves, settles = self._leaves(edge), self.into[child] == 1
        enters = parent not in self.slot_of, child not in self.slot_of
        for place, is_new in zip(ends, enters, strict=True):
            if is_new:
                self.slot_of[place] = self.free.pop() if self.free else len(self.active)
                self.active.append(place)
        self.width = max(self.width, len(self.active))
        slots = self.slot_of[parent], self.slot_of[child]
        self.out[parent] -= 1
        self.into[child] -= 1
        self.waiting.remove(edge)
        for place, is_done in zip(ends, leaves, strict=True):
            if is_done:
                self.active.remove(place)
                self.free.append(self.slot_of.pop(place))
        return _Step(edge, ends, slots, enters, leaves, settles)

    def _leaves(self, edge: int) -> tuple[bool, bool]:
        """Whether parent and child are done with after it."""
        parent, child = self.edges[edge]
        return self.out[parent] == 1, self.into[child] == 1 and self.out[child] == 0
