"""What people say of roles and edges: of each rater the latest vote counts, and what most of them say holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.core.store.cells import need, quoted, text_or_none
from rubricflow.tasks.core.store.source import chunks
from rubricflow.tasks.rewards.graph.project import EdgeProposal
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair

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
    def row(self) -> dict[str, Any]:
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


@dataclass(frozen=True)
class RubricVotes:
    """The outcomes of one rubric's votes."""

    roles: Mapping[str, VoteOutcome] = field(default_factory=dict)
    edges: Mapping[Pair, VoteOutcome] = field(default_factory=dict)


def read_votes(path: Path, subjects: Mapping[str, GraphSubject]) -> list[Vote]:
    """The votes of a CSV, TSV, JSONL or Parquet file in its order.

    InputError names file, row, field and rule: an unknown kind, rubric, criterion, role or relation, an edge from a
    criterion to itself, a time that is none or has no time zone, a rater who votes on one subject twice at one time.
    """
    votes: list[Vote] = []
    seen: dict[tuple[str, tuple[str, ...], str, datetime], int] = {}
    for frame in chunks(path):
        for name in COLUMNS:
            need(frame, name, path)
        for number, cells in zip(frame.index, frame.to_dict("records"), strict=True):
            row = int(number) + 1
            vote = _vote(_Cells(path, row, cells), subjects)
            earlier = seen.setdefault((vote.rubric_id, vote.on, vote.rater_id, vote.voted_at), row)
            if earlier != row:
                rule = f"'{vote.rater_id}' votes on this at the same time as in row {earlier}"
                raise InputError(rule, file=path, row=row, field="voted_at")
            votes.append(vote)
    return votes


def ballots(votes: Iterable[Vote]) -> dict[str, RubricVotes]:
    """Rubric → what its votes come to."""
    by_subject: dict[tuple[str, tuple[str, ...]], list[Vote]] = {}
    for vote in votes:
        by_subject.setdefault((vote.rubric_id, vote.on), []).append(vote)
    found: dict[str, tuple[dict[str, VoteOutcome], dict[Pair, VoteOutcome]]] = {}
    for (rubric, on), given in by_subject.items():
        roles, edges = found.setdefault(rubric, ({}, {}))
        if len(on) == 1:
            roles[on[0]] = _outcome(given)
        else:
            edges[on[0], on[1]] = _outcome(given)
    return {rubric: RubricVotes(roles, edges) for rubric, (roles, edges) in found.items()}


def with_votes(proposals: Sequence[EdgeProposal], edges: Mapping[Pair, VoteOutcome]) -> list[EdgeProposal]:
    """The proposals as the votes leave them: an edge that was voted for is in, with confidence 1, in place of what was
    proposed for its pair; one voted against is dropped; a tie changes nothing and is told of."""
    proposed = {one.pair for one in proposals}
    found = [_voted(one, edges[one.pair]) if one.pair in edges else one for one in proposals]
    for pair, outcome in edges.items():
        if pair not in proposed and outcome.value != NONE:
            found.append(_added(pair, outcome))
    return found


def _voted(one: EdgeProposal, outcome: VoteOutcome) -> EdgeProposal:
    said = f"annotator: {one.relation or one.detail}" if one.source == "annotator" else f"author: {one.relation}"
    if outcome.value is None:
        return replace(one, detail="; ".join(filter(None, (one.detail, outcome.detail))))
    if outcome.value == NONE:
        return replace(one, dropped="voted_out", detail=outcome.detail)
    return _for(one.pair, outcome.value, f"{outcome.detail}; {said}")


def _added(pair: Pair, outcome: VoteOutcome) -> EdgeProposal:
    if outcome.value is None:
        detail = f"{outcome.detail}; nobody else proposes it"
        return EdgeProposal(*pair, None, source="vote", dropped="voted_out", detail=detail)
    return _for(pair, outcome.value, outcome.detail)


def _for(pair: Pair, value: str, detail: str) -> EdgeProposal:
    return EdgeProposal(*pair, cast(Relation, value), 1.0, "vote", detail=detail)


def _outcome(votes: Iterable[Vote]) -> VoteOutcome:
    latest = {vote.rater_id: vote.value for vote in sorted(votes, key=lambda vote: vote.voted_at)}
    ranked = sorted(Counter(latest.values()).items(), key=lambda counted: (-counted[1], counted[0]))
    (first, most), others = ranked[0], ranked[1:]
    if others and others[0][1] == most:
        return VoteOutcome(None, f"tied votes: {', '.join(f'{value} {count}' for value, count in ranked)}")
    return VoteOutcome(first, f"voted {first} by {most} of {len(latest)}")


class _Cells(NamedTuple):
    """A row of the file, and where it is."""

    path: Path
    row: int
    cells: Mapping[Any, Any]

    def text(self, name: str) -> str:
        """A cell that must say something."""
        found = text_or_none(self.cells.get(name))
        if found is None:
            raise self.error(name, "is missing")
        return found

    def error(self, name: str, rule: str) -> InputError:
        """What is wrong with a cell."""
        return InputError(rule, file=self.path, row=self.row, field=name)


def _vote(cells: _Cells, subjects: Mapping[str, GraphSubject]) -> Vote:
    kind, rubric_id, value = (cells.text(name) for name in ("subject_kind", "rubric_id", "value"))
    if kind not in _VALUES:
        raise cells.error("subject_kind", f"{quoted(kind)} is none of {', '.join(_VALUES)}")
    if rubric_id not in subjects:
        raise cells.error("rubric_id", f"there is no rubric {quoted(rubric_id)}")
    if value not in _VALUES[kind]:
        raise cells.error("value", f"{quoted(value)} is none of {', '.join(_VALUES[kind])}")
    names = ("criterion_id",) if kind == "graph_role" else ("parent", "child")
    on = tuple(cells.text(name) for name in names)
    for name, criterion in zip(names, on, strict=True):
        if criterion not in subjects[rubric_id].by_id:
            raise cells.error(name, f"rubric {quoted(rubric_id)} has no criterion {quoted(criterion)}")
    if len(set(on)) < len(on):
        raise cells.error("child", f"criterion {quoted(on[0])} cannot license itself")
    rater, comment = cells.text("rater_id"), text_or_none(cells.cells.get("comment"))
    said = cells.text("voted_at")
    try:
        found = datetime.fromisoformat(said)
    except ValueError:
        raise cells.error("voted_at", f"{quoted(said)} is no time in ISO 8601") from None
    if found.tzinfo is None:
        raise cells.error("voted_at", f"{quoted(said)} has no time zone")
    return Vote(rubric_id, on, value, rater, found, comment)
