"""Table `predictions`, written pack by pack: the run's fitted mappings applied to its gradings."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Predictions
from rubricflow.tasks.grading.calibrate.assignment import FITTED, STAGE, PredictionAssignment
from rubricflow.tasks.grading.calibrate.calibration import ScaleMapping, read_calibration
from rubricflow.tasks.grading.calibrate.predict import predict
from rubricflow.tasks.grading.calibrate.rows import Item, by_item
from rubricflow.tasks.grading.calibrate.run_texts import Texts, among
from rubricflow.tasks.grading.calibrate.samples import one_per_response

TEXT_ROWS = 2_000
"""Responses whose texts are read at a time: what they tell takes a hundred times the room of a grading."""


class Predictor:
    """Predicts packs of a run's gradings by the mappings that it keeps."""

    def __init__(self, assignment: PredictionAssignment, bundle_of: Mapping[str, Bundle], texts: Texts) -> None:
        """StoreError where nothing is fitted yet."""
        self._assignment, self._bundles, self._texts = assignment, bundle_of, texts
        self._mappings = fitted_mappings(assignment)

    @property
    def reads_texts(self) -> bool:
        """Whether any mapping, or its baseline, takes what texts tell."""
        return any(mapping.texts for mapping in self._mappings.values())

    def write(self, name: str, gradings: pa.Table) -> None:
        """Predict a pack and write it as the shard of this name. gradings: columns GRADING, whole responses."""
        run, responses = self._assignment.run, self._assignment.responses
        rows = one_per_response(gradings)
        known = run.read(responses, ["response_id", "split", "author_id"], among(rows["response_id"]))
        place = pc.index_in(rows["response_id"], value_set=known["response_id"])
        for column in ("split", "author_id"):
            rows = rows.append_column(column, known[column].take(place))
        named = {item: self._bundles[item] for item in rows["item_id"].unique().to_pylist() if item in self._bundles}
        items = by_item(named, rows)
        answers = self._texts.read([item for item in items if self._mappings[item.item_id].texts])
        predicted = pa.concat_tables([self._predicted(item, answers) for item in items])
        run.commit(STAGE, name, {Predictions: predicted})

    def _predicted(self, item: Item, answers: pa.Table) -> pa.Table:
        """Predictions for an item's gradings, where the mapping reads texts a part of them at a time. answers: as
        `Texts.read` gives them."""
        mapping = self._mappings[item.item_id]
        rows = TEXT_ROWS if mapping.texts else len(item.rows)
        tables = []
        for start in range(0, len(item.rows), rows):
            part = item.take(start, rows)
            with_texts = self._texts.with_blocks(part, answers) if mapping.texts else part
            tables.append(predict(mapping, with_texts).append_column("split", part.rows["split"]))
        return pa.concat_tables(tables)


def fitted_mappings(assignment: PredictionAssignment) -> dict[str, ScaleMapping]:
    """Item → its mapping as the run keeps it, to the last bit; StoreError where nothing is fitted yet."""
    contents = assignment.run.shard(Calibrations, STAGE, FITTED)["content"].to_pylist()
    mappings = [read_calibration(content) for content in contents]
    return {item: mapping for mapping in mappings for item in mapping.rules}


def read_bundles(assignment: PredictionAssignment) -> dict[str, Bundle]:
    """Item → its bundle."""
    run = assignment.run
    locked = unlocked(run.read(assignment.bundles).to_pylist())
    rubrics = run.read(assignment.items, ["item_id", "rubric_id"]).to_pylist()
    return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}


def read_texts(assignment: PredictionAssignment, bundle_of: Mapping[str, Bundle]) -> Texts:
    """What reads the run's texts."""
    run, plan, items, responses, *_ = assignment
    return Texts(run, plan, items, responses, bundle_of)
