"""The door of review: annotators' judgments and people's acts in; the queue, votes and final labels out; and the board
that the page shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from prefect import task

from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.bottleneck import Models
from tasks.contracts.tables.calibration import Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings, Judgments
from tasks.contracts.tables.people import Labels, Queue, Votes
from tasks.contracts.tables.rubrics import Bundles
from tasks.review.board import Board, Case, GraderHead, MachineLabel, Quote
from tasks.review.cells import Cells, Said, cells_of, said
from tasks.review.ledger import Ledger, Stored
from tasks.review.queue import label_queue, score_queue
from tasks.review.settle import settle, vote_rows
from tasks.review.subject import Subject, digest, standing
from tasks.stats.target import target_scores
from tasks.store.digest import digest_of
from tasks.store.naming import named
from tasks.store.warehouse import Run

LEDGER = "votes.sqlite"
_SHOWN = ((Items, "ingest"), (Responses, "ingest"), (Bundles, "lock"))


class Spoken(NamedTuple):
    """What people have said of a study up to a moment."""

    until: int
    """Number of the last act; 0 for none."""
    digest: str
    """SHA-256 of the acts."""


class Settled(NamedTuple):
    """What adjudicate writes."""

    labels: TableRef
    votes: TableRef


def spoken(house: Path, study: str) -> Spoken:
    """What people have said of a study until now, in a warehouse that may not be there yet."""
    acts = acts_of(house, study)
    content = [[act.act_id, act.kind, act.value, act.comment, act.digest, act.undoes] for act in acts]
    return Spoken(max((act.number for act in acts), default=0), digest_of(content))


def acts_of(house: Path, study: str) -> list[Stored]:
    """The acts on a study in their order; none where nobody has said anything."""
    if not (house / LEDGER).exists():
        return []
    with Ledger(house / LEDGER) as ledger:
        return ledger.acts(study)


@task(task_run_name=named("queue"))
def queue(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> TableRef:
    """Queue the responses whose labels are in doubt, the most telling first. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        assert study.annotation is not None  # or the flow would have refused the study
        locked, rubric_of = _rubrics(run, items, responses, bundles)
        cells = _cells(locked, rubric_of)
        first, second = (_said(run, cells, name, ref) for name, ref in annotated.items())
        shares = _human_shares(run, study, people, locked, rubric_of)
        return {Queue: label_queue(cells, (first, second), shares, study.annotation.doubt)}

    run.once("queue", make)
    return run.ref(Queue, "queue")


@task(task_run_name=named("adjudicate"))
def adjudicate(
    run: Run,
    study: Study,
    until: Spoken,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> Settled:
    """Settle the label of every concept by annotators, votes and adjudications up to a moment.

    Says how many votes do not count any more, because what they were about has changed.
    """

    def make() -> dict[Any, Any]:
        locked, rubric_of = _rubrics(run, items, responses, bundles)
        cells = _cells(locked, rubric_of)
        texts = run.read(responses, ["response_id", "text"])
        current: dict[Subject, str] = {
            (response, criterion.id): digest(text, criterion.text, criterion.levels)
            for response, text in zip(*(column.to_pylist() for column in texts.columns), strict=True)
            for criterion in locked[rubric_of[response]].criteria
        }
        heard = [act for act in acts_of(run.warehouse.root, study.name) if act.number <= until.until]
        counted = standing((act for act in heard if act.subject_kind == "label"), current)
        if counted.stale:
            print(f"adjudicate: {len(counted.stale)} votes do not count: what they were about has changed")
        annotators = [_said(run, cells, name, ref) for name, ref in annotated.items()]
        return {Labels: settle(cells, annotators, counted), Votes: vote_rows(counted)}

    run.once("adjudicate", make)
    return Settled(run.ref(Labels, "adjudicate"), run.ref(Votes, "adjudicate"))


def waiting_labels(run: Run) -> list[dict[str, Any]]:
    """The queue of an annotated run, first asked first."""
    return sorted(run.read(run.ref(Queue, "queue")).to_pylist(), key=lambda row: row["rank"])


def waiting_scores(run: Run) -> list[dict[str, Any]]:
    """The scores of a graded run that were not released, riskiest first."""
    return score_queue(run.read(run.ref(Predictions, "calibrate")))


def open_board(
    run: Run, study: Study, waiting: list[dict[str, Any]], raters: Mapping[str, TableRef], taught: Run | None
) -> Board:
    """What the page shows of what waits in a run.

    raters: name → the judgments or gradings of a machine. taught: the run that trained the study's grader, if any.
    """
    items, responses, bundles = (run.ref(row, stage) for row, stage in _SHOWN)
    locked, rubric_of = _rubrics(run, items, responses, bundles)
    wanted = ds.field("response_id").isin([row["response_id"] for row in waiting])
    given = run.read(responses, ["response_id", "item_id", "text"], wanted)
    texts = {row["response_id"]: row for row in given.to_pylist()}
    sheets = {row["item_id"]: row for row in run.read(items).to_pylist()}
    machine: dict[tuple[str, str | None], tuple[MachineLabel, ...]] = {}
    for name, ref in raters.items():
        for at, label in _machine_labels(run, name, ref, wanted, locked, rubric_of):
            machine[at] = (*machine.get(at, ()), label)
    head, estimates = _grader(taught, wanted) if taught else (None, None)
    return Board(
        study=study.name,
        title=study.name,
        cases=tuple(_case(row, texts[row["response_id"]], sheets, rubric_of) for row in waiting),
        criteria={name: bundle.criteria for name, bundle in locked.items()},
        scales={name: bundle.scale for name, bundle in locked.items()},
        machine=machine,
        grader=head,
        estimates=estimates,
    )


def _case(
    queued: Mapping[str, Any], given: Mapping[str, Any], sheets: Mapping[str, Any], rubric_of: Mapping[str, str]
) -> Case:
    item = sheets[given["item_id"]]
    return Case(
        response_id=queued["response_id"],
        subject_kind=queued["subject_kind"],
        rubric_id=rubric_of[queued["response_id"]],
        why=queued["why"],
        text=given["text"],
        question=item["question"],
        reference=item["reference_answer"],
        context=item["context"],
        doubtful=tuple(queued["criteria"]),
    )


def _machine_labels(
    run: Run,
    name: str,
    ref: TableRef,
    wanted: ds.Expression,
    locked: Mapping[str, Bundle],
    rubric_of: Mapping[str, str],
) -> Iterator[tuple[tuple[str, str | None], MachineLabel]]:
    """What a machine says: levels with evidence from `judgments`, a score from `gradings`."""
    for row in run.read(ref, where=wanted).to_pylist():
        if row["sample"]:
            continue
        if ref.table == Gradings.table:
            scale = locked[rubric_of[row["response_id"]]].scale
            level = None if row["score"] is None else round((row["score"] - scale.min) / scale.step)
            yield (row["response_id"], None), MachineLabel(name, level, reason=row["unscored_reason"])
            continue
        level, likely = row["decision"], row["level_probabilities"]
        yield (
            (row["response_id"], row["criterion_id"]),
            MachineLabel(
                name,
                level,
                likely[level] if likely and level is not None and level < len(likely) else None,
                tuple(Quote(one["quote"], one["status"], one["start"], one["end"]) for one in row["evidence"]),
                row["unscored_reason"],
            ),
        )


def _grader(taught: Run, wanted: ds.Expression) -> tuple[GraderHead | None, dict[str, dict[str, float]]]:
    """The head of the exported grader, and the share of each concept before correction."""
    heads = [row["head"] for row in taught.read(taught.ref(Models, "bottleneck"), ["head"]).to_pylist() if row["head"]]
    columns = ["response_id", "criterion_id", "level_probabilities"]
    estimates: dict[str, dict[str, float]] = {}
    for row in taught.read(taught.ref(Judgments, "bottleneck"), columns, wanted).to_pylist():
        likely = row["level_probabilities"]
        share = sum(level * p for level, p in enumerate(likely)) / (len(likely) - 1)
        estimates.setdefault(row["response_id"], {})[row["criterion_id"]] = share
    return (GraderHead.read(heads[0]) if heads else None), estimates


def _rubrics(
    run: Run, items: TableRef, responses: TableRef, bundles: TableRef
) -> tuple[dict[str, Bundle], dict[str, str]]:
    """Rubric → bundle, and response → rubric."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubric = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
    given = run.read(responses, ["response_id", "item_id"])
    pairs = zip(*(column.to_pylist() for column in given.columns), strict=True)
    return locked, {response: rubric[item] for response, item in pairs}


def _cells(locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]) -> Cells:
    return cells_of(rubric_of, {name: bundle.criteria for name, bundle in locked.items()})


def _said(run: Run, cells: Cells, name: str, judgments: TableRef) -> Said:
    """What an annotator says, under the name that the study gives it."""
    rows = run.read(judgments)
    return said(cells, rows.set_column(rows.schema.get_field_index("rater_id"), "rater_id", pa.repeat(name, len(rows))))


def _human_shares(
    run: Run, study: Study, people: TableRef, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str]
) -> dict[str, float]:
    """Response → its human score as a share of the scale, where there is one."""
    target = target_scores(run.read(people), study.evaluation.target)
    scores = target.filter(pc.is_valid(target["score"])).select(["response_id", "score"])
    shares = {}
    for response, score in zip(*(column.to_pylist() for column in scores.columns), strict=True):
        scale = locked[rubric_of[response]].scale
        shares[response] = (score - scale.min) / (scale.max - scale.min)
    return shares
