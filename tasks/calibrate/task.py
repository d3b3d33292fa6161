"""The door of calibrate: gradings and human scores in, mappings to the human scale and calibrated scores out."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from prefect import task

from tasks.calibrate.fit import fit_items
from tasks.calibrate.predict import predict
from tasks.calibrate.rows import GRADING, graded_items, only_rater
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.study import Study
from tasks.contracts.table import Row
from tasks.contracts.tables import Calibrations, Predictions, TableRef
from tasks.store.warehouse import Rows, Run


class Calibrated(NamedTuple):
    """What calibrate writes."""

    calibrations: TableRef
    predictions: TableRef


@task
def calibrate(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    bundles: TableRef,
) -> Calibrated:
    """Fit each item's mapping on its calibration split, then predict every graded response.

    people: human gradings; gradings: those of one machine rater, ContractError for several. Where it graded a response
    several times, score and signals are means over the scored samples.
    """

    def make() -> dict[type[Row], Rows]:
        plan, target = study.calibration, study.evaluation.target
        machine = run.read(gradings, GRADING)
        people_rows = run.read(people, ["response_id", "rater_id", "rater_kind", "score"])
        splits = run.read(responses, ["response_id", "split"])
        graded = graded_items(_bundle_of(run, items, bundles), machine, splits, people_rows, target)
        fitted = fit_items(graded, only_rater(machine), target, plan.minimum, plan.alpha)
        predicted = [
            predict(fitted[item.item_id], item.rows, item.bundle).append_column("split", item.rows["split"])
            for item in graded
        ]
        return {
            Calibrations: [mapping.row() for mapping in {one.calibration_id: one for one in fitted.values()}.values()],
            Predictions: pa.concat_tables(predicted) if predicted else [],
        }

    run.once("calibrate", make)
    return Calibrated(run.ref(Calibrations, "calibrate"), run.ref(Predictions, "calibrate"))


def _bundle_of(run: Run, items: TableRef, bundles: TableRef) -> dict[str, Bundle]:
    """Item -> its bundle."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubrics = run.read(items, ["item_id", "rubric_id"]).to_pylist()
    return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}
