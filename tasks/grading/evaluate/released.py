"""Intervals, risks and routes of the calibrated scores, held against the target on held-out responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import beta

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import Stat, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import Interval, draw_totals, interval, sums_by_code
from rubricflow.tasks.core.stats.conformal import augrc, aurc, oracle_aurc, random_aurc
from rubricflow.tasks.core.stats.ordinal import ordinal_ece, rps
from rubricflow.tasks.core.stats.promise import missed_by_constant
from rubricflow.tasks.core.stats.scores import level_probabilities
from rubricflow.tasks.grading.evaluate.agree import both_scored
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, record

SLACK = 1e-9
EXACT = "none: exact binomial"
"""In place of what was resampled: errors among the released are too few to resample."""
_BESIDE = ("item_id", "cluster", "row", "route", "low", "high", "risk")
"""Columns of the score frame that are looked at beside the scores."""


def released(
    part: ScoreSlice,
    scales: Mapping[str, ScaleBounds],
    likely: pa.ChunkedArray,
    plan: Release,
    machine: str,
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """How many scores go out, how many of those are further off than the tolerance, and how many the best constant
    score of each item would be, chosen on these very responses; whether the intervals hold what
    they promise; how well the risk ranks the errors; how good the level probabilities are."""
    rows = both_scored(part.rows, TARGET, "calibrated", beside=_BESIDE)
    if rows.empty:
        return
    off = errors_in_steps(rows, scales)
    wrong, out = off > plan.tolerance + SLACK, (rows["route"] == "release").to_numpy()
    lost = int(part.rows[TARGET].notna().sum()) - len(rows)
    names, codes = (TARGET, machine), rows["cluster"].to_numpy()

    went, ends = share(out.astype(float), np.ones(len(out)), codes, draws, seed)
    yield record(part, "released_share", went, len(rows), stage="released", raters=names, interval=ends)
    missed = np.zeros_like(out)
    for item, at in rows.groupby("item_id", sort=False).indices.items():
        lowest, highest, step = scales[str(item)]
        human = (rows[TARGET].to_numpy(float)[at] - lowest) / step
        missed[at] = missed_by_constant(human, level_count(lowest, highest, step) - 1, plan.tolerance)
    for stage, chosen in (("released", out), ("calibrated", np.ones_like(out))):
        n = int(chosen.sum())
        for name, flags in (("beyond_tolerance", wrong), ("constant_beyond_tolerance", missed)):
            bad = int((flags & chosen).sum())
            value = Stat(bad / n) if n else Stat(None, "nothing is released")
            yield record(part, name, value, n, stage=stage, raters=names, interval=binomial(bad, n), resampled=EXACT)
    bounded = rows[["low", "high"]].notna().all(axis=1).to_numpy()
    if bounded.any():
        low, high, human = (rows[name].to_numpy(float) for name in ("low", "high", TARGET))
        steps = _steps(rows, scales)
        covered = (human >= low - SLACK) & (human <= high + SLACK)
        for name, top in (("interval_coverage", covered), ("interval_width", (high - low) / steps)):
            value, ends = share(np.where(bounded, top, 0.0), bounded.astype(float), codes, draws, seed)
            yield record(part, name, value, int(bounded.sum()), stage="calibrated", raters=names, interval=ends)
    yield from _ranking(part, rows, off, lost, names)
    yield from _probabilities(part, rows, likely, names)


def errors_in_steps(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> Floats:
    """Absolute differences between the calibrated score and the target, in steps of each item's scale."""
    gap = (rows["calibrated"] - rows[TARGET]).abs().to_numpy(float)
    return np.asarray(gap / _steps(rows, scales), dtype=np.float64)


def _steps(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> Floats:
    steps = rows["item_id"].map({item: bounds[2] for item, bounds in scales.items()})
    return np.asarray(steps, dtype=np.float64)


def share(top: Floats, bottom: Floats, codes: Ints, draws: int, seed: int) -> tuple[Stat, Interval | None]:
    """Sum of `top` over sum of `bottom` with its cluster bootstrap interval; None where `bottom` sums to zero."""
    if not bottom.sum():
        return Stat(None, "undefined: no rows"), None
    value = Stat(float(top.sum() / bottom.sum()))
    if not draws:
        return value, None
    sums = sums_by_code(np.column_stack([top, bottom]).astype(float), codes, int(codes.max()) + 1)
    # A cluster code without rows here belongs to another part of the set.
    sums = sums[np.bincount(codes, minlength=len(sums)) > 0]
    (totals,) = draw_totals([sums], draws, seed)
    ratios = np.divide(totals[:, 0], totals[:, 1], out=np.full(draws, np.nan), where=totals[:, 1] > 0)
    return value, interval(ratios, len(sums))


def binomial(count: int, n: int, level: float = 0.95) -> Interval | None:
    """Exact interval of a share (Clopper and Pearson 1934); it takes the cases as independent."""
    if not n:
        return None
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, n - count)) if count < n else 1.0
    return Interval(low, high, 0)


def _ranking(part: ScoreSlice, rows: pd.DataFrame, off: Floats, lost: int, names: tuple[str, str]) -> Iterator[Record]:
    has_risk = rows["risk"].notna().to_numpy()
    if has_risk.sum() < 2:
        return
    loss, confidence = off[has_risk], -rows["risk"].to_numpy(float)[has_risk]
    figures = {
        "aurc": aurc(loss, confidence),
        "augrc": augrc(loss, confidence),
        "aurc_oracle": oracle_aurc(loss),
        "aurc_random": random_aurc(loss),
    }
    for name, value in figures.items():
        yield record(
            part,
            name,
            Stat(value),
            int(has_risk.sum()),
            stage="calibrated",
            raters=names,
            unscored=lost + int((~has_risk).sum()),
        )


def _probabilities(
    part: ScoreSlice, rows: pd.DataFrame, likely: pa.ChunkedArray, names: tuple[str, str]
) -> Iterator[Record]:
    if part.scale is None:
        return
    with_risk = rows[rows["risk"].notna()]
    if with_risk.empty:
        return
    chances, levels = level_probabilities(likely, with_risk["row"]), to_levels(with_risk[TARGET], *part.scale)
    for name, stat in (("ece", ordinal_ece(chances, levels)), ("rps", rps(chances, levels))):
        yield record(part, name, stat, len(with_risk), stage="calibrated", raters=names)
