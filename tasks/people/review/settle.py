"""Final labels: what annotators, votes and adjudications come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.people import Labels, ScoreSettled, Settled
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.people.review.cells import NO_LEVEL, CellLabels, Cells
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, Stored
from rubricflow.tasks.people.review.subject import Standing, Subject, subject_of


@dataclass(frozen=True)
class SettledOutcome:
    """What people's acts on one subject come to."""

    value: float | None
    """The level or score; None where it is open or cannot be judged."""
    settled_by: Settled | ScoreSettled | None


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
    settled = {subject: _voted(list(map(value_of, votes))) for subject, votes in _by_subject(standing.votes).items()}
    for act in standing.adjudications:
        settled[subject_of(act)] = _outcome(value_of(act), "discussion")
    return settled


def conflicts(standing: Standing) -> list[Conflict]:
    """Subjects whose votes settle nothing and that nobody has adjudicated, in the order of their first vote."""
    settled = outcomes(standing)
    groups = _by_subject(standing.votes)
    open_groups = [(subject, votes) for subject, votes in groups.items() if settled[subject].settled_by == "open"]
    return [Conflict(subject, tuple(votes)) for subject, votes in open_groups]


def settle(cells: Cells, annotators: Sequence[CellLabels], standing: Standing) -> pa.Table:
    """Table `labels`, a row for every cell. Where people spoke, `outcomes` holds; elsewhere the level that all
    annotators give; otherwise the label is open.

    ContractError where a vote says a level off its concept's scale.
    """
    acts = [act for act in _in_order(standing) if act.criterion_id is not None]
    cell_of = _cells_of(cells, acts)
    agreed = np.logical_and.reduce([annotator.level == annotators[0].level for annotator in annotators])
    level = np.where(agreed, annotators[0].level, NO_LEVEL)
    settled_by = np.where(level >= 0, "annotators", "open").astype(object)
    for subject, outcome in outcomes(standing).items():
        if subject in cell_of:
            cell = cell_of[subject]
            level[cell] = NO_LEVEL if outcome.value is None else int(outcome.value)
            settled_by[cell] = outcome.settled_by
    history = _history(cells, annotators, acts, cell_of)
    columns = {
        "response_id": _texts(cells.responses).take(pa.array(cells.response)),
        "criterion_id": _texts(cells.criteria).take(pa.array(cells.criterion)),
        "level": pa.array(level, mask=level == NO_LEVEL),
        "settled_by": pa.array(settled_by, pa.string()),
        "history": history,
    }
    return conform(Labels, pa.table(columns))


def vote_rows(standing: Standing) -> list[dict[str, Any]]:
    """Rows of table `votes`: the acts that count, in their order."""
    return [_vote_row(act) for act in _in_order(standing)]


def _vote_row(act: Stored) -> dict[str, Any]:
    return {
        "subject_kind": act.subject_kind,
        "subject": ":".join(part for part in subject_of(act) if part is not None),
        "value": act.value,
        "rater_id": act.rater_id,
        "voted_at": act.stored_at.isoformat(),
        "comment": act.comment,
        "role": "vote" if act.kind == "vote" else "adjudication",
        "blind": act.blind,
    }


def _in_order(standing: Standing) -> list[Stored]:
    return sorted((*standing.votes, *standing.adjudications), key=lambda act: act.number)


def _by_subject(votes: Iterable[Stored]) -> dict[Subject, list[Stored]]:
    groups: dict[Subject, list[Stored]] = {}
    for act in votes:
        groups.setdefault(subject_of(act), []).append(act)
    return groups


def _voted(values: Sequence[float | None]) -> SettledOutcome:
    (first, most), *others = Counter(values).most_common()
    if 2 * most <= len(values):
        return SettledOutcome(None, "open")
    if others:
        return _outcome(first, "majority")
    return _outcome(first, "agreed_votes" if most > 1 else "one_vote")


def _outcome(value: float | None, settled_by: Settled) -> SettledOutcome:
    return SettledOutcome(value, "cannot_be_judged" if value is None else settled_by)


def value_of(act: Stored) -> float | None:
    """The level or score of a vote or an adjudication; None where the case cannot be judged."""
    return None if act.value in (None, CANNOT_BE_JUDGED) else float(act.value)


def _cells_of(cells: Cells, acts: Sequence[Stored]) -> dict[Subject, int]:
    """The cell of each subject; ContractError where an act is about none, or says a level off its scale."""
    responses, criteria = _texts(act.response_id for act in acts), _texts(act.criterion_id for act in acts)
    places = cells.find(pa.chunked_array([responses]), pa.chunked_array([criteria])).tolist()
    for act, cell in zip(acts, places, strict=True):
        if cell < 0 or (value_of(act) or 0) > cells.top[cell]:
            rule = f"says {act.value} of {act.criterion_id} of response {act.response_id}, which is no level of it"
            raise ContractError(f"the vote of {act.rater_id} {rule}")
    return {subject_of(act): cell for act, cell in zip(acts, places, strict=True)}


def _history(
    cells: Cells, annotators: Sequence[CellLabels], acts: Sequence[Stored], cell_of: Mapping[Subject, int]
) -> pa.Array:
    """A list of steps for every cell: the annotators in their order, then people in theirs."""
    count = len(cells.top)
    of_annotators = np.repeat(np.arange(count), len(annotators))
    of_people = np.array([cell_of[subject_of(act)] for act in acts], np.int64)
    cell = np.concatenate([of_annotators, of_people])
    # The columns of the annotators' steps for `count` cells, cell by cell.
    levels: Ints = np.stack([annotator.level for annotator in annotators], axis=1).ravel()
    silent = pa.nulls(len(levels), pa.string())
    annotator_steps = {
        "who": _texts([annotator.rater_id for annotator in annotators] * count),
        "kind": pa.repeat("annotator", len(levels)),
        "level": pa.array(levels, mask=levels == NO_LEVEL),
        "at": silent,
        "comment": silent,
    }
    first, second = annotator_steps, _act_steps(acts)
    step = schema(Labels).field("history").type.value_type
    arrays = [pa.concat_arrays([first[field.name], second[field.name]]) for field in step]
    steps = pa.StructArray.from_arrays(arrays, fields=list(step))
    order = np.argsort(cell, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=count))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), steps.take(pa.array(order)))


def _act_steps(acts: Sequence[Stored]) -> dict[str, pa.Array]:
    """The columns of people's steps, in their order."""
    levels: Floats = np.array([value_of(act) for act in acts], float)
    kinds = ["vote" if act.kind == "vote" else "adjudication" for act in acts]
    return {
        "who": _texts(act.rater_id for act in acts),
        "kind": _texts(kinds),
        "level": pa.array(levels, mask=np.isnan(levels)).cast(pa.int64()),
        "at": _texts(act.stored_at.isoformat() for act in acts),
        "comment": _texts(act.comment for act in acts),
    }


def _texts(values: Iterable[str | None]) -> pa.Array:
    return pa.array(list(values), pa.string())
