"""The command `review`: the page on what an annotated study queued, or a graded one did not release, and the score that
follows from levels that a teacher sets there. No Prefect run: people take their time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    Browser,
    Limit,
    PageAddress,
    Port,
    Reviewers,
    StudyFile,
    WarehouseFolder,
    arguments,
)
from rubricflow.flows.finished_runs import settle_scores
from rubricflow.flows.plan import annotating, plan
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.calibration import Escalations
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, JurorBundles
from rubricflow.tasks.core.monitor.runs import announce_answered, is_watched
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.web.server import serve
from rubricflow.tasks.grading.calibrate.predictions import PredictionAssignment, Predictor
from rubricflow.tasks.grading.calibrate.rows import GRADING
from rubricflow.tasks.grading.judge.score import regraded, score_follows
from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Board, PredictedScore, predicted_score
from rubricflow.tasks.people.review.ledger import acts_of, ledger_file
from rubricflow.tasks.people.review.reviews import Reviews
from rubricflow.tasks.people.review.waiting import open_board, waiting_labels, waiting_scores

STATED = "this judge gives the score as a whole, so none follows from single criteria"
UNFITTED = "scores of this question were not fitted to scores that people gave"


def review(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    host: PageAddress = "127.0.0.1",
    port: Port = 8765,
    reviewer: Reviewers = None,
    browser: Browser = True,
) -> None:
    """Serves the page until it is stopped; InputError where nothing is queued, or the address needs reviewers."""
    access = Access(host, port, tuple(reviewer or ()))
    votes = ledger_file(Path(warehouse))
    board = board_of(study, warehouse, limit)
    if not board.cases:
        raise InputError(f"nothing of {board.study} waits for people", file=study)
    for name, link in access.links().items():
        print(f"{name}: {link}")
    if not reviewer:
        print(f"review: {access.url()} (Ctrl-C stops it; votes are in {votes})")
    settings = load_study(Path(study))
    follow = None
    if settings.annotation is None:  # an annotated study has no scores
        follow = Following(plan(study, warehouse, limit).run, settings)
        # What it reads texts with takes seconds to load, and nobody shall wait for it.
        threading.Thread(target=follow, args=(board.cases[0].response_id, {}), daemon=True).start()
    # A run of the pipeline may wait for the last answer.
    look = partial(announce_if_answered, board, warehouse) if is_watched() else None
    serve(create_app(board, votes, access, follow, look), host, port, browser and not reviewer)


def reviewed_run(study_file: str | Path, warehouse: str | Path, limit: int | None) -> tuple[Study, Run]:
    """A study and its run that people look at: annotated or, where it is graded only, with scores settled by what
    people have said until now. InputError where that was not done yet."""
    study = load_study(Path(study_file))
    annotated = study.annotation is not None
    run = (annotating if annotated else plan)(study_file, warehouse, limit).run
    if not run.done("queue" if annotated else "calibrate", "all"):
        place = run.warehouse.place
        rule = f"{study.name} is not there to review in {place}, as study, data and code are now"
        hint = f"rubricflow {'annotate' if annotated else 'grade'} {arguments(study_file, place, limit)}"
        raise InputError(rule, file=study_file, hint=hint)
    if not annotated:
        settle_scores(run, study)
    return study, run


def board_of(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> Board:
    """The board of a study: its queue of labels where it is annotated, of scores where it is graded only; no
    cases where nothing waits. InputError as for `reviewed_run`."""
    study, run = reviewed_run(study_file, warehouse, limit)
    if study.annotation is None:
        raters = {"judge": run.ref(Judgments, "judge")}
        waiting = waiting_scores(run)
    else:
        raters = {name: run.ref(Judgments, f"annotate-{name}") for name in study.annotation.annotators}
        waiting = waiting_labels(run)
    trained = [one for one in runs_of(warehouse, study.name) if one.done("bottleneck", "people")]
    return open_board(run, study, waiting, raters, trained[-1] if trained else None)


def unanswered(board: Board, warehouse: str | Path) -> int:
    """Of how many cases of a board people are still asked."""
    reviews = Reviews(board)
    reviews.add(acts_of(Path(warehouse), board.study))
    return len(reviews.unanswered())


def announce_if_answered(board: Board, warehouse: str | Path) -> None:
    """Tells whoever waits for people's answers once there are all."""
    if not unanswered(board, warehouse):
        announce_answered({board.study})


def runs_of(warehouse: str | Path, study: str) -> list[Run]:
    """The finished runs of a study, oldest first."""
    opened = Warehouse.open(warehouse)
    return [opened.run(name) for name in opened.runs() if name.rpartition("-")[0] == study]


class Following:
    """The scores that follow from levels in one graded run, by the judge's formula and then the run's own calibration;
    safe for several threads."""

    def __init__(self, run: Run, study: Study) -> None:
        self._run, self._study, self._lock = run, study, threading.Lock()
        self._predictors = dict[int, Predictor]()

    def _predictor(self, response_id: str) -> Predictor:
        """Of the run or, of a cascade, of the step whose score the response has; opened where the first score is asked
        for."""
        run, number = self._run, 0
        if self._study.judge.escalate:
            where = ds.field("response_id") == response_id
            (number,) = run.table(Escalations, "calibrate", ["step"], where)["step"].to_pylist()
        if number not in self._predictors:
            items, responses = (run.ref(row, "ingest") for row in (Items, Responses))
            judged, fitted = (f"{stage}-{number}" if number else stage for stage in ("judge", "calibrate"))
            gradings = run.ref(Gradings, judged)
            bundles = run.ref(Bundles, "lock")
            if number:
                (own,) = next(run.batches(gradings, ["bundle_id"], 1))["bundle_id"].to_pylist()
                locked = (run.ref(JurorBundles, stage) for stage in run.stages(JurorBundles))
                bundles = next(ref for ref in locked if own in run.read(ref, ["bundle_id"])["bundle_id"].to_pylist())
            made_of = PredictionAssignment(
                run, self._study.calibration, items, responses, gradings, bundles, fitted, fitted
            )
            self._predictors[number] = Predictor.of(made_of)
        return self._predictors[number]

    def __call__(self, response_id: str, levels: Mapping[str, int]) -> PredictedScore | str:
        """The score of a response with these levels, by criterion, in place of the judge's."""
        of_response = ds.field("response_id") == response_id
        with self._lock:
            gradings, judgments = (
                self._run.table(row, "judge", where=of_response).to_pylist(maps_as_pydicts="strict")
                for row in (Gradings, Judgments)
            )
            item_id = gradings[0]["item_id"]
            predictor = self._predictor(response_id)
            bundle = predictor.bundles[item_id]
            if not score_follows(bundle):
                return STATED
            if item_id not in predictor.mappings:
                return UNFITTED
            samples = {row["sample"]: [one for one in judgments if one["sample"] == row["sample"]] for row in gradings}
            moved = [regraded(bundle, grading, samples[grading["sample"]], levels) for grading in gradings]
            predictions = predictor.predicted(conform(Gradings, moved).select(GRADING))
        return predicted_score(predictions.to_pylist()[0], bundle.scale)
