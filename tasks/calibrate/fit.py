"""Which mapping each item gets, fitted on the labelled rows of the calibration split and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.calibrate.alignment import Alignment, fit
from tasks.calibrate.calibration import POOLED, Calibration
from tasks.calibrate.features import Features, features, floats, shares
from tasks.calibrate.rows import Item
from tasks.contracts.bundle import Scale
from tasks.stats.agreement import Floats

FEWEST_POOLED = 10
"""Usable labels that a pooled mapping needs."""
UNIT = Scale(min=0, max=1)


def fit_items(
    items: Sequence[Item], rater_id: str, target: str, minimum: int, alpha: float = 2.5
) -> dict[str, Calibration]:
    """Item -> its mapping: its own given `minimum` usable labels, else one pooled over all items without their own.

    Usable is a row of the calibration split with a human score, judged, scored and with every feature. In the pool
    scores are shares of each item's scale. The mapping is the identity where the pool has fewer than ten usable labels
    and where the judge gives no feature. The order of items and rows does not matter, to the last bit.
    """
    found: dict[str, Calibration] = {}
    pool: list[Item] = []
    for item in sorted(items, key=lambda item: item.item_id):
        known = item._replace(rows=labelled(item.rows))
        given = features([(known.rows, known.bundle)], pooled=False)
        if given.usable.sum() < minimum:
            pool.append(known)
            continue
        alignment = _fit(given, floats(known.rows["target"]), known.bundle.scale, alpha)
        found[item.item_id] = _calibration(known, given, alignment, rater_id, target)
    if pool:
        given = features([(item.rows, item.bundle) for item in pool], pooled=True)
        human = np.concatenate([shares(floats(item.rows["target"]), item.bundle.scale) for item in pool])
        alignment = _fit(given, human, UNIT, alpha) if given.usable.sum() >= FEWEST_POOLED else None
        pooled = _calibration(None, given, alignment, rater_id, target)
        found |= {item.item_id: pooled for item in pool}
    return found


def labelled(rows: pa.Table) -> pa.Table:
    """The rows that a fit may look at: those of the calibration split with a human score."""
    return rows.filter(pc.and_(pc.equal(rows["split"], "calibration"), pc.is_valid(rows["target"])))


def _fit(given: Features, human: Floats, scale: Scale, alpha: float) -> Alignment | None:
    if not given.names:
        return None
    return fit(given.matrix[given.usable], human[given.usable], scale.min, scale.max, alpha)


def _calibration(
    item: Item | None, given: Features, alignment: Alignment | None, rater_id: str, target: str
) -> Calibration:
    """The mapping of an item or, without one, of the pool."""
    return Calibration(
        scope=item.item_id if item else POOLED,
        bundle_id=item.bundle.bundle_id if item else None,
        rater_id=rater_id,
        method="rulers" if alignment else "identity",
        features=given.names if alignment else (),
        left_out=given.left_out,
        n=int(given.usable.sum()),
        target=target,
        alignment=alignment,
    )
