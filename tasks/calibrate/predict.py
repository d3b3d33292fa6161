"""Applying a fitted mapping to gradings: those of its run, or new ones later."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.calibrate.alignment import Aligned, apply, snap
from tasks.calibrate.calibration import Calibration, read_calibration
from tasks.calibrate.features import Mask, floats, is_scored, matrix, without_absent_counts
from tasks.calibrate.rows import only_rater
from tasks.calibrate.samples import one_per_response
from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import ContractError


def apply_later(content: str, gradings: pa.Table, bundle: Bundle) -> pa.Table:
    """Predictions for gradings of one item by a stored calibration; for those of its run, the run's predictions.

    content: column `content` of a row of `calibrations`; gradings: rows of `gradings`; bundle: the item's. Columns as
    in `predict`. ContractError for content that this version cannot read and for another rater, item or bundle than
    it was fitted for; a pooled one is for any item whose bundle gives its features.
    """
    calibration = read_calibration(content)
    rater, items = only_rater(gradings), pc.unique(gradings["item_id"]).to_pylist()
    if rater not in ("", calibration.rater_id):
        raise ContractError(f"calibration was fitted for rater '{calibration.rater_id}', not for '{rater}'")
    if not calibration.pooled and (bundle.bundle_id != calibration.bundle_id or set(items) - {calibration.scope}):
        raise ContractError(
            f"calibration was fitted for item '{calibration.scope}' under bundle {str(calibration.bundle_id)[:12]}, "
            f"not for {items} under {bundle.bundle_id[:12]}"
        )
    return predict(calibration, one_per_response(gradings), bundle)


def predict(calibration: Calibration, gradings: pa.Table, bundle: Bundle) -> pa.Table:
    """Predictions for one item's gradings, one per response: all columns of `predictions` except `split`.

    A prechecked grading keeps its raw score: no mapping was fitted for it. An unscored one has no score but its
    reason; one whose score lacks a feature has the reason `criterion_unscored`.
    """
    raw = floats(gradings["score"])
    mapped, ready = _mapped(calibration, gradings, bundle)
    score = np.where(pc.equal(gradings["status"], "precheck").to_numpy(), raw, mapped.score)
    reason = pc.fill_null(gradings["unscored_reason"], "criterion_unscored")
    columns = {
        "response_id": gradings["response_id"],
        "item_id": gradings["item_id"],
        "rater_id": gradings["rater_id"],
        "calibration_id": pc.if_else(pa.array(ready), calibration.calibration_id, None),
        "raw": pa.array(raw, from_pandas=True),
        "latent": pa.array(mapped.latent, from_pandas=True),
        "aligned": pa.array(mapped.aligned, from_pandas=True),
        "score": pa.array(score, from_pandas=True),
        "clipped": pa.array(mapped.clipped),
        "unscored_reason": pc.if_else(pa.array(np.isnan(score)), reason, None),
    }
    return pa.table(columns)


def _mapped(calibration: Calibration, gradings: pa.Table, bundle: Bundle) -> tuple[Aligned, Mask]:
    """The aligned rows, NaN where a row cannot be mapped, and whether it can, shape (n,)."""
    ready = is_scored(gradings)
    latent, aligned, score = np.full((3, len(ready)), np.nan)
    clipped = np.zeros(len(ready), dtype=np.bool_)
    scale = bundle.scale.bounds
    if calibration.alignment is None:
        score[ready] = snap(floats(gradings["score"])[ready], scale)
    else:
        found = matrix(gradings, bundle, calibration.features, calibration.pooled)
        found = without_absent_counts(found, calibration.features)
        ready &= np.isfinite(found).all(axis=1)
        mapped = apply(calibration.alignment, found[ready], scale)
        latent[ready], aligned[ready], score[ready], clipped[ready] = mapped
    return Aligned(latent, aligned, score, clipped), ready
