"""The door of calibrate: gradings and human scores in, mappings to the human scale and calibrated scores out."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from prefect import task

from tasks.calibrate.calibration import ScaleMapping
from tasks.calibrate.fit import fit_items
from tasks.calibrate.predict import predict
from tasks.calibrate.rows import GRADING, Item, graded_items, only_rater, shards
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from tasks.store.naming import named
from tasks.store.ordered import packed
from tasks.store.warehouse import Rows, Run

SHARD_ROWS = 20_000
"""Predictions written at a time."""


class Calibrated(NamedTuple):
    """What calibrate writes."""

    calibrations: TableRef
    candidates: TableRef
    release_rules: TableRef
    predictions: TableRef


@task(task_run_name=named("calibrate"))
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

    target = study.evaluation.target

    def make() -> dict[type[Row], Rows]:
        bundle_of = _bundle_of(run, items, bundles)
        known = run.read(responses, ["response_id", "split", "author_id"])
        chosen = known.filter(pc.equal(known["split"], "calibration"))["response_id"]
        labelled = pc.field("response_id").isin(chosen.combine_chunks())
        told = run.read(people, ["response_id", "rater_id", "rater_kind", "score"], labelled)
        rater_id = only_rater(run.read(gradings, ["rater_id"]))
        fitted = fit_items(
            graded_items(bundle_of, run.read(gradings, GRADING, labelled), known, told, target), rater_id, study
        )
        counts = Counter(run.read(gradings, ["item_id"])["item_id"].to_pylist())
        at = count()
        for names in packed(counts, SHARD_ROWS):
            rows = run.read(gradings, GRADING, pc.field("item_id").isin(names))
            some = graded_items(
                {name: bundle_of[name] for name in names if name in bundle_of}, rows, known, told, target
            )
            for shard in shards(some, SHARD_ROWS):
                predicted = [_predicted(fitted.mappings[item.item_id], item) for item in shard]
                run.commit("calibrate", f"predictions-{next(at):05d}", {Predictions: pa.concat_tables(predicted)})
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


def _predicted(calibration: ScaleMapping, item: Item) -> pa.Table:
    return predict(calibration, item.rows, item.bundle).append_column("split", item.rows["split"])


def _bundle_of(run: Run, items: TableRef, bundles: TableRef) -> dict[str, Bundle]:
    """Item -> its bundle."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubrics = run.read(items, ["item_id", "rubric_id"]).to_pylist()
    return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}
