"""What waits in a run, and the board on which people see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.bottleneck import Models
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.people import NextLabels, Queue, SettledScores
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display.reasons import by_scope, marked_by, score_step
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import Board, GraderHead, MachineLabel, QueuedCase, Quote
from rubricflow.tasks.people.review.marks import marks_of, people_of, scores_in_data
from rubricflow.tasks.people.review.predicted import PredictedScore, predicted_score, score_text
from rubricflow.tasks.people.review.queue import score_queue
from rubricflow.tasks.people.review.subject import Subject
from rubricflow.tasks.people.review.tables import rubrics

_SHOWN = ((Items, "ingest"), (Responses, "ingest"), (Bundles, "lock"))
_NAME = "author_name"
"""The column of `responses` with a student's name, in versions that have it."""
_WANTED = ("response_id", "item_id", "text", "author_id", _NAME)
_OF_ANSWERS = [name for name in _WANTED if name in schema(Responses).names]


def waiting_labels(run: Run) -> list[dict[str, Any]]:
    """The queue of an annotated run, first asked first."""
    return sorted(run.read(run.ref(Queue, "queue")).to_pylist(), key=lambda row: row["rank"])


def waiting_scores(run: Run, scored: Collection[str] = ()) -> list[dict[str, Any]]:
    """The scores of a graded run that people are asked for: those that `next` proposed, then those that were not
    released, riskiest first; of the responses in `scored`, those that the run still grades; last, what people marked in
    the data, of which nobody is asked but where their marks decide nothing."""
    predictions = run.read(run.ref(Predictions, "calibrate"))
    rules = by_scope(run.read(run.ref(ReleaseRules, "calibrate")).to_pylist())
    graded = set(predictions["response_id"].to_pylist())
    on_score = {"criteria": [], "subject_kind": "score"}
    marked = [{**row, **on_score} for row in marked_scores(run)]
    decided = [row for row in marked if row["marked"]]
    cases = [row for row in marked if not row["marked"]]
    cases += [{**row, **on_score} for row in proposed(run)]
    cases += score_queue(predictions.filter(pc.invert(pc.is_in(predictions["response_id"], _names(marked)))), rules)
    known = {row["response_id"] for row in decided}
    for name in sorted(graded.intersection(scored) - known):
        cases.append({"response_id": name, **on_score, "why": "Scored by people before"})
    cases = [case for case in cases if case["response_id"] not in known] + decided
    first: dict[str, dict[str, Any]] = {}
    for case in cases:
        first.setdefault(case["response_id"], case)
    return list(first.values())


def marked_scores(run: Run) -> list[dict[str, Any]]:
    """What people marked in the data of a graded run, where their marks are decisions: response_id, why (whose marks,
    in words), marked (whether somebody need not be asked), marked_at and history as `QueuedCase` has them."""
    if not run.done("settle", "all"):
        return []
    settled = run.read(run.ref(SettledScores, "settle"), where=ds.field("marks").is_valid())
    if not len(settled):
        return []
    in_data = scores_in_data(people_of(run), {}, marks_of(run.warehouse.root, run.run_id.rpartition("-")[0]), MEAN)
    return [
        {
            "response_id": row["response_id"],
            "why": _whose(row),
            "marked": row["settled_by"] != "data_differ",
            "marked_at": in_data[row["response_id"]].marked_at,
            "history": [score_step(step) for step in row["history"]],
        }
        for row in settled.to_pylist(maps_as_pydicts="strict")
    ]


def _whose(row: Mapping[str, Any]) -> str:
    """Whose marks an answer has and, where there are several, what counts."""
    words = marked_by(row["marks"])
    counts = "which counts is open" if row["score"] is None else f"{score_text(round(row['score'], 2))} counts"
    more = f": {counts}" if len(row["marks"]) > 1 and row["settled_by"] in ("marked", "in_data", "data_differ") else ""
    return f"{words[:1].upper()}{words[1:]}{more}"


def _names(rows: list[dict[str, Any]]) -> pa.Array:
    return pa.array([row["response_id"] for row in rows], pa.string())


def proposed(run: Run) -> list[dict[str, Any]]:
    """Rows of `next_labels` of a run, first asked first; none where `next` was not asked."""
    if not run.done("next", "all"):
        return []
    return sorted(run.read(run.ref(NextLabels, "next")).to_pylist(), key=lambda row: row["rank"])


def open_board(
    run: Run, study: Study, waiting: list[dict[str, Any]], raters: Mapping[str, TableRef], taught: Run | None
) -> Board:
    """What the page shows of what waits in a run.

    raters: name → the judgments of a machine. taught: the run that trained the study's grader, if any.
    """
    items, responses, bundles = (run.ref(row, stage) for row, stage in _SHOWN)
    locked, rubric_of = rubrics(run, items, responses, bundles)
    mine = ds.field("response_id").isin([row["response_id"] for row in waiting])
    answers = {row["response_id"]: row for row in run.read(responses, _OF_ANSWERS, mine).to_pylist()}
    sheets = {row["item_id"]: row for row in run.read(items).to_pylist()}
    machine: dict[Subject, tuple[MachineLabel, ...]] = {}
    for name, ref in raters.items():
        for subject, label in _machine_labels(run, name, ref, mine):
            machine[subject] = (*machine.get(subject, ()), label)
    cases = [_case(row, answers[row["response_id"]], sheets, rubric_of) for row in waiting]
    head, estimates = _grader(taught, mine) if taught else (None, None)
    predictions = {} if study.annotation else _predictions(run, mine, locked, rubric_of)
    criteria, scales, rubric_texts = {}, {}, {}
    for name, bundle in locked.items():
        criteria[name], scales[name], rubric_texts[name] = bundle.criteria, bundle.scale, bundle.text
    return Board(
        study=study.name,
        title=study.name,
        cases=tuple(cases),
        criteria=criteria,
        scales=scales,
        machine=machine,
        grader=head,
        estimates=estimates,
        predictions=predictions,
        rubric_texts=rubric_texts,
        coverage=study.release.coverage,
    )


def _predictions(
    run: Run, mine: ds.Expression, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]
) -> dict[str, PredictedScore]:
    """Response → its calibrated score."""
    predictions = {}
    for row in run.read(run.ref(Predictions, "calibrate"), where=mine).to_pylist():
        rubric = locked[rubric_of[row["response_id"]]]
        predictions[row["response_id"]] = predicted_score(row, rubric.scale)
    return predictions


def _case(
    queued: Mapping[str, Any], answer: Mapping[str, Any], sheets: Mapping[str, Any], rubric_of: Mapping[str, str]
) -> QueuedCase:
    item = sheets[answer["item_id"]]
    # The student's name, else their id. Who labels concepts is not to know them.
    student = ((answer.get(_NAME) or "").strip() or answer["author_id"]) if queued["subject_kind"] == "score" else None
    return QueuedCase(
        response_id=queued["response_id"],
        subject_kind=queued["subject_kind"],
        rubric_id=rubric_of[queued["response_id"]],
        why=queued["why"],
        text=answer["text"],
        question=item["question"],
        reference=item["reference_answer"],
        context=item["context"],
        doubtful=tuple(queued["criteria"]),
        item_id=answer["item_id"],
        student=student,
        marked=queued.get("marked", False),
        marked_at=queued.get("marked_at", 0),
        history=tuple(queued.get("history", ())),
    )


def _machine_labels(run: Run, name: str, ref: TableRef, mine: ds.Expression) -> Iterator[tuple[Subject, MachineLabel]]:
    """What a machine says: levels with their evidence."""
    for row in run.read(ref, where=mine).to_pylist():
        if not row["sample"]:
            # A row of `judgments`
            level, likely = row["decision"], row["level_probabilities"]
            has_probability = likely and level is not None and level < len(likely)
            quotes = [Quote(quote["quote"], quote["status"], quote["start"], quote["end"]) for quote in row["evidence"]]
            machine_label = MachineLabel(
                rater=name,
                level=level,
                probability=likely[level] if has_probability else None,
                quotes=tuple(quotes),
                reason=row["unscored_reason"],
                stated=row["stated"],
                action=row["action"],
            )
            yield (row["response_id"], row["criterion_id"]), machine_label


def _grader(taught: Run, mine: ds.Expression) -> tuple[GraderHead | None, dict[str, dict[str, float]]]:
    """The head of the exported grader, and the share of each concept before correction."""
    heads = [row["head"] for row in taught.read(taught.ref(Models, "bottleneck"), ["head"]).to_pylist() if row["head"]]
    columns = ["response_id", "criterion_id", "level_probabilities"]
    estimates: dict[str, dict[str, float]] = {}
    for row in taught.read(taught.ref(Judgments, "bottleneck"), columns, mine).to_pylist():
        likely = row["level_probabilities"]
        share = sum(level * chance for level, chance in enumerate(likely)) / (len(likely) - 1)
        estimates.setdefault(row["response_id"], {})[row["criterion_id"]] = share
    return (GraderHead.read(heads[0]) if heads else None), estimates
