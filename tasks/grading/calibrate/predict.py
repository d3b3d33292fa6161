"""Applying a fitted mapping to gradings: those of its run, and these with levels that people set."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.conformal import interval
from rubricflow.tasks.grading.calibrate.alignment import stretch, towards
from rubricflow.tasks.grading.calibrate.calibration import ScaleMapping
from rubricflow.tasks.grading.calibrate.features import floats, is_scored, is_weak, matrix, without_absent_counts
from rubricflow.tasks.grading.calibrate.methods import apply_mapping
from rubricflow.tasks.grading.calibrate.release import reasons
from rubricflow.tasks.grading.calibrate.rows import Item, clusters
from rubricflow.tasks.grading.calibrate.spread import Placed, error_risk, level_probabilities, risks, sigmas
from rubricflow.tasks.grading.calibrate.stack import PARTS, Stack, StackedRows, apply_stack
from rubricflow.tasks.grading.calibrate.texts import taken


def predict(calibration: ScaleMapping, item: Item) -> pa.Table:
    """Predictions for one item's gradings, one per response: all columns of `predictions` except `split`.

    item: its rows the columns GRADING, `split` and `author_id`: crossed labels are predicted without their fold. A
    prechecked grading keeps its raw score: no mapping was fitted for it. An unscored one has no score but its reason;
    one whose score lacks a feature has the reason `criterion_unscored`.
    Interval, risk and level probabilities are null where there were too few labels to tell, and in a row that lacks a
    signal that they go by.
    """
    name, fold = calibration.calibration_id, np.full(len(item.rows), -1)
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
    gradings, bundle, spread = item.rows, item.bundle, calibration.spread
    raw, scale, n = floats(gradings["score"]), bundle.scale, len(gradings)
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
        top, epsilon = scale.levels - 1, np.array(spread.epsilon)
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
