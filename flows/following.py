"""The score that follows from levels that a teacher set: the judge's formula, then the run's own calibration."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.calibration import POOLED, read_calibration
from rubricflow.tasks.grading.calibrate.predict import apply_later
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.run_texts import Texts
from rubricflow.tasks.grading.calibrate.samples import one_per_response
from rubricflow.tasks.grading.calibrate.texts import Blocks
from rubricflow.tasks.grading.judge.regraded import regraded, score_follows
from rubricflow.tasks.people.review.board import FollowingScore, predicted_score

STATED = "this judge gives the score as a whole, so none follows from single criteria"
UNFITTED = "scores of this question were not fitted to scores that people gave"

Record = dict[str, Any]


class Following:
    """The scores that follow in one graded run; safe for several threads."""

    def __init__(self, run: Run, study: Study) -> None:
        self._run, self._study, self._lock = run, study, threading.Lock()
        self._blocks: dict[str, Blocks] = {}

    def __call__(self, response_id: str, levels: Mapping[str, int]) -> FollowingScore:
        """The score of a response with these levels, by criterion, in place of the judge's."""
        with self._lock:
            gradings = self._rows(Gradings, response_id)
            bundle = self._bundles[gradings[0]["item_id"]]
            if not score_follows(bundle):
                return FollowingScore(None, STATED)
            content = self._calibration(response_id, gradings[0]["item_id"])
            if content is None:
                return FollowingScore(None, UNFITTED)
            rows = self._moved(bundle, gradings, levels)
            predictions = apply_later(content, rows, bundle, lambda _: self._texts_of(content, bundle, rows))
        return FollowingScore(predicted_score(predictions.to_pylist()[0], bundle.scale), None)

    def _moved(self, bundle: Bundle, gradings: Sequence[Record], levels: Mapping[str, int]) -> pa.Table:
        """The gradings of one response, each of its samples with the levels that were set."""
        judgments = self._rows(Judgments, gradings[0]["response_id"])
        rows = [
            regraded(bundle, grading, [row for row in judgments if row["sample"] == grading["sample"]], levels)
            for grading in gradings
        ]
        table = one_per_response(conform(Gradings, rows))
        # A marked answer of a crossed set has the score of the fit that has not seen its author.
        wanted = ds.field("response_id") == gradings[0]["response_id"]
        known = self._run.read(self._run.ref(Responses, "ingest"), ["split", "author_id"], wanted)
        return table.append_column("split", known["split"]).append_column("author_id", known["author_id"])

    def _rows(self, row: type[Gradings] | type[Judgments], response_id: str) -> list[Record]:
        chosen = ds.field("response_id") == response_id
        table = self._run.read(self._run.ref(row, "judge"), where=chosen)
        rows: list[Record] = table.to_pylist(maps_as_pydicts="strict")
        return rows

    @cached_property
    def _bundles(self) -> dict[str, Bundle]:
        """Question → its rubric."""
        locked = unlocked(self._run.read(self._run.ref(Bundles, "lock")).to_pylist())
        rows = self._run.read(self._run.ref(Items, "ingest"), ["item_id", "rubric_id"]).to_pylist()
        return {row["item_id"]: locked[row["rubric_id"]] for row in rows}

    @cached_property
    def _calibrations(self) -> list[Record]:
        columns = ["calibration_id", "scope", "content"]
        rows: list[Record] = self._run.read(self._run.ref(Calibrations, "calibrate"), columns).to_pylist()
        return rows

    def _calibration(self, response_id: str, item_id: str) -> str | None:
        """The calibration that the response's score went through or, where it had none, the question's."""
        wanted = ds.field("response_id") == response_id
        predictions = self._run.read(self._run.ref(Predictions, "calibrate"), ["calibration_id"], wanted)
        applied = set(predictions["calibration_id"].to_pylist())
        contents = {row["scope"]: row["content"] for row in self._calibrations}
        for row in self._calibrations:
            if row["calibration_id"] in applied:
                return str(row["content"])
        return contents.get(item_id, contents.get(POOLED))

    def _texts_of(self, content: str, bundle: Bundle, rows: pa.Table) -> Blocks:
        """What the response's text tells a calibration that goes by it; read once."""
        if not read_calibration(content).texts:
            return {}
        item_id, response_id = rows["item_id"][0].as_py(), rows["response_id"][0].as_py()
        if response_id not in self._blocks:
            (item,) = self._texts.beside([Item(item_id, bundle, rows)])
            self._blocks[response_id] = item.blocks
        return self._blocks[response_id]

    @cached_property
    def _texts(self) -> Texts:
        items, responses = self._run.ref(Items, "ingest"), self._run.ref(Responses, "ingest")
        return Texts(self._run, self._study.calibration, items, responses, self._bundles)
