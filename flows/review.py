"""The review page and its round trips: what an annotated study queued, or a graded one did not release. No Prefect run:
people take their time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from flows.annotate import annotating
from flows.plan import plan
from tasks.contracts.errors import InputError
from tasks.contracts.study import load_study
from tasks.contracts.tables import Gradings, Judgments, TableRef
from tasks.review.access import Access
from tasks.review.app import create_app, serve
from tasks.review.board import Board
from tasks.review.task import LEDGER, acts_of, open_board, waiting_labels, waiting_scores
from tasks.store.warehouse import Run, Warehouse


def review(
    study_file: Path,
    warehouse: Path,
    limit: int | None,
    host: str,
    port: int,
    reviewers: tuple[str, ...],
    open_browser: bool,
) -> None:
    """Serves the page until it is stopped; InputError where nothing is queued, or the address needs reviewers."""
    access = Access(host, port, reviewers)
    board = board_of(study_file, warehouse, limit)
    for name, link in access.links().items():
        print(f"{name}: {link}")
    if not reviewers:
        print(f"review: {access.url()} (Ctrl-C stops it; votes are in {warehouse / LEDGER})")
    serve(create_app(board, warehouse / LEDGER, access), host, port, open_browser and not reviewers)


def board_of(study_file: Path, warehouse: Path, limit: int | None = None) -> Board:
    """The board of a study: its queue of labels where it is annotated, of scores where it is graded only.

    InputError where that was not done yet, or nothing waits.
    """
    study = load_study(study_file)
    job = (annotating if study.annotation else plan)(study_file, warehouse, limit)
    run, doing = job.run, "annotate" if study.annotation else "grade"
    if not run.done("queue" if study.annotation else "calibrate", "all"):
        rule = f"{study.name} is not there to review in {warehouse}, as study, data and code are now"
        raise InputError(rule, file=study_file, hint=f"rubricflow {doing} {study_file}")
    raters: dict[str, TableRef] = {"judge": run.ref(Gradings, "judge")} if study.annotation is None else {}
    for name in study.annotation.annotators if study.annotation else ():
        raters[name] = run.ref(Judgments, f"annotate-{name}")
    waiting = waiting_labels(run) if study.annotation else waiting_scores(run)
    if not waiting:
        raise InputError(f"nothing of {study.name} waits for people", file=study_file)
    return open_board(run, study, waiting, raters, _taught(Warehouse.open(warehouse), study.name))


def take(study_file: Path, warehouse: Path, limit: int | None, to: Path) -> int:
    """Write the queue to a spreadsheet's CSV, or to Label Studio's JSON with its configuration beside it; returns how
    many cases it holds."""
    raise NotImplementedError


def bring(study_file: Path, warehouse: Path, limit: int | None, read: Path, rater: str | None) -> int:
    """Read votes from such a file into the ledger; returns how many acts it holds. InputError for what is wrong with
    it, and nothing is stored then."""
    raise NotImplementedError


def said(study_file: Path, warehouse: Path) -> list[tuple[str, int, int, str]]:
    """(who, cases submitted, votes, last at) of everyone who has said something of a study."""
    acts = acts_of(warehouse, load_study(study_file).name)
    cases = {(act.rater_id, act.response_id) for act in acts if act.kind == "submit"}
    submitted, votes = Counter(rater for rater, _ in cases), Counter(act.rater_id for act in acts if act.kind == "vote")
    last = {act.rater_id: act.at.isoformat(timespec="seconds") for act in acts}
    return [(name, submitted[name], votes[name], last[name]) for name in sorted(last)]


def _taught(house: Warehouse, study: str) -> Run | None:
    """The last finished run that trained a grader of this study."""
    runs = [house.run(name) for name in house.runs() if name.rpartition("-")[0] == study]
    trained = [run for run in runs if run.done("bottleneck", "people")]
    return trained[-1] if trained else None
