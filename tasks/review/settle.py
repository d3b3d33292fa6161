"""Final labels: what annotators, votes and adjudications come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.contracts.errors import ContractError
from tasks.contracts.schema import conform, schema
from tasks.contracts.tables.people import Labels, Settled
from tasks.review.cells import NO_LEVEL, CellLabels, Cells
from tasks.review.ledger import CANNOT_BE_JUDGED, Stored
from tasks.review.subject import Standing, Subject, subject_of
from tasks.stats.arrays import Floats, Ints


@dataclass(frozen=True)
class SettledOutcome:
    """What people's acts on one subject come to."""

    value: float | None
    """The level or score; None where it is open or cannot be judged."""
    settled_by: Settled


@dataclass(frozen=True)
class Conflict:
    """A subject that waits for an adjudicator."""

    subject: Subject
    votes: tuple[Stored, ...]
    """In their order."""


def outcomes(standing: Standing) -> dict[Subject, SettledOutcome]:
    """Every subject that people spoke on → what that comes to.

    The last adjudication settles it. Without one, so do votes of which more than half are equal; otherwise it is open.
    """
    found = {on: _voted([_said(act) for act in votes]) for on, votes in _by_subject(standing.votes).items()}
    for act in standing.adjudications:
        found[subject_of(act)] = _outcome(_said(act), "discussion")
    return found


def conflicts(standing: Standing) -> list[Conflict]:
    """Subjects whose votes settle nothing and that nobody has adjudicated, in the order of their first vote."""
    settled = outcomes(standing)
    groups = _by_subject(standing.votes)
    return [Conflict(on, tuple(votes)) for on, votes in groups.items() if settled[on].settled_by == "open"]


def settle(cells: Cells, annotators: Sequence[CellLabels], standing: Standing) -> pa.Table:
    """Table `labels`, a row for every cell. Where people spoke, `outcomes` holds; elsewhere the level that all
    annotators give; otherwise the label is open.

    ContractError where a vote says a level off its concept's scale.
    """
    spoken = {on: outcome for on, outcome in outcomes(standing).items() if on[1] is not None}
    acts = sorted(
        (a for a in (*standing.votes, *standing.adjudications) if a.criterion_id is not None), key=lambda a: a.number
    )
    cell_of = _cells_of(cells, acts)
    agreed = np.logical_and.reduce([one.level == annotators[0].level for one in annotators])
    level = np.where(agreed, annotators[0].level, NO_LEVEL)
    settled_by = np.where(level >= 0, "annotators", "open").astype(object)
    for on, outcome in spoken.items():
        cell = cell_of[on]
        level[cell] = NO_LEVEL if outcome.value is None else int(outcome.value)
        settled_by[cell] = outcome.settled_by
    found = {
        "response_id": pa.array(cells.responses, pa.string()).take(pa.array(cells.response)),
        "criterion_id": pa.array(cells.criteria, pa.string()).take(pa.array(cells.criterion)),
        "level": pa.array(level, mask=level == NO_LEVEL),
        "settled_by": pa.array(settled_by, pa.string()),
        "history": _history(cells, annotators, acts, cell_of),
    }
    return conform(Labels, pa.table(found))


def vote_rows(standing: Standing) -> list[dict[str, Any]]:
    """Rows of table `votes`: the acts that count, in their order."""
    return [
        {
            "subject_kind": act.subject_kind,
            "subject": ":".join(part for part in subject_of(act) if part is not None),
            "value": act.value,
            "rater_id": act.rater_id,
            "voted_at": act.at.isoformat(),
            "comment": act.comment,
            "role": "vote" if act.kind == "vote" else "adjudication",
            "blind": act.blind,
        }
        for act in _in_order(standing)
    ]


def _in_order(standing: Standing) -> list[Stored]:
    return sorted((*standing.votes, *standing.adjudications), key=lambda act: act.number)


def _by_subject(votes: Iterable[Stored]) -> dict[Subject, list[Stored]]:
    found: dict[Subject, list[Stored]] = {}
    for act in votes:
        found.setdefault(subject_of(act), []).append(act)
    return found


def _voted(values: Sequence[float | None]) -> SettledOutcome:
    (first, most), *others = Counter(values).most_common()
    if 2 * most <= len(values):
        return SettledOutcome(None, "open")
    return _outcome(first, "majority" if others else "agreed_votes" if most > 1 else "one_vote")


def _outcome(value: float | None, settled_by: Settled) -> SettledOutcome:
    return SettledOutcome(value, "cannot_be_judged" if value is None else settled_by)


def _said(act: Stored) -> float | None:
    """The level or score of a vote or an adjudication; None where the case cannot be judged."""
    return None if act.value in (None, CANNOT_BE_JUDGED) else float(act.value)


def _cells_of(cells: Cells, acts: Sequence[Stored]) -> dict[Subject, int]:
    """The cell of each subject; ContractError where an act is about none, or says a level off its scale."""
    responses, criteria = _texts(act.response_id for act in acts), _texts(act.criterion_id for act in acts)
    places = cells.find(pa.chunked_array([responses]), pa.chunked_array([criteria])).tolist()
    for act, cell in zip(acts, places, strict=True):
        if cell < 0 or (_said(act) or 0) > cells.top[cell]:
            rule = f"says {act.value} of {act.criterion_id} of response {act.response_id}, which is no level of it"
            raise ContractError(f"the vote of {act.rater_id} {rule}")
    return {subject_of(act): cell for act, cell in zip(acts, places, strict=True)}


def _history(
    cells: Cells, annotators: Sequence[CellLabels], acts: Sequence[Stored], cell_of: Mapping[Subject, int]
) -> pa.Array:
    """A list of steps for every cell: the annotators in their order, then people in theirs."""
    m, n = len(cells.top), len(annotators)
    cell = np.concatenate([np.repeat(np.arange(m), n), np.array([cell_of[subject_of(act)] for act in acts], np.int64)])
    order = np.argsort(cell, kind="stable")
    levels: Ints = np.stack([one.level for one in annotators], axis=1).ravel()
    people: Floats = np.array([_said(act) for act in acts], float)
    kinds = _texts("vote" if act.kind == "vote" else "adjudication" for act in acts)
    silent = pa.nulls(m * n, pa.string())
    step = schema(Labels).field("history").type.value_type
    columns = {
        "who": [pa.array([one.rater_id for one in annotators] * m, pa.string()), _texts(act.rater_id for act in acts)],
        "kind": [pa.repeat("annotator", m * n), kinds],
        "level": [pa.array(levels, mask=levels == NO_LEVEL), pa.array(people, mask=np.isnan(people)).cast(pa.int64())],
        "at": [silent, _texts(act.at.isoformat() for act in acts)],
        "comment": [silent, _texts(act.comment for act in acts)],
    }
    steps = pa.StructArray.from_arrays([pa.concat_arrays(columns[field.name]) for field in step], fields=list(step))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=m))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), steps.take(pa.array(order)))


def _texts(values: Iterable[str | None]) -> pa.Array:
    return pa.array(list(values), pa.string())
