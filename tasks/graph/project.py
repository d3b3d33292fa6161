"""Proposed edges → an acyclic graph, with the reason for every edge that is not in it (GEAR, appendix A.5).

The rule for circles is ours, since the paper states none: of the edges of a circle the one of the weakest type goes
(weak before strong prerequisite before activation), among these the one of lowest confidence, among these the last in
candidate order; an edge that people voted for goes last of all. So edges enter from the strongest to the weakest, and
one that would close a circle with those already in is the weakest of that circle and stays out. Every edge that stays
out closes a circle with kept ones, and nothing is lost of a graph without circles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import networkx as nx

from tasks.contracts.graph import Relation, Role
from tasks.contracts.tables.graph import Dropped
from tasks.graph.candidates import Pair, allowed

STRENGTH: Mapping[Relation | None, int] = {None: -1} | {name: at for at, name in enumerate(get_args(Relation))}
"""weak < strong < activation."""


@dataclass(frozen=True)
class EdgeProposal:
    """An edge that somebody proposes, or a pair that nobody could say anything about."""

    parent: str
    child: str
    relation: Relation | None
    """Null only where it is dropped."""
    confidence: float | None = None
    """In [0, 1]; null, where the annotator does not say, counts as 1."""
    source: Literal["annotator", "vote", "authored"] = "annotator"
    """Who proposes it."""
    dropped: Dropped | None = None
    """Why it is not in the graph; null where it is."""
    detail: str | None = None
    """What to know about it."""

    @property
    def pair(self) -> Pair:
        """(parent, child)."""
        return self.parent, self.child


def project(roles: Mapping[str, Role], proposals: Iterable[EdgeProposal]) -> tuple[EdgeProposal, ...]:
    """All proposals in candidate order, each kept or dropped; the kept ones form an acyclic graph.

    roles: criterion → role, in the rubric's order. What is dropped already stays so. The order of the proposals plays
    no part, except that of two that are the same in everything but detail the first counts.
    """
    place = {name: at for at, name in enumerate(roles)}
    checked = [one if one.dropped else _valid(one, roles) for one in proposals]
    order = sorted(range(len(checked)), key=lambda at: _strength(checked[at], place))
    reached = _Reached(len(place))
    kept: nx.DiGraph[str] = nx.DiGraph()
    for at in order:
        one = checked[at]
        if one.dropped:
            continue
        if kept.has_edge(*one.pair):
            checked[at] = replace(one, dropped="duplicate", detail=_also(one, "a stronger one of this pair is kept"))
        elif reached.leads(place[one.child], place[one.parent]):
            checked[at] = replace(one, dropped="cycle", detail=_also(one, _circle(kept, one)))
        else:
            kept.add_edge(*one.pair)
            reached.add(place[one.parent], place[one.child])
    return tuple(sorted(checked, key=lambda one: _in_order(one, place)))


class _Reached:
    """Which criterion leads to which in a growing acyclic graph; sets of places are the bits of integers."""

    def __init__(self, size: int) -> None:
        self._below = [1 << at for at in range(size)]
        self._above = [1 << at for at in range(size)]

    def leads(self, start: int, end: int) -> bool:
        """Whether there is a path; every criterion leads to itself."""
        return bool(self._below[start] >> end & 1)

    def add(self, parent: int, child: int) -> None:
        """Add an edge; only what was not reached before is looked at."""
        below, above = self._below[child], self._above[parent]
        newly_below, newly_above = below & ~self._below[parent], above & ~self._above[child]
        for at in _bits(newly_above):
            self._below[at] |= below
        for at in _bits(newly_below):
            self._above[at] |= above


def _bits(places: int) -> list[int]:
    found = []
    while places:
        lowest = places & -places
        found.append(lowest.bit_length() - 1)
        places ^= lowest
    return found


def _valid(one: EdgeProposal, roles: Mapping[str, Role]) -> EdgeProposal:
    """The proposal, dropped where it breaks a rule. Roles bind the annotator alone: they guide what it proposes."""
    if unknown := [name for name in one.pair if name not in roles]:
        return replace(one, dropped="unknown_criterion", detail=_also(one, f"there is no criterion '{unknown[0]}'"))
    if one.parent == one.child:
        return replace(one, dropped="itself", detail=_also(one, "no criterion licenses itself"))
    if one.source == "annotator" and one.relation not in allowed(roles, one.pair):
        rule = f"{roles[one.parent]} → {roles[one.child]} allows no {one.relation}"
        return replace(one, dropped="roles", detail=_also(one, rule))
    return one


def _strength(one: EdgeProposal, place: Mapping[str, int]) -> tuple[object, ...]:
    """Sorts the strongest first."""
    sure = 1.0 if one.confidence is None else one.confidence
    return one.source != "vote", -STRENGTH[one.relation], -sure, *_in_order(one, place)


def _in_order(one: EdgeProposal, place: Mapping[str, int]) -> tuple[object, ...]:
    """Sorts by candidate order, unknown criteria last; of one pair the kept and then the strongest first."""
    known = [place.get(name, len(place)) for name in one.pair]
    return *known, *one.pair, one.dropped is not None, -STRENGTH[one.relation], one.source, -(one.confidence or 0)


def _circle(kept: nx.DiGraph[str], one: EdgeProposal) -> str:
    path: Sequence[str] = nx.shortest_path(kept, one.child, one.parent)
    return f"the weakest of the circle {' → '.join([*path, one.child])}"


def _also(one: EdgeProposal, detail: str) -> str:
    return f"{one.detail}; {detail}" if one.detail else detail
