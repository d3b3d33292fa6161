"""A finished run as an arm of an experiment, and the same run calibrated on fewer labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.flows.compare import finished
from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.stats.scores import score_frame, target_scores
from rubricflow.tasks.core.store.catalogue import counted
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predict import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items, only_rater
from rubricflow.tasks.grading.evaluate.experiment.arm import ExperimentArm

SPLITS = ("train", "calibration", "test")
CALLS = [
    "response_id",
    "role",
    "attempt",
    "violations",
    "prompt_tokens",
    "completion_tokens",
    "latency_s",
]


def read_arm(name: str, run: Run, sizes: Iterable[int] = ()) -> ExperimentArm:
    """A finished run as an arm; sizes: numbers of labels to calibrate it on anew.

    UserError where its items have different scales: agreement over all of them would mean nothing.
    """
    tables, study, scales = finished(run)
    if len(set(scales.values())) > 1:
        raise UserError(f"arm '{name}': its items have different scales; take those of one scale with 'where'")
    scores = score_frame(tables, study.evaluation.target, SPLITS).frame
    gradings = run.read(run.ref(Gradings, "judge"), ["response_id", "rater_kind", "status", "signals"]).to_pandas()
    metrics = run.read(run.ref(Metrics, "evaluate"), where=pc.field("slice") == "all")
    return ExperimentArm(
        name=name,
        scores=scores,
        gradings=gradings.assign(signals=list(map(dict, gradings["signals"]))),
        attempts=run.read(run.ref(Attempts, "judge"), CALLS).to_pandas(),
        scale=next(iter(scales.values())),
        simulated=bool((gradings["rater_kind"] == "simulated").any()),
        resized={size: resized(run, study, scores, size) for size in sizes},
        metrics=metrics.to_pandas(),
    )


def resized(run: Run, study: Study, scores: pd.DataFrame, size: int) -> pd.DataFrame | None:
    """The score frame with phase III fitted to the first `size` labelled responses of the calibration split; None where
    it has fewer. Sizes are nested, and what is held out stays the same."""
    responses = run.read(run.ref(Responses, "ingest"), ["response_id", "split", "author_id"])
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"])
    chosen = first_labelled(responses, target_scores(people, study.evaluation.target), size, study.split.seed)
    if chosen is None:
        return None
    others = pc.and_(pc.equal(responses["split"], "calibration"), pc.invert(pc.is_in(responses["response_id"], chosen)))
    labelled = responses.set_column(1, "split", pc.if_else(others, "train", responses["split"]))
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    items = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"]).to_pylist()
    bundle_of = {row["item_id"]: locked[row["rubric_id"]] for row in items}
    graded = graded_items(
        bundle_of, run.read(run.ref(Gradings, "judge"), GRADING), labelled, people, study.evaluation.target
    )
    by_phase_three = study.model_copy(update={"calibration": study.calibration.model_copy(update={"method": "rulers"})})
    fitted = fit_items(graded, only_rater(counted(run, run.ref(Gradings, "judge"), "rater_id")), by_phase_three)
    predicted = pa.concat_tables(
        predict(fitted.mappings[item.item_id], item).select(["response_id", "score"])
        for item in graded
        if len(item.rows)
    ).to_pandas()
    return scores.assign(calibrated=scores["response_id"].map(predicted.set_index("response_id")["score"]))


def first_labelled(responses: pa.Table, labels: pa.Table, size: int, seed: int) -> pa.Array | None:
    """The first `size` labelled responses of the calibration split, by the SHA-256 of seed and id; None where there are
    fewer. labels: the target's scores, column `response_id`."""
    rows = responses.filter(pc.equal(responses["split"], "calibration"))["response_id"]
    of_item = rows.filter(pc.is_in(rows, labels["response_id"].combine_chunks())).to_pylist()
    ordered = sorted(of_item, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return pa.array(ordered[:size], pa.string()) if len(ordered) >= size else None
