"""The door of calibrate: gradings and human scores in, mappings to the human scale and calibrated scores out."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.crew import Crew
from rubricflow.tasks.core.monitor.engines import on_engine
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.catalogue import counted
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.core.store.workers import DESKS, refuse_unseen
from rubricflow.tasks.grading.calibrate.assignment import FITTED, STAGE, GradingPack, PredictionAssignment
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.key_ranges import in_packs, packs
from rubricflow.tasks.grading.calibrate.labels import TAUGHT
from rubricflow.tasks.grading.calibrate.predictions import Predictor, read_bundles, read_texts
from rubricflow.tasks.grading.calibrate.progress import PackProgress
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items, only_rater
from rubricflow.tasks.grading.calibrate.run_texts import Texts, among
from rubricflow.tasks.grading.calibrate.worker import PredictionWorker, sent_off

SHARD_ROWS = 20_000
"""Gradings that are predicted and written at a time, more only where one response has more."""
_WORKER = PredictionWorker(DESKS)


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
        bundle_of = read_bundles(assignment)
        texts = read_texts(assignment, bundle_of)
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
    with_texts = texts.beside(graded)
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
    progress = PackProgress(gradings.rows, saying(run.run_id, STAGE))
    if not placement.is_local:
        parted = list(packs(run, gradings, SHARD_ROWS))
        open_ = [pack for pack in parted if pack.name not in finished]
        if len(open_) > 1:
            progress.passed(sum(pack.rows for pack in parted if pack.name in finished))
            _share_out(assignment, open_, placement, progress)
            return
    for name, rows in in_packs(run, gradings, SHARD_ROWS):
        if name in finished:
            progress.passed(len(rows))
        else:
            predictor.write(name, rows)
            progress.predicted(len(rows))


def _share_out(
    assignment: PredictionAssignment, open_: list[GradingPack], placement: Placement, progress: PackProgress
) -> None:
    """Has the workers of a cluster predict packs."""
    run, sent, seen = assignment.run, pickle.dumps(sent_off(assignment)), list[str]()

    def done(name: str, gradings: int) -> None:
        if not seen:
            refuse_unseen(run, STAGE, [name.split()[-1]])
        seen.append(name)
        progress.predicted(gradings)

    def work(crew: Crew) -> None:
        pieces = {f"{STAGE} {pack.name}": (sent, pack.name, pickle.dumps(pack)) for pack in open_}
        crew.each(predict_pack, pieces, min(crew.room, len(open_)), done)

    on_engine(placement, f"{STAGE} packs", work)
    refuse_unseen(run, STAGE, [pack.name for pack in open_])


def predicted_pack(sent: bytes, name: str, pack: bytes) -> int:
    """Predict one pack, wherever this runs; its number of gradings.

    sent, pack: the pickled `SentPrediction` and `GradingPack`, for Prefect looks into other parameters.
    """
    return _WORKER.predict(sent, pickle.loads(pack))


# A name of its own, so that the function travels by its name and meets what its module keeps from pack to pack.
predict_pack = task(task_run_name="calibrate {name}")(predicted_pack)
