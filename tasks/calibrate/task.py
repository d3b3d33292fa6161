"""The door of calibrate: gradings and human scores in, mappings to the human scale and calibrated scores out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tasks.calibrate.calibration import ScaleMapping
from tasks.calibrate.fit import fit_items
from tasks.calibrate.labels import TAUGHT
from tasks.calibrate.predict import predict
from tasks.calibrate.rows import GRADING, Item, graded_items, only_rater, whole_responses
from tasks.calibrate.texts import Blocks, Readers, TextSource, text_blocks
from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from tasks.llm.encoder import minilm
from tasks.llm.hidden import HiddenStates
from tasks.monitor.runs import task
from tasks.store.counted import counted
from tasks.store.naming import named
from tasks.store.ordered import in_order
from tasks.store.shards import Rows
from tasks.store.warehouse import Run

SHARD_ROWS = 20_000
"""Gradings that are predicted and written at a time, more only where one response has more."""
TEXT_ROWS = 2_000
"""Responses whose texts are read at a time: what they tell takes a hundred times the room of a grading."""
RESPONSE = ["response_id", "split", "author_id"]


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
        texts = Texts(run, study, items, responses, bundle_of)
        teaching = run.read(responses, RESPONSE, pc.field("split").isin(TAUGHT))
        labelled = _among(teaching["response_id"])
        scores = run.read(people, ["response_id", "rater_id", "rater_kind", "score"], labelled)
        rater_id = only_rater(counted(run, gradings, "rater_id"))
        graded = graded_items(bundle_of, run.read(gradings, GRADING, labelled), teaching, scores, target)
        fitted = fit_items(texts.beside(graded), rater_id, study)
        in_turn = in_order(run, gradings, GRADING, ("item_id", "response_id"))
        for number, rows in enumerate(whole_responses(in_turn, SHARD_ROWS)):
            split_of = run.read(responses, RESPONSE, _among(rows["response_id"]))
            named = {name: bundle_of[name] for name in rows["item_id"].unique().to_pylist() if name in bundle_of}
            shard = graded_items(named, rows, split_of, scores, target)
            answers = texts.read([item for item in shard if fitted.mappings[item.item_id].texts])
            predicted = [_predicted(fitted.mappings[item.item_id], item, texts, answers) for item in shard]
            run.commit("calibrate", f"predictions-{number:05d}", {Predictions: pa.concat_tables(predicted)})
        mappings = {mapping.calibration_id: mapping for mapping in fitted.mappings.values()}
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


def _among(response_ids: pa.ChunkedArray) -> pc.Expression:
    """Whether a row is about one of these responses."""
    return pc.field("response_id").isin(response_ids.combine_chunks())


def _predicted(calibration: ScaleMapping, item: Item, texts: Texts, answers: pa.Table) -> pa.Table:
    """Predictions for an item's gradings, where the mapping reads texts a part of them at a time. answers: as
    `Texts.read` gives them."""
    rows = TEXT_ROWS if calibration.texts else SHARD_ROWS
    tables = []
    for start in range(0, len(item.rows), rows):
        part = item.take(start, rows)
        with_texts = texts.with_blocks(part, answers) if calibration.texts else part
        tables.append(predict(calibration, with_texts).append_column("split", part.rows["split"]))
    return pa.concat_tables(tables)


class Texts:
    """What the texts of a study's responses tell, read item by item; nothing where no mapping may take it."""

    def __init__(
        self, run: Run, study: Study, items: TableRef, responses: TableRef, bundle_of: dict[str, Bundle]
    ) -> None:
        self._run, self._responses, self._bundles = run, responses, bundle_of
        self._plan = study.calibration
        columns = ["item_id", "question", "reference_answer", "reference_answers"]
        self._items = {row["item_id"]: row for row in run.read(items, columns).to_pylist()}

    @cached_property
    def _readers(self) -> Readers:
        """Loaded where the first text is to be read."""
        return Readers(
            encode=minilm() if "embedding" in self._plan.texts else None,
            hidden=HiddenStates(self._plan.language_model) if self._plan.language_model else None,
        )

    def beside(self, items: Sequence[Item]) -> list[Item]:
        """The items with a row of every block for each of their rows."""
        if not self._plan.texts or not any(len(item.rows) for item in items):
            return [*items]
        answers = self.read(items)
        return [self.with_blocks(item, answers) for item in items]

    def read(self, items: Sequence[Item]) -> pa.Table:
        """Columns `response_id` and `text` of the items' responses."""
        ids = [chunk for item in items for chunk in item.rows["response_id"].chunks]
        if not ids:
            return pa.table({name: pa.array([], pa.string()) for name in ("response_id", "text")})
        return self._run.read(self._responses, ["response_id", "text"], _among(pa.chunked_array(ids)))

    def with_blocks(self, item: Item, answers: pa.Table) -> Item:
        """The item with its blocks; answers: its responses' texts, as `read` gives them, others among them."""
        return item._replace(blocks=self._blocks(item, answers))

    def _blocks(self, item: Item, texts: pa.Table) -> Blocks:
        at = pc.index_in(item.rows["response_id"], value_set=texts["response_id"])
        asked = self._items[item.item_id]
        source = TextSource(
            texts=texts["text"].take(at).to_pylist(),
            question=asked["question"],
            reference=asked["reference_answer"] or "\n".join(asked["reference_answers"] or ()),
            rubric=self._bundles[item.item_id].text,
        )
        return text_blocks(source, self._plan.texts, self._readers)


def _bundle_of(run: Run, items: TableRef, bundles: TableRef) -> dict[str, Bundle]:
    """Item -> its bundle."""
    locked = unlocked(run.read(bundles).to_pylist())
    rubrics = run.read(items, ["item_id", "rubric_id"]).to_pylist()
    return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}
