"""Which marks are awarded how often, and what the score owes to single criteria and to sheer length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy.stats import binom

from tasks.evaluate.agree import both_scored
from tasks.evaluate.released import share
from tasks.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, on_one_scale, record
from tasks.stats.agreement import Stat, level_count, pearson, to_levels
from tasks.stats.arrays import Floats, Ints
from tasks.stats.bootstrap import Interval, draw_totals, interval, sums_by_code
from tasks.stats.target import OF_SEVERAL

NEARLY_ALL = 0.95
"""Share of an item's scores on one level from which they are as good as constant."""
CHANCE = 0.05
COUNTED = "none: counted"
"""In place of what was resampled: a count of what is there."""
FEWEST = 30
"""Responses that a correlation of one criterion needs."""


def level_shares(
    part: ScoreSlice, raters: list[str], machine: str, target: str, draws: int, seed: int
) -> Iterator[Record]:
    """Share of the responses at each level of the scale, the people's and the machine's, and the gap.

    Where the target is made of several people's marks, theirs are counted, not what is made of them: it lies between
    levels.
    """
    people = [f"human:{name}" for name in raters] if target in OF_SEVERAL else [TARGET]
    rows = both_scored(part.rows, TARGET, "calibrated")
    if part.scale is None or rows.empty:
        return
    marks = rows[people].to_numpy(float)
    given = ~np.isnan(marks)
    levels = to_levels(np.where(given, marks, part.scale[0]), *part.scale)
    own, ones, codes = to_levels(rows["calibrated"], *part.scale), np.ones(len(rows)), rows["cluster"].to_numpy()
    for level in range(level_count(*part.scale)):
        human = ((levels == level) & given).sum(axis=1) / given.sum(axis=1)
        gap, found = share((own == level) - human, ones, codes, draws, seed)
        at = part._replace(slice="level", value_of=f"{part.scale[0] + level * part.scale[2]:g}")
        names = (TARGET, machine)
        yield record(
            at, "level_share", Stat(float(human.mean())), len(rows), stage="human", raters=("people", "people")
        )
        yield record(at, "level_share", Stat(float(np.mean(own == level))), len(rows), stage="calibrated", raters=names)
        yield record(at, "level_share_gap", gap, len(rows), stage="calibrated", raters=names, interval=found)


def spread(part: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str) -> Iterator[Record]:
    """Standard deviation of the machine's scores over that of the target: below 1 where extremes are avoided."""
    rows = on_one_scale(part._replace(rows=both_scored(part.rows, TARGET, "raw", "calibrated")), scales).rows
    if len(rows) < 2:
        return
    people = rows[TARGET].std()
    for stage in ("raw", "calibrated"):
        value = Stat(float(rows[stage].std() / people)) if people > 0 else Stat(None, "undefined: target constant")
        yield record(part, "sd_ratio", value, len(rows), stage=stage, raters=(TARGET, machine))


def variety(part: ScoreSlice, machine: str) -> Iterator[Record]:
    """How many levels hold nearly all of an item's calibrated scores, counted from the commonest on: 1 where a mapping
    gives everyone one grade.

    Nothing where people's own grades would as easily fall on one level: that one does is no fault of the machine then.
    """
    rows = both_scored(part.rows, TARGET, "calibrated")
    if part.slice != "item" or part.scale is None or rows.empty:
        return
    own, human = (np.sort(np.bincount(to_levels(rows[name], *part.scale)))[::-1] for name in ("calibrated", TARGET))
    held = int(np.searchsorted(np.cumsum(own), NEARLY_ALL * len(rows)) + 1)
    if held == 1 and binom.sf(own[0] - 1, len(rows), human[0] / len(rows)) > CHANCE:
        return
    yield record(
        part,
        "levels_used",
        Stat(float(held)),
        len(rows),
        stage="calibrated",
        raters=(TARGET, machine),
        interval=Interval(held, held, 0),
        resampled=COUNTED,
    )


def again(part: ScoreSlice, machine: str, draws: int, seed: int) -> Iterator[Record]:
    """Share of the responses judged more than once that got the same raw score every time."""
    rows = part.rows[part.rows["again"].notna()] if "again" in part.rows else part.rows.iloc[:0]
    if len(rows):
        value, found = share(rows["again"].to_numpy(float), np.ones(len(rows)), rows["cluster"].to_numpy(), draws, seed)
        yield record(part, "same_again", value, len(rows), stage="raw", raters=(machine, machine), interval=found)


def validity(
    part: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """How much of what the score explains of the target length alone explains, and each criterion's correlation with
    the target, plain and given length."""
    if "signal:length" not in part.rows:
        return
    single = on_one_scale(part, scales)
    rows = both_scored(single.rows, TARGET, "calibrated", "signal:length")
    if len(rows) < FEWEST:
        return
    columns = [rows[name].to_numpy(float) for name in (TARGET, "calibrated", "signal:length")]
    yield _by_length(part, columns, rows["cluster"].to_numpy(), machine, draws, seed)
    if part.slice != "item":
        return
    for name in [name for name in rows.columns if name.startswith("signal:criterion.")]:
        known = rows[rows[name].notna()]
        if len(known) < FEWEST:
            continue
        human, own, length = (known[c].to_numpy(float) for c in (TARGET, name, "signal:length"))
        at = part._replace(slice="criterion", value_of=f"{part.value_of} / {name.removeprefix('signal:criterion.')}")
        for metric, stat in (
            ("criterion_r", pearson(human, own)),
            ("criterion_partial_r", _partial(human, own, length)),
        ):
            yield record(at, metric, stat, len(known), stage="raw", raters=(TARGET, machine))


def _by_length(
    part: ScoreSlice,
    columns: list[Floats],
    codes: Ints,
    machine: str,
    draws: int,
    seed: int,
) -> Record:
    terms = np.column_stack(
        [np.ones(len(codes)), *columns, *(a * b for i, a in enumerate(columns) for b in columns[i:])]
    )
    sums = sums_by_code(terms, codes, int(codes.max()) + 1)
    sums = sums[np.bincount(codes, minlength=len(sums)) > 0]
    value = float(_length_share(sums.sum(axis=0, keepdims=True))[0])
    found = interval(_length_share(draw_totals([sums], draws, seed)[0]), len(sums)) if draws else None
    stat = Stat(None, "undefined: constant scores") if np.isnan(value) else Stat(value)
    return record(part, "length_share", stat, len(codes), stage="calibrated", raters=(TARGET, machine), interval=found)


def _length_share(totals: Floats) -> Floats:
    """Squared correlation of length with the target over the squared multiple correlation of score and length."""
    n, h, m, x, hh, hm, hx, mm, mx, xx = totals.T
    s_hh, s_mm, s_xx = hh - h * h / n, mm - m * m / n, xx - x * x / n
    s_hm, s_hx, s_mx = hm - h * m / n, hx - h * x / n, mx - m * x / n
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hm, r_hx, r_mx = s_hm / np.sqrt(s_hh * s_mm), s_hx / np.sqrt(s_hh * s_xx), s_mx / np.sqrt(s_mm * s_xx)
        whole = (r_hm**2 + r_hx**2 - 2 * r_hm * r_hx * r_mx) / (1 - r_mx**2)
        found = np.clip(r_hx**2 / whole, 0.0, 1.0)
    return np.where(np.isfinite(found), found, np.nan)


def _partial(human: Floats, own: Floats, given: Floats) -> Stat:
    found = [pearson(human, own).value, pearson(human, given).value, pearson(own, given).value]
    if None in found:
        return Stat(None, "undefined: constant scores")
    r, with_human, with_own = (float(value or 0.0) for value in found)
    rest = (1 - with_human**2) * (1 - with_own**2)
    return Stat((r - with_human * with_own) / rest**0.5) if rest > 0 else Stat(None, "undefined: length explains all")
