"""Proposed edges → an acyclic graph, with the reason for every edge that is not in it (GEAR, appendix A.5).

The rule for circles is ours, since the paper states none: of the edges of a circle the one of the weakest type goes
(weak before strong prerequisite before activation), among these the one of lowest confidence, among these the last in
candidate order; an edge that people voted for goes last of all. So edges enter from the strongest to the weakest, and
one that would close a circle with those already in is the weakest of that circle and stays out. Every edge that stays
out closes a circle with kept ones, and nothing is lost of a graph without circles.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import networkx as nx

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.core.contracts.tables.rubrics import Dropped
from rubricflow.tasks.core.store.cells import need, quoted, text_or_none
from rubricflow.tasks.core.store.source import chunks
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair, allowed

STRENGTH: Mapping[Relation | None, int] = {None: -1} | {name: rank for rank, name in enumerate(get_args(Relation))}
"""weak < strong < activation."""


@dataclass(frozen=True)
class EdgeProposal:
    """A proposed edge, or a pair without any usable answer."""

    parent: str
    child: str
    relation: Relation | None
    """Null only where it is dropped."""
    confidence: float | None = None
    """In [0, 1]; null, where the annotator does not say, counts as 1."""
    source: Literal["annotator", "vote", "authored", "stated"] = "annotator"
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

    def strongest_first(proposal: EdgeProposal) -> tuple[object, ...]:
        sure = 1.0 if proposal.confidence is None else proposal.confidence
        return proposal.source != "vote", -STRENGTH[proposal.relation], -sure, *_in_order(proposal, place)

    checked = [proposal if proposal.dropped else _valid(proposal, roles) for proposal in proposals]
    checked.sort(key=strongest_first)
    kept_graph: nx.DiGraph[str] = nx.DiGraph()
    below = {name: {name} for name in roles}  # itself, and all that kept edges lead to
    for number, proposal in enumerate(checked):
        if proposal.dropped:
            continue
        if kept_graph.has_edge(*proposal.pair):
            checked[number] = _dropped(proposal, "duplicate", "a stronger one of this pair is kept")
        elif proposal.parent in below[proposal.child]:
            path: Sequence[str] = nx.shortest_path(kept_graph, proposal.child, proposal.parent)
            circle = " → ".join([*path, proposal.child])
            checked[number] = _dropped(proposal, "cycle", f"the weakest of the circle {circle}")
        else:
            kept_graph.add_edge(*proposal.pair)
            if proposal.child not in below[proposal.parent]:
                for reached in below.values():
                    if proposal.parent in reached:
                        reached |= below[proposal.child]
    return tuple(sorted(checked, key=lambda proposal: _in_order(proposal, place)))


def _valid(proposal: EdgeProposal, roles: Mapping[str, Role]) -> EdgeProposal:
    """The proposal, dropped where it breaks a rule. Roles bind the annotator alone: they guide what it proposes."""
    if unknown := [name for name in proposal.pair if name not in roles]:
        return _dropped(proposal, "unknown_criterion", f"there is no criterion '{unknown[0]}'")
    if proposal.parent == proposal.child:
        return _dropped(proposal, "itself", "no criterion licenses itself")
    if proposal.source == "annotator" and proposal.relation not in allowed(roles, proposal.pair):
        rule = f"{roles[proposal.parent]} → {roles[proposal.child]} allows no {proposal.relation}"
        return _dropped(proposal, "roles", rule)
    return proposal


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


def _dropped(proposal: EdgeProposal, why: Dropped, detail: str) -> EdgeProposal:
    return replace(proposal, dropped=why, detail=f"{proposal.detail}; {detail}" if proposal.detail else detail)


NONE = "none"
COLUMNS = ("subject_kind", "rubric_id", "value", "rater_id", "voted_at")
"""Besides these criterion_id for votes on roles, parent and child for votes on edges, and a comment."""
_VALUES: dict[str, tuple[str, ...]] = {"graph_role": get_args(Role), "graph_edge": (*get_args(Relation), NONE)}


class Vote(NamedTuple):
    """One row of the table."""

    rubric_id: str
    on: tuple[str, ...]
    """(criterion,) for a role, (parent, child) for an edge."""
    value: str
    """The role or relation voted for; 'none' for no edge."""
    rater_id: str
    voted_at: datetime
    comment: str | None

    @property
    def row(self) -> Record:
        """As a row of table `votes`."""
        return {
            "subject_kind": "graph_role" if len(self.on) == 1 else "graph_edge",
            "subject": f"{self.rubric_id}:{'→'.join(self.on)}",
            "value": self.value,
            "rater_id": self.rater_id,
            "voted_at": self.voted_at.isoformat(),
            "comment": self.comment,
            "role": None,
            "blind": None,
        }


class VoteOutcome(NamedTuple):
    """What the votes on one subject come to."""

    value: str | None
    """What most say; None for a tie."""
    detail: str
    """The count in words."""


Ballot = Mapping[tuple[str, ...], VoteOutcome]
"""(criterion,) or (parent, child) → what the votes on it come to, of one rubric."""


def read_votes(path: Path, subjects: Mapping[str, GraphSubject]) -> list[Vote]:
    """The votes of a CSV, TSV, JSONL or Parquet file in its order.

    InputError names file, row, field and rule: an unknown kind, rubric, criterion, role or relation, an edge from a
    criterion to itself, a time that is none or has no time zone, a rater who votes on one subject twice at one time.
    """
    votes = []
    seen: dict[tuple[str, tuple[str, ...], str, datetime], int] = {}
    for frame in chunks(path):
        for name in COLUMNS:
            need(frame, name, path)
        for number, cells in zip(frame.index, frame.to_dict("records"), strict=True):
            row = int(number) + 1
            vote = _vote(cells, subjects, path, row)
            earlier = seen.setdefault((vote.rubric_id, vote.on, vote.rater_id, vote.voted_at), row)
            if earlier != row:
                rule = f"'{vote.rater_id}' votes on this at the same time as in row {earlier}"
                raise InputError(rule, file=path, row=row, field="voted_at")
            votes.append(vote)
    return votes


def ballots(votes: Iterable[Vote]) -> dict[str, Ballot]:
    """Rubric → what its votes come to."""
    by_subject: defaultdict[tuple[str, tuple[str, ...]], list[Vote]] = defaultdict(list)
    for vote in votes:
        by_subject[vote.rubric_id, vote.on].append(vote)
    found: defaultdict[str, dict[tuple[str, ...], VoteOutcome]] = defaultdict(dict)
    for (rubric, on), given in by_subject.items():
        found[rubric][on] = _outcome(given)
    return dict(found)


def with_votes(proposals: Sequence[EdgeProposal], ballot: Ballot) -> list[EdgeProposal]:
    """The proposals as the votes leave them: an edge that was voted for is in, with confidence 1, in place of what was
    proposed for its pair; one voted against is dropped; a tie changes nothing and is noted."""
    found = []
    for one in proposals:
        outcome = ballot.get(one.pair)
        if outcome is None:
            found.append(one)
        elif outcome.value is None:
            found.append(replace(one, detail="; ".join(filter(None, (one.detail, outcome.detail)))))
        elif outcome.value == NONE:
            found.append(replace(one, dropped="voted_out", detail=outcome.detail))
        else:
            by = f"{'author' if one.source == 'authored' else one.source}: {one.relation}"
            relation = cast(Relation, outcome.value)
            detail = f"{outcome.detail}; {by}"
            found.append(EdgeProposal(*one.pair, relation, 1.0, "vote", detail=detail))
    proposed = {one.pair for one in proposals}
    for on, (value, detail) in ballot.items():
        if len(on) == 1 or on in proposed:
            continue
        parent, child = on
        if value is None:
            detail = f"{detail}; nobody else proposes it"
            found.append(EdgeProposal(parent, child, None, source="vote", dropped="voted_out", detail=detail))
        elif value != NONE:
            found.append(EdgeProposal(parent, child, cast(Relation, value), 1.0, "vote", detail=detail))
    return found


def _outcome(votes: Iterable[Vote]) -> VoteOutcome:
    latest = {vote.rater_id: vote.value for vote in sorted(votes, key=lambda vote: vote.voted_at)}
    ranked = sorted(Counter(latest.values()).items(), key=lambda counted: (-counted[1], counted[0]))
    (first, most) = ranked[0]
    others = ranked[1:]
    if others and others[0][1] == most:
        return VoteOutcome(None, f"tied votes: {', '.join(f'{value} {count}' for value, count in ranked)}")
    return VoteOutcome(first, f"voted {first} by {most} of {len(latest)}")


def _vote(cells: Mapping[Any, Any], subjects: Mapping[str, GraphSubject], path: Path, row: int) -> Vote:
    """A row of the file."""

    def error(name: str, rule: str) -> InputError:
        return InputError(rule, file=path, row=row, field=name)

    def text(name: str) -> str:
        found = text_or_none(cells.get(name))
        if found is None:
            raise error(name, "is missing")
        return found

    kind = text("subject_kind")
    rubric_id = text("rubric_id")
    value = text("value")
    if kind not in _VALUES:
        raise error("subject_kind", f"{quoted(kind)} is none of {', '.join(_VALUES)}")
    if rubric_id not in subjects:
        raise error("rubric_id", f"there is no rubric {quoted(rubric_id)}")
    if value not in _VALUES[kind]:
        raise error("value", f"{quoted(value)} is none of {', '.join(_VALUES[kind])}")
    names = ("criterion_id",) if kind == "graph_role" else ("parent", "child")
    on = tuple(text(name) for name in names)
    for name, criterion in zip(names, on, strict=True):
        if criterion not in subjects[rubric_id].by_id:
            raise error(name, f"rubric {quoted(rubric_id)} has no criterion {quoted(criterion)}")
    if len(set(on)) < len(on):
        raise error("child", f"criterion {quoted(on[0])} cannot license itself")
    rater = text("rater_id")
    said = text("voted_at")
    try:
        voted_at = datetime.fromisoformat(said)
    except ValueError:
        raise error("voted_at", f"{quoted(said)} is no time in ISO 8601") from None
    if voted_at.tzinfo is None:
        raise error("voted_at", f"{quoted(said)} has no time zone")
    return Vote(rubric_id, on, value, rater, voted_at, text_or_none(cells.get("comment")))
