"""The table `settled_scores`: what people have said of a graded run's scores, each with how it came about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.people import SettledScores
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import score_texts
from rubricflow.tasks.people.review.ledger import Stored, acts_of
from rubricflow.tasks.people.review.marks import (
    HistoryEntry,
    ScoreInData,
    keep_marks,
    marks_of,
    notes_of,
    people_of,
    scores_in_data,
)
from rubricflow.tasks.people.review.settle import SettledOutcome, outcomes, value_of
from rubricflow.tasks.people.review.subject import Standing, Subject, digest, standing
from rubricflow.tasks.people.review.tables import rubrics

STAGE = "settle"
TOLERANCE = 1e-9


@dataclass(frozen=True)
class SpokenScore:
    """What is known of one answer's score."""

    response_id: str
    prediction: Mapping[str, Any]
    """Of the row of `predictions`: rater_id, score, route_reason."""
    data: ScoreInData
    acts: Sequence[Stored]
    """Votes on the score and adjudications of it, in their order, those among it before which a mark goes."""
    outcome: SettledOutcome | None
    """What those that count come to; None where there are none."""
    levels: Mapping[str, int]
    note: Stored | None


def keep_settled_scores(run: Run, study: str, target: str | None = None, keep: bool = False) -> int:
    """Write the table anew from the ledger and the data of a graded run, where that changes it.

    target: of people's scores in the data, the one that counts (`evaluation.target`); None where they are no decisions.
    keep: whether the run is of the data as they are now, so that the ledger takes note of marks that have changed.
    Returns how many votes do not count any more, because the answer or its scale has changed since.
    """
    if not run.done("calibrate", "all"):
        return 0
    people, words, root = people_of(run), notes_of(run), run.warehouse.root
    if keep and target is not None:
        keep_marks(run, study, people, words)
    in_data = scores_in_data(people, words, marks_of(root, study) if target is not None else (), target)
    acts = acts_of(root, study)
    texts, scales, bundles = _subjects(run, {act.response_id for act in acts})
    # What an act must have been about to count
    digests: dict[Subject, str] = {}
    for name, text in texts.items():
        digests[name, None] = digest(text, "", score_texts(scales[name]))
        for criterion in bundles[name].criteria:
            digests[name, criterion.id] = digest(text, criterion.text, criterion.levels)
    counted = standing(acts, digests, {name: said.marked_at for name, said in in_data.items()})
    # ContractError for a vote on a score that its scale does not have.
    for act in (*counted.votes, *counted.adjudications):
        score = value_of(act)
        if act.criterion_id is not None or score is None:
            continue
        scale = scales[act.response_id]
        steps = (score - scale.min) / scale.step
        if not -TOLERANCE <= steps <= scale.levels - 1 + TOLERANCE or abs(steps - round(steps)) > TOLERANCE:
            rule = f"says {act.value} of response {act.response_id}, which is no score of its scale"
            raise ContractError(f"the vote of {act.rater_id} {rule}")
    rows = settled_scores(_spoken_scores(run, counted, in_data))
    if rows or run.done(STAGE, "all"):
        _commit(run, rows)
    return len(counted.stale)


def settled_scores(answers: Iterable[SpokenScore]) -> list[dict[str, Any]]:
    """Rows of `settled_scores`. Votes that count come before scores that the data hold."""
    return [_row(answer) for answer in answers]


def _row(answer: SpokenScore) -> dict[str, Any]:
    data, note = answer.data, answer.note
    settled = answer.outcome or SettledOutcome(data.score, data.settled_by)
    machine = answer.prediction
    reason = None if data.marks else ROUTE_REASONS.get(machine["route_reason"])
    first = HistoryEntry(0, _step(machine["rater_id"], "machine", machine["score"], comment=reason))
    steps = list(data.steps)
    for act in answer.acts:
        kind = "vote" if act.kind == "vote" else "adjudication"
        steps.append(
            HistoryEntry(act.number, _step(act.rater_id, kind, value_of(act), act.stored_at.isoformat(), act.comment))
        )
    from_page = note is not None and (data.note is None or note.number > data.noted_at)
    return {
        "response_id": answer.response_id,
        "score": settled.value,
        "settled_by": settled.settled_by,
        "levels": dict(answer.levels),
        "note": note.comment if note is not None and from_page else data.note,
        "history": [told.step for told in (first, *sorted(steps, key=lambda told: told.number))],
        "marks": data.marks or None,
    }


def _step(
    rater_id: str, kind: str, score: float | None, time: str | None = None, comment: str | None = None
) -> dict[str, Any]:
    return {"who": rater_id, "kind": kind, "score": score, "at": time, "comment": comment}


def _spoken_scores(run: Run, counted: Standing, in_data: Mapping[str, ScoreInData]) -> Iterable[SpokenScore]:
    """The answers that people said something of, in the order of their ids."""
    notes = {note.response_id: note for note in counted.notes}
    acts = _score_acts(counted)
    results = outcomes(counted)
    levels = _levels(results)
    names = sorted({*in_data, *notes, *acts})
    mine = ds.field("response_id").isin(pa.array(names, pa.string()))
    columns = ["response_id", "rater_id", "score", "route_reason"]
    for prediction in run.read(run.ref(Predictions, "calibrate"), columns, mine).to_pylist():
        name = prediction["response_id"]
        yield SpokenScore(
            response_id=name,
            prediction=prediction,
            data=in_data.get(name, ScoreInData()),
            acts=acts.get(name, []),
            outcome=results.get((name, None)),
            levels=levels.get(name, {}),
            note=notes.get(name),
        )


def _levels(results: Mapping[Subject, SettledOutcome]) -> dict[str, dict[str, int]]:
    """Answer → criterion → the level that people settled on."""
    levels: dict[str, dict[str, int]] = {}
    for (name, criterion), outcome in results.items():
        if criterion is not None and outcome.value is not None:
            levels.setdefault(name, {})[criterion] = int(outcome.value)
    return levels


def _score_acts(counted: Standing) -> dict[str, list[Stored]]:
    """Answer → the votes on its score and the adjudications of it, in their order."""
    acts: dict[str, list[Stored]] = {}
    every = (*counted.votes, *counted.adjudications, *counted.overtaken)
    for act in sorted(every, key=lambda act: act.number):
        if act.criterion_id is None:
            acts.setdefault(act.response_id, []).append(act)
    return acts


def _subjects(run: Run, names: set[str]) -> tuple[dict[str, str], dict[str, Scale], dict[str, Bundle]]:
    """Text, scale and bundle of each answer that somebody spoke of and the run holds."""
    responses = run.ref(Responses, "ingest")
    locked, rubric_of = rubrics(run, run.ref(Items, "ingest"), responses, run.ref(Bundles, "lock"))
    mine = ds.field("response_id").isin(pa.array(sorted(names), pa.string()))
    rows = run.read(responses, ["response_id", "text"], mine).to_pylist()
    texts = {row["response_id"]: row["text"] for row in rows}
    bundles = {name: locked[rubric_of[name]] for name in texts}
    return texts, {name: bundle.scale for name, bundle in bundles.items()}, bundles


def _commit(run: Run, rows: list[dict[str, Any]]) -> None:
    """A table that says the same already is not touched: a run that cannot be written to can then still be read."""
    table = conform(SettledScores, rows)
    if run.done(STAGE, "all") and run.read(run.ref(SettledScores, STAGE)).equals(table):
        return
    run.commit(STAGE, "all", {SettledScores: table})
