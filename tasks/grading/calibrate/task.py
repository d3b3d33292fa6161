"""Stage entry point of calibrate: gradings and human scores in; mappings to the human scale, calibrated scores out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import (
    Calibrations,
    Candidates,
    LabelRisks,
    Predictions,
    ReleaseRules,
    StepCalibrations,
    StepPredictions,
)
from rubricflow.tasks.core.llm.calls import in_words, pace
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.piece_progress import PieceCounts
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.monitor.shared_stage import (
    Piece,
    PieceResult,
    SharedStage,
    require_visible,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.part import look_again
from rubricflow.tasks.core.store.warehouse import Rows, Run, counted
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import (
    FITTED,
    STAGE,
    GradingPack,
    PredictionAssignment,
    Predictor,
    Texts,
    among,
    packs,
)
from rubricflow.tasks.grading.calibrate.rows import GRADING, TAUGHT, graded_items, only_rater

SHARD_ROWS = 20_000
"""Gradings that are predicted and written at a time, more only where one response has more."""


class Calibrated(NamedTuple):
    calibrations: TableRef
    candidates: TableRef
    release_rules: TableRef
    label_risks: TableRef
    predictions: TableRef


class CalibratedStep(NamedTuple):
    """What calibrate writes of a step of a cascade: predictions, and what these were made by."""

    predictions: TableRef
    calibrations: TableRef
    label_risks: TableRef


@task(task_run_name=named(STAGE))
def calibrate(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    bundles: TableRef,
    placement: Placement = HERE,
) -> Calibrated:
    """Choose and fit each item's mapping on its calibration split, then predict every graded response, pack by pack;
    what is fitted and predicted already is passed over.

    people: human gradings; gradings: those of one machine rater, ContractError for several. Where it graded a response
    several times, score and signals are means over the scored samples. placement: who predicts the packs where that
    takes time, because texts are read for it.
    """
    assignment = PredictionAssignment(run, study.calibration, items, responses, gradings, bundles)
    _calibrate(assignment, study, people, placement, (Calibrations, Candidates, ReleaseRules, LabelRisks))
    tables = (Calibrations, Candidates, ReleaseRules, LabelRisks, Predictions)
    return Calibrated(*(run.ref(table, STAGE) for table in tables))


@task(task_run_name=named(STAGE))
def calibrate_step(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    bundles: TableRef,
    stage: str,
    fitted: str,
    placement: Placement = HERE,
) -> CalibratedStep:
    """The same for gradings of one step of a cascade, under the name `stage`; fitted: the stage whose mappings predict,
    this one or an earlier one of the step."""
    assignment = PredictionAssignment(run, study.calibration, items, responses, gradings, bundles, stage, fitted)
    _calibrate(assignment, study, people, placement, (StepCalibrations, LabelRisks))
    made = (run.ref(table, fitted) for table in (StepCalibrations, LabelRisks))
    return CalibratedStep(run.ref(StepPredictions, stage), *made)


def _calibrate(
    assignment: PredictionAssignment, study: Study, people: TableRef, placement: Placement, tables: Sequence[type[Row]]
) -> None:
    """tables: what is written of what was fitted."""
    run, stage = assignment.run, assignment.stage
    if run.done(stage, "all"):
        return
    bundle_of = assignment.bundle_of()
    texts = Texts(run, study.calibration, assignment.items, assignment.responses, bundle_of)
    if not run.done(assignment.fitted, FITTED):
        made = _fitted(assignment, study, people, bundle_of, texts)
        run.commit(
            stage, FITTED, {table: next(made[row] for row in made if issubclass(table, row)) for table in tables}
        )
    predictor = Predictor(assignment, bundle_of, texts)
    _predict(assignment, predictor, placement if predictor.reads_texts else HERE)
    run.commit(stage, "all", {assignment.table: []})  # the last one: without it the stage is not done


def _fitted(
    assignment: PredictionAssignment, study: Study, people: TableRef, bundle_of: Mapping[str, Bundle], texts: Texts
) -> dict[type[Row], Rows]:
    """The mappings and what they were chosen by, as tables."""
    run, gradings = assignment.run, assignment.gradings
    teaching = run.read(assignment.responses, ["response_id", "split", "author_id"], pc.field("split").isin(TAUGHT))
    labelled = among(teaching["response_id"])
    scores = run.read(people, ["response_id", "rater_id", "rater_kind", "score"], labelled)
    rater_id = only_rater(counted(run, gradings, "rater_id"))
    graded = graded_items(bundle_of, run.read(gradings, GRADING, labelled), teaching, scores, study.evaluation.target)
    with_texts = texts.with_blocks_of_all(graded)
    fitted = fit_items(with_texts, rater_id, study, texts.encoder if any(item.blocks for item in with_texts) else None)
    mappings = {mapping.calibration_id: mapping for mapping in fitted.mappings.values()}
    return {
        Calibrations: [mapping.row() for mapping in mappings.values()],
        Candidates: fitted.candidates,
        ReleaseRules: fitted.release_rules,
        LabelRisks: fitted.label_risks,
    }


def _predict(assignment: PredictionAssignment, predictor: Predictor, placement: Placement) -> None:
    """Predicts the packs that are not done: here, or by workers where there are several."""
    run = assignment.run
    gradings = assignment.gradings
    stage = assignment.stage
    finished = run.finished(stage, run.shards(stage))
    open_packs = [pack for pack in packs(run, gradings, SHARD_ROWS) if pack.name not in finished]
    total = gradings.rows
    to_do = sum(pack.rows for pack in open_packs)
    done_now = 0
    begun = time.monotonic()
    say = saying(run.run_id, stage)

    def predicted(rows: int) -> None:
        """Logs how many gradings are predicted, once a pack."""
        nonlocal done_now
        done_now += rows
        rate = done_now / (time.monotonic() - begun)
        time_left = f", about {in_words((to_do - done_now) / rate)} left" if done_now < to_do else ""
        done = total - to_do + done_now
        say(f"{stage}: {done:,}/{total:,} gradings predicted{time_left}, {pace(rate)}/s", done / total)

    if len(open_packs) > 1 and not placement.is_local:
        pieces = [Piece(f"{stage} {pack.name}", pack.rows, pack.name, pack) for pack in open_packs]

        def ended(piece: Piece, _: PieceCounts) -> None:
            require_visible(run, (stage, piece.content.name))

        share_out(share_of(assignment), lambda _: pieces, to_do, len(pieces), placement, ended)
        look_again(run.folder)
        return
    for pack in open_packs:
        predictor.write(pack)
        predicted(pack.rows)


def share_of(assignment: PredictionAssignment) -> SharedStage:
    """The stage as workers get it: its folders are found from any working directory."""
    plan = assignment.plan
    run = with_absolute_paths(assignment.run)
    if plan.language_model and Path(plan.language_model).is_dir():
        plan = plan.model_copy(update={"language_model": str(Path(plan.language_model).absolute())})
    assignment = assignment._replace(run=run, plan=plan)
    written = (assignment.fitted, FITTED)
    stage, members = assignment.stage, ("gradings predicted", "without a prediction")
    return SharedStage(stage, stage, members, run, assignment, written, open=Predictor.of, work=_predict_piece)


def _predict_piece(predictor: Predictor, piece: Piece) -> PieceResult:
    pack: GradingPack = piece.content
    predictor.write(pack)
    return PieceResult(PieceCounts(pack.rows), {})
