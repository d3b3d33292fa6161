"""Table `predictions`, written pack by pack: the run's fitted mappings applied to its gradings and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError, StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.contracts.tables.calibration import (
    Calibrations,
    Predictions,
    StepCalibrations,
    StepPredictions,
)
from rubricflow.tasks.core.llm.encoder import HiddenStates, minilm
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.probability import interval
from rubricflow.tasks.core.store.ordered import in_order
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.alignment import stretch, towards
from rubricflow.tasks.grading.calibrate.calibration import ScaleMapping, read_calibration
from rubricflow.tasks.grading.calibrate.features import (
    Readers,
    TextSource,
    floats,
    is_scored,
    is_weak,
    matrix,
    taken,
    text_blocks,
    without_absent_counts,
)
from rubricflow.tasks.grading.calibrate.methods import apply_mapping
from rubricflow.tasks.grading.calibrate.release import reasons
from rubricflow.tasks.grading.calibrate.rows import GRADING, Item, by_item, clusters, one_per_response, whole_responses
from rubricflow.tasks.grading.calibrate.spread import Placed, error_risk, level_probabilities, risks, sigmas
from rubricflow.tasks.grading.calibrate.stack import PARTS, Stack, StackedRows, apply_stack


def predict(calibration: ScaleMapping, item: Item) -> pa.Table:
    """Predictions for one item's gradings, one per response: all columns of `predictions` except `split`.

    item: its rows the columns GRADING, `split` and `author_id`: crossed labels are predicted without their fold. A
    prechecked grading keeps its raw score: no mapping was fitted for it. An unscored one has no score but its reason;
    one whose score lacks a feature has the reason `criterion_unscored`.
    Interval, risk and level probabilities are null where there were too few labels to tell, and in a row that lacks a
    signal that they go by.
    """
    name = calibration.calibration_id
    fold = np.full(len(item.rows), -1)
    if calibration.folds:
        fold_of = {cluster: k for k, fit in enumerate(calibration.folds) for cluster in fit.clusters}
        crossed = np.asarray(pc.equal(item.rows["split"], "crossed").to_numpy(), dtype=np.bool_)
        left_out = np.array([fold_of.get(cluster, -1) for cluster in clusters(item.rows)], dtype=np.int64)
        fold = np.where(crossed, left_out, -1)
    if (fold < 0).all():
        return _predicted(calibration, item, name)
    parts = [(fold < 0, calibration), *((fold == k, calibration.without(k)) for k in range(len(calibration.folds)))]
    found = pa.concat_tables(_predicted(mapping, item.filter(rows), name) for rows, mapping in parts)
    return found.take(np.argsort(np.concatenate([np.flatnonzero(rows) for rows, _ in parts])))


def _predicted(calibration: ScaleMapping, item: Item, calibration_id: str) -> pa.Table:
    """Predictions by one fit, under the name that it is stored by. ContractError without the blocks of texts that a
    stack was fitted on."""
    gradings = item.rows
    bundle = item.bundle
    spread = calibration.spread
    raw = floats(gradings["score"])
    scale = bundle.scale
    n = len(gradings)
    # The features that the mapping takes, the signals of its spread, and the features of its error model.
    wanted = calibration.features, *((spread.signals, spread.hints) if spread else ((), ()))
    names = list(dict.fromkeys(chain.from_iterable(wanted)))
    values = without_absent_counts(matrix(gradings, bundle, names, calibration.pooled), names)
    inputs, signals, hints = (values[:, [names.index(name) for name in part]] for part in wanted)
    stacks = [stack for stack in (calibration.mapping, calibration.text_only) if isinstance(stack, Stack)]
    needed = {block.name for stack in stacks for block in stack.blocks} - PARTS
    if lacking := sorted(needed - item.blocks.keys()):
        raise ContractError(f"calibration {calibration.calibration_id[:12]} goes by {', '.join(lacking)} of the texts")

    # What cannot be mapped, or a method does not tell, stays NaN.
    ready = is_scored(gradings) & np.isfinite(inputs).all(axis=1)
    of_stack = StackedRows(inputs[ready], taken(item.blocks, ready), np.full(int(ready.sum()), item.item_id))
    latent, aligned, score, judge, text, of_item, text_only = np.full((7, n), np.nan)
    clipped = np.zeros(n, dtype=np.bool_)
    unit = calibration.unit(scale)
    mapped, points = apply_mapping(calibration.mapping, of_stack, (unit.min, unit.max), scale.bounds)
    judge[ready], text[ready], of_item[ready] = points
    latent[ready], aligned[ready], score[ready], clipped[ready] = towards(
        mapped, raw[ready], calibration.weight, scale.bounds
    )
    if calibration.text_only is not None:
        text_only[ready] = apply_stack(calibration.text_only, of_stack, scale.bounds)[0].score

    low, high, risk = np.full((3, n), np.nan)
    levels = np.full((n, scale.levels), np.nan)
    is_known = ready & np.isfinite(aligned) & np.isfinite(signals).all(axis=1)
    if spread is not None and is_known.any():
        top = scale.levels - 1
        epsilon = np.array(spread.epsilon)
        fitted = stretch(aligned[is_known], (scale.min, scale.max), unit.bounds)
        sigma = sigmas(spread.sigma, fitted, signals[is_known]) / (unit.max - unit.min)
        steps = (aligned[is_known] - scale.min) / scale.step
        level = to_levels(score[is_known], *scale.bounds).astype(np.float64)
        reach = (np.inf if spread.reach is None else spread.reach) * sigma * (scale.max - scale.min)
        low[is_known], high[is_known] = interval(aligned[is_known], reach, scale.bounds, spread.grain)
        levels[is_known] = level_probabilities(steps, sigma * top, top, epsilon)
        by_distribution = risks(steps, sigma * top, level, top, epsilon, tolerance=spread.tolerance, grain=spread.grain)
        risk[is_known] = by_distribution
        if spread.errors is not None:
            placed = Placed(steps, level, np.full(len(level), float(top)), by_distribution)
            risk[is_known] = error_risk(spread.errors, placed, hints[is_known], spread.errors.effect(item.item_id))

    prechecked = pc.equal(gradings["status"], "precheck").to_numpy()
    score = np.where(prechecked, raw, score)
    rule = calibration.rule(item.item_id, scale)
    route_reason = reasons(score, prechecked, is_weak(gradings), clipped, risk, rule)
    unscored_reason = pc.fill_null(gradings["unscored_reason"], "criterion_unscored")
    has_levels = ~np.isnan(levels).any(axis=1)
    ends = np.concatenate([[0], np.cumsum(has_levels) * scale.levels])
    numbers = {"raw": raw, "latent": latent, "aligned": aligned, "score": score, "low": low, "high": high, "risk": risk}
    numbers |= {"points_judge": judge, "points_text": text, "points_item": of_item, "text_only": text_only}
    columns = {
        **{name: gradings[name] for name in ("response_id", "item_id", "rater_id")},
        **{name: pa.array(values, from_pandas=True) for name, values in numbers.items()},  # null where NaN
        "calibration_id": pc.if_else(pa.array(ready), calibration_id, None),
        "clipped": pa.array(clipped),
        "level_probabilities": pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(levels[has_levels].ravel()), mask=pa.array(~has_levels)
        ),
        "route": pc.if_else(pc.is_null(route_reason), "release", "review"),
        "route_reason": route_reason,
        "unscored_reason": pc.if_else(pa.array(np.isnan(score)), unscored_reason, None),
    }
    return pa.table(columns)


STAGE = "calibrate"
FITTED = "fitted"
"""The shard that holds the mappings: by what is read of it every pack is predicted, whoever does it, and when."""
KEYS = ("item_id", "response_id")
TEXT_ROWS = 2_000
"""Responses whose texts are read at a time: what they tell takes a hundred times the memory of a grading."""


class PredictionAssignment(NamedTuple):
    """What predictions are made of; the same for every pack of a stage."""

    run: Run
    plan: Calibration
    items: TableRef
    responses: TableRef
    gradings: TableRef
    """Those of one machine rater."""
    bundles: TableRef
    stage: str = STAGE
    """Under which name the tables are written."""
    fitted: str = STAGE
    """Under which name the mappings were."""

    @property
    def table(self) -> type[Predictions]:
        """As what the predictions are written: those of a step of a cascade are not the run's."""
        return Predictions if self.stage == STAGE else StepPredictions

    def bundle_of(self) -> dict[str, Bundle]:
        locked = unlocked(self.run.read(self.bundles).to_pylist())
        rubrics = self.run.read(self.items, ["item_id", "rubric_id"]).to_pylist()
        return {row["item_id"]: locked[row["rubric_id"]] for row in rubrics}


class GradingPack(NamedTuple):
    """Gradings that are predicted and written together: neighbours in the order of item and response, with all of a
    response in one pack."""

    name: str
    """The shard that its predictions are."""
    rows: int
    first: tuple[str, str]
    """Item and response of the first grading."""
    last: tuple[str, str]


def packs(run: Run, gradings: TableRef, rows: int) -> Iterator[GradingPack]:
    """The packs in the order of KEYS, by keys alone, of `rows` gradings or more, see `whole_responses`."""
    for number, keys in enumerate(whole_responses(in_order(run, gradings, KEYS, KEYS), rows)):
        first, last = (tuple(row[key] for key in KEYS) for row in keys.take([0, len(keys) - 1]).to_pylist())
        yield GradingPack(f"predictions-{number:05d}", len(keys), first, last)


def gradings_of(run: Run, gradings: TableRef, pack: GradingPack) -> pa.Table:
    """The gradings of a pack, columns GRADING, in the order of KEYS, read from the files that hold any of its keys;
    StoreError if they are not as many."""
    item, response = (pc.field(name) for name in KEYS)
    (first_item, first_response), (last_item, last_response) = pack.first, pack.last
    from_first = (item > first_item) | ((item == first_item) & (response >= first_response))
    to_last = (item < last_item) | ((item == last_item) & (response <= last_response))
    rows = run.read(gradings, GRADING, from_first & to_last)
    if len(rows) != pack.rows:
        raise StoreError(f"{gradings.path}: {pack.name} has {len(rows)} rows, not {pack.rows}; {run.mend()}")
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in KEYS]))  # a stable sort


class Predictor:
    """Predicts packs of a run's gradings by the mappings that it keeps."""

    def __init__(self, assignment: PredictionAssignment, bundle_of: Mapping[str, Bundle], texts: Texts) -> None:
        """StoreError where nothing is fitted yet."""
        self._assignment, self.bundles, self._texts = assignment, bundle_of, texts
        table = Calibrations if assignment.fitted == STAGE else StepCalibrations
        contents = assignment.run.shard(table, assignment.fitted, FITTED)["content"].to_pylist()
        mappings = [read_calibration(content) for content in contents]
        self.mappings = {item: mapping for mapping in mappings for item in mapping.rules}

    @classmethod
    def of(cls, assignment: PredictionAssignment) -> Predictor:
        """With bundles and texts of its own, as a worker opens it."""
        bundle_of = assignment.bundle_of()
        return cls(assignment, bundle_of, Texts(*assignment[:4], bundle_of))

    @property
    def reads_texts(self) -> bool:
        """Whether any mapping, or its baseline, takes what texts tell."""
        return any(mapping.texts for mapping in self.mappings.values())

    def write(self, pack: GradingPack) -> None:
        """Predict a pack and write it as the shard of its name."""
        run = self._assignment.run
        gradings = self._assignment.gradings
        rows = self.predicted(gradings_of(run, gradings, pack))
        run.commit(self._assignment.stage, pack.name, {self._assignment.table: rows})

    def predicted(self, gradings: pa.Table) -> pa.Table:
        """Predictions for all gradings of some responses, columns GRADING; where texts are read, some at a time."""
        run = self._assignment.run
        responses = self._assignment.responses
        rows = one_per_response(gradings)
        known = run.read(responses, ["response_id", "split", "author_id"], among(rows["response_id"]))
        place = pc.index_in(rows["response_id"], value_set=known["response_id"])
        for column in ("split", "author_id"):
            rows = rows.append_column(column, known[column].take(place))
        named = {item: self.bundles[item] for item in rows["item_id"].unique().to_pylist() if item in self.bundles}
        items = by_item(named, rows)
        answers = self._texts.read([item for item in items if self.mappings[item.item_id].texts])
        tables = []
        for item in items:
            mapping = self.mappings[item.item_id]
            size = TEXT_ROWS if mapping.texts else len(item.rows)
            for start in range(0, len(item.rows), size):
                part = item.take(start, size)
                with_texts = self._texts.with_blocks(part, answers) if mapping.texts else part
                tables.append(predict(mapping, with_texts).append_column("split", part.rows["split"]))
        return pa.concat_tables(tables)


class Texts:
    """What the texts of a study's responses tell; nothing where no mapping may take it."""

    def __init__(
        self, run: Run, plan: Calibration, items: TableRef, responses: TableRef, bundle_of: Mapping[str, Bundle]
    ) -> None:
        self._run, self._plan, self._responses, self._bundles = run, plan, responses, bundle_of
        columns = ["item_id", "question", "reference_answer", "reference_answers"]
        self._items = {row["item_id"]: row for row in run.read(items, columns).to_pylist()}

    @cached_property
    def _readers(self) -> Readers:
        """Loaded where the first text is to be read."""
        folder = self._plan.language_model
        return Readers(
            encode=minilm() if "embedding" in self._plan.texts else None,
            hidden=lru_cache(maxsize=1)(HiddenStates(folder))
            if folder
            else None,  # the page asks of one again and again
        )

    @property
    def encoder(self) -> str | None:
        """What encodes the texts, and how; None where no mapping takes an embedding."""
        return minilm().made if "embedding" in self._plan.texts else None

    def with_blocks_of_all(self, items: Sequence[Item]) -> list[Item]:
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
        return self._run.read(self._responses, ["response_id", "text"], among(pa.chunked_array(ids)))

    def with_blocks(self, item: Item, answers: pa.Table) -> Item:
        """The item with its blocks; answers: its responses' texts, as `read` gives them, others among them."""
        at = pc.index_in(item.rows["response_id"], value_set=answers["response_id"])
        asked = self._items[item.item_id]
        reference = asked["reference_answer"] or "\n".join(asked["reference_answers"] or ())
        source = TextSource(
            texts=tuple(answers["text"].take(at).to_pylist()),
            question=asked["question"],
            reference=reference,
            rubric=self._bundles[item.item_id].text,
        )
        return item._replace(blocks=text_blocks(source, self._plan.texts, self._readers))


def among(response_ids: pa.ChunkedArray) -> pc.Expression:
    """Whether a row is about one of these responses."""
    return pc.field("response_id").isin(response_ids.combine_chunks())
