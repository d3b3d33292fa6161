"""A worker of a cluster as it predicts: what its process keeps from one pack to the next."""

from __future__ import annotations

import pickle
from pathlib import Path

from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.workers import Desks, from_anywhere, refuse_stranger
from rubricflow.tasks.grading.calibrate.assignment import (
    FITTED,
    STAGE,
    GradingPack,
    PredictionAssignment,
    SentPrediction,
)
from rubricflow.tasks.grading.calibrate.key_ranges import gradings_of
from rubricflow.tasks.grading.calibrate.predictions import Predictor, read_bundles, read_texts


class PredictionWorker:
    """Predicts packs as they come; mappings are read and models loaded for the first one alone. Threads may share
    it."""

    def __init__(self, desks: Desks) -> None:
        """desks: of the process."""
        self._desks = desks

    def predict(self, pickled: bytes, pack: GradingPack) -> int:
        """Predicts a pack and writes its shard; nothing where it is there already. Returns its number of gradings.

        pickled: the assignment as sent. BackendError where this worker has another version of the code, or another
        warehouse.
        """
        sent: SentPrediction = pickle.loads(pickled)
        run, gradings = sent.assignment.run, sent.assignment.gradings
        refuse_stranger(run, STAGE, FITTED, sent.code)
        if not run.done(STAGE, pack.name):
            predictor = self._desks.desk(pickled, lambda: _opened(sent.assignment))
            predictor.write(pack.name, gradings_of(run, gradings, pack))
        return pack.rows


def sent_off(assignment: PredictionAssignment) -> SentPrediction:
    """The assignment as workers get it: its folders are found from any working directory."""
    plan, run = assignment.plan, from_anywhere(assignment.run)
    if plan.language_model and Path(plan.language_model).is_dir():
        plan = plan.model_copy(update={"language_model": str(Path(plan.language_model).absolute())})
    return SentPrediction(assignment._replace(run=run, plan=plan), code_digest())


def _opened(assignment: PredictionAssignment) -> Predictor:
    bundle_of = read_bundles(assignment)
    return Predictor(assignment, bundle_of, read_texts(assignment, bundle_of))
