"""The table `settled_scores`: what people have said of a graded run's scores, each with how it came about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tasks.contracts.bundle import Bundle, Scale
from tasks.contracts.errors import ContractError
from tasks.contracts.schema import conform
from tasks.contracts.tables.calibration import ROUTE_REASONS, Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.people import ScoreSettled, Settled, SettledScores
from tasks.contracts.tables.rubrics import Bundles
from tasks.review.board import score_texts
from tasks.review.ledger import Stored, acts_of
from tasks.review.settle import SettledOutcome, outcomes, value_of
from tasks.review.subject import Standing, Subject, digest, standing
from tasks.review.tables import rubrics
from tasks.stats.target import FAIR
from tasks.store.warehouse import Run

STAGE = "settle"
TOLERANCE = 1e-9


@dataclass(frozen=True)
class SpokenScore:
    """What is known of one answer's score. Rows are of the tables they are named for."""

    response_id: str
    prediction: Mapping[str, Any]
    """rater_id, score, route_reason."""
    gradings: Sequence[Mapping[str, Any]]
    """Scores in the data that people had settled on: rater_id, score."""
    acts: Sequence[Stored]
    """Votes on the score and adjudications of it that count, in their order."""
    outcome: SettledOutcome | None
    """What those acts come to; None where there are none."""
    levels: Mapping[str, int]
    note: str | None


def keep_settled_scores(run: Run, study: str) -> int:
    """Write the table anew from the ledger and the data of a graded run, where that changes it.

    Returns how many votes do not count any more, because the answer or its scale has changed since.
    """
    if not run.done("calibrate", "all"):
        return 0
    acts = acts_of(run.warehouse.root, study)
    texts, scales, bundles = _subjects(run, {act.response_id for act in acts})
    # What an act must have been about to count
    digests: dict[Subject, str] = {}
    for name, text in texts.items():
        digests[name, None] = digest(text, "", score_texts(scales[name]))
        for criterion in bundles[name].criteria:
            digests[name, criterion.id] = digest(text, criterion.text, criterion.levels)
    counted = standing(acts, digests)
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
    rows = settled_scores(_spoken_scores(run, counted))
    if rows or run.done(STAGE, "all"):
        _commit(run, rows)
    return len(counted.stale)


def settled_scores(answers: Iterable[SpokenScore]) -> list[dict[str, Any]]:
    """Rows of `settled_scores`. People's votes come before scores that the data hold."""
    return [_row(answer) for answer in answers]


def _row(answer: SpokenScore) -> dict[str, Any]:
    score, settled_by = _settled(answer)
    # The steps to the last score: who gave it, as what, when and why.
    machine = answer.prediction
    reason = ROUTE_REASONS.get(machine["route_reason"])
    steps = [_step(machine["rater_id"], "machine", machine["score"], comment=reason)]
    steps += [_step(grading["rater_id"], "data", grading["score"]) for grading in answer.gradings]
    for act in answer.acts:
        kind = "vote" if act.kind == "vote" else "adjudication"
        steps.append(_step(act.rater_id, kind, value_of(act), act.stored_at.isoformat(), act.comment))
    return {
        "response_id": answer.response_id,
        "score": score,
        "settled_by": settled_by,
        "levels": dict(answer.levels),
        "note": answer.note,
        "history": steps,
    }


def _settled(answer: SpokenScore) -> tuple[float | None, ScoreSettled | Settled | None]:
    """What people settled on, and how."""
    if answer.outcome is not None:
        return answer.outcome.value, answer.outcome.settled_by
    in_data = {grading["score"] for grading in answer.gradings}
    if not in_data:
        return None, None
    return (in_data.pop(), "in_data") if len(in_data) == 1 else (None, "data_differ")


def _step(
    rater_id: str, kind: str, score: float | None, time: str | None = None, comment: str | None = None
) -> dict[str, Any]:
    return {"who": rater_id, "kind": kind, "score": score, "at": time, "comment": comment}


def _spoken_scores(run: Run, counted: Standing) -> Iterable[SpokenScore]:
    """The answers that people said something of, in the order of their ids."""
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"])
    # Scores of rater kind 'adjudication': persons had settled on them before the data came here. The fair score is an
    # estimate of ours, and nobody's decision.
    adjudicated = pc.and_(pc.equal(people["rater_kind"], "adjudication"), pc.is_valid(people["score"]))
    settled = people.filter(pc.and_(adjudicated, pc.not_equal(people["rater_id"], FAIR)))
    resolved = settled.sort_by([("response_id", "ascending"), ("rater_id", "ascending")])
    rows = resolved.to_pylist()
    in_data: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        in_data.setdefault(row["response_id"], []).append(row)
    notes = {note.response_id: note.comment for note in counted.notes}
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
            gradings=in_data.get(name, []),
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
    for act in sorted((*counted.votes, *counted.adjudications), key=lambda act: act.number):
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
