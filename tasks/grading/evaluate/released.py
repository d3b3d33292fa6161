"""Intervals, risks and routes of the calibrated scores, held against the target on held-out responses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import Stat, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, Ints, ratio
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_sums, draw_totals, interval
from rubricflow.tasks.core.stats.conformal import augrc, aurc, oracle_aurc, random_aurc
from rubricflow.tasks.core.stats.probability import ordinal_ece, rps
from rubricflow.tasks.core.stats.promise import exact_interval, missed_by_constant
from rubricflow.tasks.core.stats.scores import level_probabilities
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScoreSlice, Setting, both_scored, record

SLACK = 1e-9
EXACT = "none: exact binomial"
"""In place of what was resampled: errors among the released are too few to resample."""
_BESIDE = ("item_id", "cluster", "row", "route", "low", "high", "risk")
"""Columns of the score frame that are looked at next to the scores."""


def released(part: ScoreSlice, likely: pa.ChunkedArray, plan: Release, on: Setting) -> Iterator[Record]:
    """How many scores go out, how many of those are further off than the tolerance, and how many the best constant
    score of each item would be, chosen on these very responses; whether the intervals hold what
    they promise; how well the risk ranks the errors; how good the level probabilities are."""
    rows = both_scored(part.rows, TARGET, "calibrated", also=_BESIDE)
    if rows.empty:
        return
    steps = on.of_item(rows, 2)
    off: Floats = np.abs(rows["calibrated"].to_numpy(float) - rows[TARGET].to_numpy(float)) / steps
    wrong, out = off > plan.tolerance + SLACK, (rows["route"] == "release").to_numpy()
    codes, ones = rows["cluster"].to_numpy(), np.ones(len(rows))
    went, ends = share(out.astype(float), ones, codes, on)
    yield record(part, "released_share", went, len(rows), stage="released", raters=on.raters, interval=ends)
    missed = np.zeros_like(out)
    for item, at in rows.groupby("item_id", sort=False).indices.items():
        lowest, highest, step = on.scales[str(item)]
        human = (rows[TARGET].to_numpy(float)[at] - lowest) / step
        missed[at] = missed_by_constant(human, level_count(lowest, highest, step) - 1, plan.tolerance)
    for stage, chosen in (("released", out), ("calibrated", np.ones_like(out))):
        n = int(chosen.sum())
        for name, flags in (("beyond_tolerance", wrong), ("constant_beyond_tolerance", missed)):
            bad = int((flags & chosen).sum())
            value, ends = Stat(None, "nothing is released"), None
            if n:
                value, ends = Stat(bad / n), Interval(*exact_interval(bad, n), 0)
            yield record(part, name, value, n, stage=stage, raters=on.raters, interval=ends, resampled=EXACT)
    bounded = rows[["low", "high"]].notna().all(axis=1).to_numpy()
    if bounded.any():
        low, high, human = (rows[name].to_numpy(float) for name in ("low", "high", TARGET))
        covered = (human >= low - SLACK) & (human <= high + SLACK)
        for name, top in (("interval_coverage", covered), ("interval_width", (high - low) / steps)):
            value, ends = share(np.where(bounded, top, 0.0), bounded.astype(float), codes, on)
            yield record(part, name, value, int(bounded.sum()), raters=on.raters, interval=ends)
    has_risk = rows["risk"].notna().to_numpy()
    n = int(has_risk.sum())
    if n > 1:
        loss, confidence = off[has_risk], -rows["risk"].to_numpy(float)[has_risk]
        order = {"aurc": aurc(loss, confidence), "augrc": augrc(loss, confidence)}
        order |= {"aurc_oracle": oracle_aurc(loss), "aurc_random": random_aurc(loss)}
        unscored = int(part.rows[TARGET].notna().sum()) - n
        for name, figure in order.items():
            yield record(part, name, Stat(figure), n, raters=on.raters, unscored=unscored)
    if n and part.scale is not None:
        with_risk = rows[has_risk]
        chances, levels = level_probabilities(likely, with_risk["row"]), to_levels(with_risk[TARGET], *part.scale)
        for name, stat in (("ece", ordinal_ece(chances, levels)), ("rps", rps(chances, levels))):
            yield record(part, name, stat, n, raters=on.raters)


def share(top: Floats, bottom: Floats, codes: Ints, on: Setting) -> tuple[Stat, Interval | None]:
    """Sum of `top` over sum of `bottom` with its cluster bootstrap interval; None where `bottom` sums to zero."""
    if not bottom.sum():
        return Stat(None, "undefined: no rows"), None
    value = Stat(float(top.sum() / bottom.sum()))
    if not on.draws:
        return value, None
    # A cluster code without rows here belongs to another part of the set.
    sums = cluster_sums(np.column_stack([top, bottom]).astype(float), codes)
    (totals,) = draw_totals([sums], on.draws, on.seed)
    return value, interval(ratio(*totals.T), len(sums))
