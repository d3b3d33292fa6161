"""The door of calibrate: gradings and human scores in, mappings to the human scale and calibrated scores out."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from prefect import task

from tasks.calibrate.calibration import Calibration
from tasks.calibrate.fit import fit_items
from tasks.calibrate.predict import predict
from tasks.calibrate.rows import GRADING, Item, graded_items, only_rater, shards
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.study import Study
from tasks.contracts.table import Row
from tasks.contracts.tables import Calibrations, Candidates, Predictions, ReleaseRules, TableRef
from tasks.store.warehouse import Rows, Run

SHARD_ROWS = 20_000
"""Predictions written at a time."""


class Calibrated(NamedTuple):
    """What calibrate writes."""

    calibrations: TableRef
    candidates: TableRef
    release_rules: TableRef
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
    """Choose and fit each item's mapping on its calibration split, then predict every graded response.

    people: human gradings; gradings: those of one machine rater, ContractError for several. Where it graded a response
    several times, score and signals are means over the scored samples.
    """

    def make() -> dict[type[Row], Rows]:
        machine = run.read(gradings, GRADING)
        rater_id = only_rater(machine)
        people_rows = run.read(people, ["response_id", "rater_id", "rater_kind", "score"])
        authors = run.read(responses, ["response_id", "split", "author_id"])
        graded = graded_items(_bundle_of(run, items, bundles), machine, authors, people_rows, study.evaluation.target)
        fitted = fit_items(graded, rater_id, study)
        for at, shard in enumerate(shards(graded, SHARD_ROWS)):
            predicted = [_predicted(fitted.mappings[item.item_id], item) for item in shard]
            run.commit("calibrate", f"predictions-{at:05d}", {Predictions: pa.concat_tables(predicted)})
        mappings = {one.calibration_id: one for one in fitted.mappings.values()}
        return {
            Calibrations: [mapping.row() for mapping in mappings.values()],
            Candidates: fitted.candidates,
            ReleaseRules: fitted.release_rules,
            Predictions: [],
        }

    # The shard 'all' comes last: without it the stage is not done, and the others are written again, the same.
    run.once("calibrate", make)
    tables = (run.ref(table, "calibrate") for table in (Calibrations, Candidates, ReleaseRules, Predictions))
    return Calibrated(*tables)


def _predicted(calibration: Calibration, item: Item) -> pa.Table:
    return predict(calibration, item.rows, item.bundle).append_column("split", item.rows["split"])


def _bundle_of(run: Run, items: TableRef, bundles: TableRef) -> dict[str, Bundle]:
    """Item -> its bundle."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubrics = run.read(items, ["item_id", "rubric_id"]).to_pylist()
    return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}
