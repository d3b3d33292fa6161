"""Applying a fitted mapping to gradings: those of its run, or new ones later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.conformal import interval
from rubricflow.tasks.grading.calibrate.alignment import Aligned, ScoreCurve, stretch
from rubricflow.tasks.grading.calibrate.calibration import ScaleMapping, read_calibration
from rubricflow.tasks.grading.calibrate.features import floats, is_scored, is_weak, matrix, without_absent_counts
from rubricflow.tasks.grading.calibrate.methods import Mapping, apply_method
from rubricflow.tasks.grading.calibrate.release import reasons
from rubricflow.tasks.grading.calibrate.rows import Item, clusters, one_per_response, only_rater
from rubricflow.tasks.grading.calibrate.spread import Placed, Spread, error_risk, level_probabilities, risks, sigmas
from rubricflow.tasks.grading.calibrate.stack import PARTS, Points, Stack, StackedRows, apply_stack
from rubricflow.tasks.grading.calibrate.texts import Blocks, taken


class PredictedScores(NamedTuple):
    """low, high: (n,) interval; risk: (n,); levels: (n, L) their probabilities; NaN where they cannot be told."""

    low: Floats
    high: Floats
    risk: Floats
    levels: Floats


def apply_later(
    content: str, gradings: pa.Table, bundle: Bundle, blocks_of: Callable[[Sequence[str]], Blocks] = lambda _: {}
) -> pa.Table:
    """Predictions for gradings of one item by a stored calibration; for those of its run, the run's predictions.

    content: column `content` of a row of `calibrations`; gradings: rows of `gradings`, with `split` and `author_id`
    where crossed labels are among them; bundle: the item's; blocks_of: ids of responses to what their texts tell, see
    `text_blocks`. Columns as in `predict`. ContractError for content
    that this version cannot read, gradings of several items, and another rater, item or bundle than it was fitted for;
    a pooled one is for any item whose bundle gives its features.
    """
    calibration = read_calibration(content)
    rater, items = only_rater(gradings["rater_id"].unique().to_pylist()), pc.unique(gradings["item_id"]).to_pylist()
    item = items[0] if items else ""
    if rater not in ("", calibration.rater_id):
        raise ContractError(f"calibration was fitted for rater '{calibration.rater_id}', not for '{rater}'")
    if len(items) > 1:
        raise ContractError(f"gradings of one item are predicted at a time, not of {', '.join(sorted(items))}")
    if not calibration.pooled and (bundle.bundle_id != calibration.bundle_id or set(items) - {calibration.scope}):
        raise ContractError(
            f"calibration was fitted for item '{calibration.scope}' under bundle {str(calibration.bundle_id)[:12]}, "
            f"not for {items} under {bundle.bundle_id[:12]}"
        )
    rows = one_per_response(gradings)
    return predict(calibration, Item(item, bundle, rows, blocks_of(rows["response_id"].to_pylist())))


def predict(calibration: ScaleMapping, item: Item) -> pa.Table:
    """Predictions for one item's gradings, one per response: all columns of `predictions` except `split`.

    item: its rows at least the columns GRADING; of crossed labels, which are predicted without their fold, `split` and
    `author_id`, too. A prechecked grading keeps its raw score: no mapping was fitted for it.
    An unscored one has no score but its reason; one whose score lacks a feature has the reason `criterion_unscored`.
    Interval, risk and level probabilities are null where there were too few labels to tell, and in a row that lacks a
    signal that they go by.
    """
    name, fold = calibration.calibration_id, _folds(calibration, item.rows)
    if (fold < 0).all():
        return _predicted(calibration, item, name)
    parts = [(fold < 0, calibration), *((fold == k, calibration.without(k)) for k in range(len(calibration.folds)))]
    found = pa.concat_tables(_predicted(mapping, item.filter(rows), name) for rows, mapping in parts)
    return found.take(np.argsort(np.concatenate([np.flatnonzero(rows) for rows, _ in parts])))


def _predicted(calibration: ScaleMapping, item: Item, calibration_id: str) -> pa.Table:
    """Predictions by one fit, under the name that it is stored by."""
    gradings, bundle = item.rows, item.bundle
    raw = floats(gradings["score"])
    inputs_of_mapping, signals, hints = _features(calibration, gradings, bundle)
    inputs = StackedRows(inputs_of_mapping, item.blocks, np.full(len(gradings), item.item_id))
    mapped, points, ready = _mapped(calibration, inputs, is_scored(gradings), bundle)
    predicted = _by_distribution(calibration.spread, mapped, signals, calibration.unit(bundle.scale), bundle.scale)
    predicted = predicted._replace(
        risk=_learned_risk(calibration.spread, mapped, predicted.risk, hints, item.item_id, bundle.scale)
    )
    prechecked = pc.equal(gradings["status"], "precheck").to_numpy()
    score = np.where(prechecked, raw, mapped.score)
    rule = calibration.rule(item.item_id, bundle.scale)
    route_reason = reasons(score, prechecked, is_weak(gradings), mapped.clipped, predicted.risk, rule)
    unscored_reason = pc.fill_null(gradings["unscored_reason"], "criterion_unscored")
    columns = {
        "response_id": gradings["response_id"],
        "item_id": gradings["item_id"],
        "rater_id": gradings["rater_id"],
        "calibration_id": pc.if_else(pa.array(ready), calibration_id, None),
        "raw": _nullable(raw),
        "latent": _nullable(mapped.latent),
        "aligned": _nullable(mapped.aligned),
        "points_judge": _nullable(points.judge),
        "points_text": _nullable(points.text),
        "points_item": _nullable(points.item),
        "text_only": _nullable(_text_only(calibration.text_only, inputs, ready, bundle.scale)),
        "score": _nullable(score),
        "clipped": pa.array(mapped.clipped),
        "low": _nullable(predicted.low),
        "high": _nullable(predicted.high),
        "risk": _nullable(predicted.risk),
        "level_probabilities": _lists(predicted.levels),
        "route": pc.if_else(pc.is_null(route_reason), "release", "review"),
        "route_reason": route_reason,
        "unscored_reason": pc.if_else(pa.array(np.isnan(score)), unscored_reason, None),
    }
    return pa.table(columns)


def _folds(calibration: ScaleMapping, rows: pa.Table) -> Ints:
    """The fold that each crossed label was left out with, (n,), -1 for all other rows."""
    if not calibration.folds or "split" not in rows.column_names:
        return np.full(len(rows), -1)
    fold_of = {cluster: k for k, fold in enumerate(calibration.folds) for cluster in fold.clusters}
    crossed = pc.equal(rows["split"], "crossed").to_pylist()
    return np.array([fold_of.get(c, -1) if of else -1 for c, of in zip(clusters(rows), crossed, strict=True)], int)


def _nullable(values: Floats) -> pa.Array:
    """A column, null where a value is NaN."""
    return pa.array(values, from_pandas=True)


def _features(calibration: ScaleMapping, gradings: pa.Table, bundle: Bundle) -> tuple[Floats, Floats, Floats]:
    """The features that the mapping takes, the signals of its spread and the features of its error model, (n, d) each,
    NaN where absent."""
    spread = calibration.spread
    of_spread, of_errors = (spread.signals, spread.hints) if spread else ((), ())
    names = list(dict.fromkeys([*calibration.features, *of_spread, *of_errors]))
    values = without_absent_counts(matrix(gradings, bundle, names, calibration.pooled), names)
    column = {name: index for index, name in enumerate(names)}

    def columns(chosen: Sequence[str]) -> Floats:
        return values[:, [column[name] for name in chosen]]

    return columns(calibration.features), columns(of_spread), columns(of_errors)


def _mapped(
    calibration: ScaleMapping, rows: StackedRows, scored: Bools, bundle: Bundle
) -> tuple[Aligned, Points, Bools]:
    """The aligned rows and what adds to them, NaN where a row cannot be mapped or a method does not tell, and whether
    it can, (n,). ContractError without the blocks that a stack was fitted on."""
    needed = _blocks(calibration.mapping) | _blocks(calibration.text_only)
    if lacking := sorted(needed - rows.blocks.keys()):
        raise ContractError(f"calibration {calibration.calibration_id[:12]} goes by {', '.join(lacking)} of the texts")
    ready = scored & np.isfinite(rows.matrix).all(axis=1)
    latent, aligned, score, judge, text, item = np.full((6, len(ready)), np.nan)
    clipped = np.zeros(len(ready), dtype=np.bool_)
    unit, scale = calibration.unit(bundle.scale), bundle.scale.bounds
    if isinstance(calibration.mapping, Stack):
        mapped, points = apply_stack(calibration.mapping, _some(rows, ready), scale)
        judge[ready], text[ready], item[ready] = points
    else:
        matrix = rows.matrix[ready]
        mapped = apply_method(calibration.mapping, matrix, _offset(calibration, rows), (unit.min, unit.max), scale)
    latent[ready], aligned[ready], score[ready], clipped[ready] = mapped
    return Aligned(latent, aligned, score, clipped), Points(judge, text, item), ready


def _blocks(mapping: Mapping) -> set[str]:
    """What of the text a mapping takes."""
    return {block.name for block in mapping.blocks} - PARTS.keys() if isinstance(mapping, Stack) else set()


def _text_only(stack: Stack | None, rows: StackedRows, ready: Bools, scale: Scale) -> Floats:
    """The baseline's score of every row that has a calibrated one, (n,), NaN without a baseline."""
    score = np.full(len(ready), np.nan)
    if stack is not None:
        score[ready] = apply_stack(stack, _some(rows, ready), scale.bounds)[0].score
    return score


def _offset(calibration: ScaleMapping, rows: StackedRows) -> float:
    """What a curve adds to the scores of the rows' item."""
    if isinstance(calibration.mapping, ScoreCurve) and len(rows.item):
        return calibration.mapping.offset(str(rows.item[0]))
    return 0.0


def _some(rows: StackedRows, chosen: Bools) -> StackedRows:
    return StackedRows(rows.matrix[chosen], taken(rows.blocks, chosen), rows.item[chosen])


def _by_distribution(
    spread: Spread | None, mapped: Aligned, signals: Floats, unit: Scale, scale: Scale
) -> PredictedScores:
    """What the spread tells of aligned rows; signals: (n, d); unit: the scale that the spread was fitted on."""
    n = len(mapped.aligned)
    low, high, risk = np.full((3, n), np.nan)
    levels = np.full((n, scale.levels), np.nan)
    is_known = np.isfinite(mapped.aligned) & np.isfinite(signals).all(axis=1)
    if spread is None or not is_known.any():
        return PredictedScores(low, high, risk, levels)
    aligned, epsilon, top = mapped.aligned[is_known], np.array(spread.epsilon), scale.levels - 1
    fitted = stretch(aligned, (scale.min, scale.max), unit.bounds)
    sigma = sigmas(spread.sigma, fitted, signals[is_known]) / (unit.max - unit.min)
    steps, sigma_steps = (aligned - scale.min) / scale.step, sigma * top
    level = to_levels(mapped.score[is_known], *scale.bounds).astype(np.float64)
    reach = np.inf if spread.reach is None else spread.reach
    q = reach * sigma * (scale.max - scale.min)
    low[is_known], high[is_known] = interval(aligned, q, scale.bounds, spread.grain)
    risk[is_known] = risks(steps, sigma_steps, level, top, epsilon, tolerance=spread.tolerance, grain=spread.grain)
    levels[is_known] = level_probabilities(steps, sigma_steps, top, epsilon)
    return PredictedScores(low, high, risk, levels)


def _learned_risk(
    spread: Spread | None, mapped: Aligned, by_distribution: Floats, hints: Floats, item_id: str, scale: Scale
) -> Floats:
    """Risk by the error model, (n,), NaN where a row lacks what it takes; as told where none was learned.

    told: (n,) by the distribution; hints: (n, d) the features that the model takes.
    """
    if spread is None or spread.errors is None:
        return by_distribution
    is_known = np.isfinite(by_distribution) & np.isfinite(hints).all(axis=1)
    level = to_levels(mapped.score[is_known], *scale.bounds).astype(np.float64)
    steps, top = (mapped.aligned[is_known] - scale.min) / scale.step, np.full(len(level), scale.levels - 1.0)
    risk = np.full(len(by_distribution), np.nan)
    effect = spread.errors.effect(item_id)
    risk[is_known] = error_risk(
        spread.errors, Placed(steps, level, top, by_distribution[is_known]), hints[is_known], effect
    )
    return risk


def _lists(levels: Floats) -> pa.Array:
    """Rows of a matrix as lists, null where a row is NaN."""
    there = ~np.isnan(levels).any(axis=1)
    ends = np.concatenate([[0], np.cumsum(there) * levels.shape[1]])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(levels[there].ravel()), mask=pa.array(~there))
