"""What waits in a run, and the board on which people see it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.bottleneck import Models
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments, Supports
from rubricflow.tasks.core.contracts.tables.people import NextLabels, Queue, SettledScores
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.display.verdict import Rules, by_scope, marked_by, score_step, why_waits
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import (
    Board,
    GraderHead,
    QueuedCase,
    predicted_score,
    rubrics,
    score_text,
)
from rubricflow.tasks.people.review.ledger import Subject, acts_of
from rubricflow.tasks.people.review.settled_scores import people_of, scores_in_data

_NAME = "author_name"
"""The column of `responses` with a student's name, in versions that have it."""
_WANTED = ("response_id", "item_id", "text", "author_id", "made_from", _NAME)
_OF_ANSWERS = [name for name in _WANTED if name in schema(Responses).names]


def waiting_labels(run: Run) -> list[Record]:
    """The queue of an annotated run, first asked first."""
    return list(run.table(Queue, "queue").sort_by("rank").to_pylist())


def waiting_scores(run: Run) -> list[Record]:
    """The scores of a graded run that people are asked for: those that `next` proposed, then those that were not
    released, riskiest first; last, what people marked in the data, of which nobody is asked but where their marks
    decide nothing."""
    rules = by_scope(run.table(ReleaseRules, "calibrate").to_pylist())
    marked = marked_scores(run)
    decided = {row["response_id"] for row in marked if row["marked"]}
    waits = [row for row in marked if not row["marked"]]
    with catalogue(run) as tables:
        final = tables.sql("SELECT * FROM final_scores").to_arrow_table()
    waits += proposed(run) + score_queue(final, rules)
    cases = [case for case in waits if case["response_id"] not in decided] + [row for row in marked if row["marked"]]
    first: dict[str, Record] = {}
    for case in cases:
        first.setdefault(case["response_id"], {**case, "criteria": [], "subject_kind": "score"})
    return list(first.values())


def score_queue(final_scores: pa.Table, rules: Rules) -> list[Record]:
    """The responses with a score that is routed to review (rows of view `final_scores`), the riskiest first, then those
    without a risk, as empty answers are; a response of several raters comes once, for its riskiest score. rules: of
    release, by scope."""
    routed = final_scores.filter(pc.equal(final_scores["route"], "review"))
    columns = ["response_id", "item_id", "risk", "route_reason", "unscored_reason"]
    cases = routed.select(columns).to_pylist()
    cases.sort(key=lambda case: (case["risk"] is None, -(case["risk"] or 0), case["response_id"]))
    queue: dict[str, Record] = {}
    for case in cases:
        why = say.sentence(why_waits(case, rules))
        risk = case["risk"]
        name = case["response_id"]
        if risk is not None and case["route_reason"] != "risk":
            why = f"{why}; estimated risk {say.share(risk)}"
        queue.setdefault(name, {"response_id": name, "why": why})
    return list(queue.values())


def marked_scores(run: Run) -> list[Record]:
    """What people marked in the data of a graded run, where their marks are decisions: response_id, why (whose marks,
    in words), marked (whether somebody need not be asked), marked_at and history as `QueuedCase` has them."""
    if not run.done("settle", "all"):
        return []
    settled = run.table(SettledScores, "settle", where=ds.field("marks").is_valid())
    if not len(settled):
        return []
    marks = acts_of(run.warehouse.root, run.run_id.rpartition("-")[0], marks=True)
    in_data = scores_in_data(people_of(run), {}, marks, MEAN)
    marked = []
    for row in settled.to_pylist(maps_as_pydicts="strict"):
        # Whose marks an answer has and, where there are several, what counts
        why = say.sentence(marked_by(row["marks"]))
        name = row["response_id"]
        score = row["score"]
        if len(row["marks"]) > 1 and row["settled_by"] in ("marked", "in_data", "data_differ"):
            why += ": which counts is open" if score is None else f": {score_text(round(score, 2))} counts"
        case = {"response_id": name, "why": why, "marked": row["settled_by"] != "data_differ"}
        history = [score_step(step) for step in row["history"]]
        marked.append(case | {"marked_at": in_data[name].marked_at, "history": history})
    return marked


def proposed(run: Run) -> list[Record]:
    """Rows of `next_labels` of a run, first asked first; none where `next` was not asked."""
    if not run.done("next", "all"):
        return []
    return list(run.table(NextLabels, "next").sort_by("rank").to_pylist())


def open_board(
    run: Run, study: Study, waiting: list[Record], raters: Mapping[str, TableRef], taught: Run | None
) -> Board:
    """What the page shows of what waits in a run.

    raters: name → the judgments of a machine. taught: the run that trained the study's grader, if any.
    """
    items = run.ref(Items, "ingest")
    responses = run.ref(Responses, "ingest")
    bundles = run.ref(Bundles, "lock")
    locked, rubric_of = rubrics(run, items, responses, bundles)
    mine = ds.field("response_id").isin([row["response_id"] for row in waiting])
    answers = {row["response_id"]: row for row in run.read(responses, _OF_ANSWERS, mine).to_pylist()}
    sheets = {row["item_id"]: row for row in run.read(items).to_pylist()}
    machine: dict[Subject, list[tuple[str, Row]]] = defaultdict(list)
    for name, ref in raters.items():
        looks = {}
        if run.parts(Supports, ref.stage):
            for look in run.table(Supports, ref.stage, where=mine & ds.field("doubted")).to_pylist():
                looks[look["response_id"], look["criterion_id"], look["sample"]] = look
        for row in run.read(ref, where=mine).to_pylist():
            if not row["sample"]:
                row["look"] = looks.get((row["response_id"], row["criterion_id"], 0))
                machine[row["response_id"], row["criterion_id"]].append((name, row))
    scales = {name: bundle.scale for name, bundle in locked.items()}
    predictions = {}
    if not study.annotation:
        for row in run.table(Predictions, "calibrate", where=mine).to_pylist():
            predictions[row["response_id"]] = predicted_score(row, scales[rubric_of[row["response_id"]]])
    cases = []
    for row in waiting:
        answer = answers[row["response_id"]]
        item, student = sheets[answer["item_id"]], None
        if row["subject_kind"] == "score":  # who labels concepts is not to know the student
            student = (answer.get(_NAME) or "").strip() or answer["author_id"]
        case = QueuedCase(
            response_id=row["response_id"],
            subject_kind=row["subject_kind"],
            rubric_id=rubric_of[row["response_id"]],
            why=row["why"],
            text=answer["text"],
            question=item["question"],
            reference=item["reference_answer"],
            context=item["context"],
            doubtful=tuple(row["criteria"]),
            item_id=answer["item_id"],
            student=student,
            marked=row.get("marked", False),
            marked_at=row.get("marked_at", 0),
            history=tuple(row.get("history", ())),
            is_trace=answer.get("made_from") == "trace",
        )
        cases.append(case)
    head, estimates = _grader(taught, mine) if taught else (None, None)
    return Board(
        study=study.name,
        title=study.name,
        cases=tuple(cases),
        criteria={name: bundle.criteria for name, bundle in locked.items()},
        scales=scales,
        machine=machine,
        grader=head,
        estimates=estimates,
        predictions=predictions,
        rubric_texts={name: bundle.text for name, bundle in locked.items()},
        coverage=study.release.coverage,
    )


def _grader(taught: Run, mine: ds.Expression) -> tuple[GraderHead | None, dict[str, dict[str, float]]]:
    """The head of the exported grader, and the share of each concept before correction."""
    heads = [row["head"] for row in taught.table(Models, "bottleneck", ["head"]).to_pylist() if row["head"]]
    columns = ["response_id", "criterion_id", "level_probabilities"]
    estimates: dict[str, dict[str, float]] = defaultdict(dict)
    for row in taught.table(Judgments, "bottleneck", columns, mine).to_pylist():
        likely = row["level_probabilities"]
        share = sum(level * chance for level, chance in enumerate(likely)) / (len(likely) - 1)
        estimates[row["response_id"]][row["criterion_id"]] = share
    return (GraderHead.read(heads[0]) if heads else None), estimates
