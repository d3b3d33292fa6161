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

from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.core.contracts.tables.rubrics import Dropped
from rubricflow.tasks.rewards.graph.subject import Pair, allowed

STRENGTH: Mapping[Relation | None, int] = {None: -1} | {name: rank for rank, name in enumerate(get_args(Relation))}
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
    place = {name: number for number, name in enumerate(roles)}
    checked = [proposal if proposal.dropped else _valid(proposal, roles) for proposal in proposals]
    order = sorted(range(len(checked)), key=lambda number: _strength(checked[number], place))
    reached = _Reached(len(place))
    kept_graph: nx.DiGraph[str] = nx.DiGraph()
    for number in order:
        proposal = checked[number]
        if proposal.dropped:
            continue
        if kept_graph.has_edge(*proposal.pair):
            detail = _also(proposal, "a stronger one of this pair is kept")
            checked[number] = replace(proposal, dropped="duplicate", detail=detail)
        elif reached.leads(place[proposal.child], place[proposal.parent]):
            path: Sequence[str] = nx.shortest_path(kept_graph, proposal.child, proposal.parent)
            detail = _also(proposal, f"the weakest of the circle {' → '.join([*path, proposal.child])}")
            checked[number] = replace(proposal, dropped="cycle", detail=detail)
        else:
            kept_graph.add_edge(*proposal.pair)
            reached.add(place[proposal.parent], place[proposal.child])
    return tuple(sorted(checked, key=lambda proposal: _in_order(proposal, place)))


class _Reached:
    """Which criterion leads to which in a growing acyclic graph; sets of places are the bits of integers."""

    def __init__(self, size: int) -> None:
        self._below = [1 << criterion for criterion in range(size)]
        self._above = [1 << criterion for criterion in range(size)]

    def leads(self, start: int, end: int) -> bool:
        """Whether there is a path; every criterion leads to itself."""
        return bool(self._below[start] >> end & 1)

    def add(self, parent: int, child: int) -> None:
        """Add an edge; only what was not reached before is looked at."""
        below, above = self._below[child], self._above[parent]
        newly_below, newly_above = below & ~self._below[parent], above & ~self._above[child]
        for criterion in _bits(newly_above):
            self._below[criterion] |= below
        for criterion in _bits(newly_below):
            self._above[criterion] |= above


def _bits(places: int) -> list[int]:
    bits = []
    while places:
        lowest = places & -places
        bits.append(lowest.bit_length() - 1)
        places ^= lowest
    return bits


def _valid(proposal: EdgeProposal, roles: Mapping[str, Role]) -> EdgeProposal:
    """The proposal, dropped where it breaks a rule. Roles bind the annotator alone: they guide what it proposes."""
    if unknown := [name for name in proposal.pair if name not in roles]:
        return replace(
            proposal, dropped="unknown_criterion", detail=_also(proposal, f"there is no criterion '{unknown[0]}'")
        )
    if proposal.parent == proposal.child:
        return replace(proposal, dropped="itself", detail=_also(proposal, "no criterion licenses itself"))
    if proposal.source == "annotator" and proposal.relation not in allowed(roles, proposal.pair):
        rule = f"{roles[proposal.parent]} → {roles[proposal.child]} allows no {proposal.relation}"
        return replace(proposal, dropped="roles", detail=_also(proposal, rule))
    return proposal


def _strength(proposal: EdgeProposal, place: Mapping[str, int]) -> tuple[object, ...]:
    """Sorts the strongest first."""
    sure = 1.0 if proposal.confidence is None else proposal.confidence
    return proposal.source != "vote", -STRENGTH[proposal.relation], -sure, *_in_order(proposal, place)


def _in_order(proposal: EdgeProposal, place: Mapping[str, int]) -> tuple[object, ...]:
    """Sorts by candidate order, unknown criteria last; of one pair the kept and then the strongest first."""
    places = [place.get(name, len(place)) for name in proposal.pair]
    return (
        *places,
        *proposal.pair,
        proposal.dropped is not None,
        -STRENGTH[proposal.relation],
        proposal.source,
        -(proposal.confidence or 0),
    )


def _also(proposal: EdgeProposal, detail: str) -> str:
    return f"{proposal.detail}; {detail}" if proposal.detail else detail
