"""Stage entry point of calibrate: gradings and human scores in; mappings to the human scale, calibrated scores out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from rubricflow.tasks.core.llm.calls import in_words, pace
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.monitor.shared_stage import (
    Piece,
    PieceCounts,
    PieceResult,
    SharedStage,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.files import named
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
    """What calibrate writes."""

    calibrations: TableRef
    candidates: TableRef
    release_rules: TableRef
    predictions: TableRef


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
    if not run.done(STAGE, "all"):
        assignment = PredictionAssignment(run, study.calibration, items, responses, gradings, bundles)
        bundle_of = assignment.bundle_of()
        texts = Texts(run, study.calibration, items, responses, bundle_of)
        if not run.done(STAGE, FITTED):
            run.commit(STAGE, FITTED, _fitted(assignment, study, people, bundle_of, texts))
        predictor = Predictor(assignment, bundle_of, texts)
        _predict(assignment, predictor, placement if predictor.reads_texts else HERE)
        run.commit(STAGE, "all", {Predictions: []})  # the last one: without it the stage is not done
    return Calibrated(*(run.ref(table, STAGE) for table in (Calibrations, Candidates, ReleaseRules, Predictions)))


def _fitted(
    assignment: PredictionAssignment, study: Study, people: TableRef, bundle_of: Mapping[str, Bundle], texts: Texts
) -> dict[type[Row], Rows]:
    """The mappings and what they were chosen by, as tables."""
    run, _, _, responses, gradings, _ = assignment
    teaching = run.read(responses, ["response_id", "split", "author_id"], pc.field("split").isin(TAUGHT))
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
    }


def _predict(assignment: PredictionAssignment, predictor: Predictor, placement: Placement) -> None:
    """Predicts the packs that are not done: here, or by workers where there are several."""
    run, gradings = assignment.run, assignment.gradings
    finished = run.finished(STAGE, run.shards(STAGE))
    open_packs = [pack for pack in packs(run, gradings, SHARD_ROWS) if pack.name not in finished]
    total, to_do, done_now = gradings.rows, sum(pack.rows for pack in open_packs), 0
    begun, say = time.monotonic(), saying(run.run_id, STAGE)

    def predicted(rows: int) -> None:
        """Logs how many gradings are predicted, once a pack."""
        nonlocal done_now
        done_now += rows
        rate = done_now / (time.monotonic() - begun)
        time_left = f", about {in_words((to_do - done_now) / rate)} left" if done_now < to_do else ""
        done = total - to_do + done_now
        say(f"calibrate: {done:,}/{total:,} gradings predicted{time_left}, {pace(rate)}/s", done / total)

    if len(open_packs) > 1 and not placement.is_local:
        pieces = [Piece(f"{STAGE} {pack.name}", pack.rows, pack.name, pack) for pack in open_packs]
        share_out(share_of(assignment), pieces, placement, lambda counts: predicted(counts.members))
        return
    for pack in open_packs:
        predictor.write(pack)
        predicted(pack.rows)


def share_of(assignment: PredictionAssignment) -> SharedStage:
    """The stage as workers get it: its folders are found from any working directory."""
    plan, run = assignment.plan, with_absolute_paths(assignment.run)
    if plan.language_model and Path(plan.language_model).is_dir():
        plan = plan.model_copy(update={"language_model": str(Path(plan.language_model).absolute())})
    assignment = assignment._replace(run=run, plan=plan)
    return SharedStage(STAGE, "packs", run, assignment, (STAGE, FITTED), open=Predictor.of, work=_predict_piece)


def _predict_piece(predictor: Predictor, piece: Piece) -> PieceResult:
    pack: GradingPack = piece.content
    predictor.write(pack)
    return PieceResult(PieceCounts(pack.rows), {})
