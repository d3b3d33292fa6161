"""Which marks are awarded how often, and what the score owes to single criteria and to sheer length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement

import numpy as np
from scipy.stats import binom

from rubricflow.tasks.core.stats.agreement import Stat, level_count, pearson, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import Interval, draw_totals, interval, sums_by_code
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.grading.evaluate.agree import both_scored
from rubricflow.tasks.grading.evaluate.released import share
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, on_one_scale, record

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
    rows = both_scored(part.rows, TARGET, "calibrated", beside=[*people, "cluster"])
    if part.scale is None or rows.empty:
        return
    marks = rows[people].to_numpy(float)
    is_marked = ~np.isnan(marks)
    levels = to_levels(np.where(is_marked, marks, part.scale[0]), *part.scale)
    machine_levels = to_levels(rows["calibrated"], *part.scale)
    ones, codes = np.ones(len(rows)), rows["cluster"].to_numpy()
    for level in range(level_count(*part.scale)):
        human = ((levels == level) & is_marked).sum(axis=1) / is_marked.sum(axis=1)
        gap, ends = share((machine_levels == level) - human, ones, codes, draws, seed)
        of_people, of_machine = Stat(float(human.mean())), Stat(float(np.mean(machine_levels == level)))
        name = f"{part.scale[0] + level * part.scale[2]:g}"
        on_level = part._replace(slice="level", value_of=name)
        n, names = len(rows), (TARGET, machine)
        yield record(on_level, "level_share", of_people, n, stage="human", raters=("people", "people"))
        yield record(on_level, "level_share", of_machine, n, stage="calibrated", raters=names)
        yield record(on_level, "level_share_gap", gap, n, stage="calibrated", raters=names, interval=ends)


def spread(part: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str) -> Iterator[Record]:
    """Standard deviation of the machine's scores over that of the target: below 1 where extremes are avoided."""
    scored = both_scored(part.rows, TARGET, "raw", "calibrated", beside=["item_id"])
    rows = on_one_scale(part._replace(rows=scored), scales).rows
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
    levels = [to_levels(rows[name], *part.scale) for name in ("calibrated", TARGET)]
    machine_counts, human_counts = (np.sort(np.bincount(column))[::-1] for column in levels)
    levels_used = int(np.searchsorted(np.cumsum(machine_counts), NEARLY_ALL * len(rows)) + 1)
    if levels_used == 1 and binom.sf(machine_counts[0] - 1, len(rows), human_counts[0] / len(rows)) > CHANCE:
        return
    yield record(
        part,
        "levels_used",
        Stat(float(levels_used)),
        len(rows),
        stage="calibrated",
        raters=(TARGET, machine),
        interval=Interval(levels_used, levels_used, 0),
        resampled=COUNTED,
    )


def again(part: ScoreSlice, machine: str, draws: int, seed: int) -> Iterator[Record]:
    """Share of the responses judged more than once that got the same raw score every time."""
    rows = part.rows[part.rows["again"].notna()] if "again" in part.rows else part.rows.iloc[:0]
    if len(rows):
        value, ends = share(rows["again"].to_numpy(float), np.ones(len(rows)), rows["cluster"].to_numpy(), draws, seed)
        yield record(part, "same_again", value, len(rows), stage="raw", raters=(machine, machine), interval=ends)


def validity(
    part: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """How much of what the score explains of the target length alone explains, and each criterion's correlation with
    the target, plain and given length."""
    if "signal:length" not in part.rows:
        return
    single = on_one_scale(part, scales)
    criteria = [name for name in part.rows.columns if name.startswith("signal:criterion.") and part.slice == "item"]
    rows = both_scored(single.rows, TARGET, "calibrated", "signal:length", beside=[*criteria, "cluster"])
    if len(rows) < FEWEST:
        return
    columns = [rows[name].to_numpy(float) for name in (TARGET, "calibrated", "signal:length")]
    yield _by_length(part, columns, rows["cluster"].to_numpy(), machine, draws, seed)
    for name in criteria:
        scored = rows[rows[name].notna()]
        if len(scored) < FEWEST:
            continue
        human, criterion_scores, length = (scored[c].to_numpy(float) for c in (TARGET, name, "signal:length"))
        criterion = name.removeprefix("signal:criterion.")
        part_of_criterion = part._replace(slice="criterion", value_of=f"{part.value_of} / {criterion}")
        plain, given_length = pearson(human, criterion_scores), _partial(human, criterion_scores, length)
        for metric, stat in (("criterion_r", plain), ("criterion_partial_r", given_length)):
            yield record(part_of_criterion, metric, stat, len(scored), stage="raw", raters=(TARGET, machine))


def _by_length(
    part: ScoreSlice,
    columns: list[Floats],
    codes: Ints,
    machine: str,
    draws: int,
    seed: int,
) -> Record:
    products = [a * b for a, b in combinations_with_replacement(columns, 2)]
    terms = np.column_stack([np.ones(len(codes)), *columns, *products])
    sums = sums_by_code(terms, codes, int(codes.max()) + 1)
    sums = sums[np.bincount(codes, minlength=len(sums)) > 0]
    value = float(_length_share(sums.sum(axis=0, keepdims=True))[0])
    ends = interval(_length_share(draw_totals([sums], draws, seed)[0]), len(sums)) if draws else None
    stat = Stat(None, "undefined: constant scores") if np.isnan(value) else Stat(value)
    return record(part, "length_share", stat, len(codes), stage="calibrated", raters=(TARGET, machine), interval=ends)


def _length_share(totals: Floats) -> Floats:
    """Squared correlation of length with the target over the squared multiple correlation of score and length.

    totals: (draws, 10) sums of 1, of human h, machine m and length x, and of their products.
    """
    n, h, m, x, hh, hm, hx, mm, mx, xx = totals.T
    s_hh = hh - h * h / n
    s_mm = mm - m * m / n
    s_xx = xx - x * x / n
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hm = (hm - h * m / n) / np.sqrt(s_hh * s_mm)
        r_hx = (hx - h * x / n) / np.sqrt(s_hh * s_xx)
        r_mx = (mx - m * x / n) / np.sqrt(s_mm * s_xx)
        multiple = (r_hm**2 + r_hx**2 - 2 * r_hm * r_hx * r_mx) / (1 - r_mx**2)
        shares = np.clip(r_hx**2 / multiple, 0.0, 1.0)
    return np.where(np.isfinite(shares), shares, np.nan)


def _partial(human: Floats, machine: Floats, length: Floats) -> Stat:
    correlations = [pearson(human, machine).value, pearson(human, length).value, pearson(machine, length).value]
    if None in correlations:
        return Stat(None, "undefined: constant scores")
    r, with_human, with_own = (float(value or 0.0) for value in correlations)
    unexplained = (1 - with_human**2) * (1 - with_own**2)
    if unexplained <= 0:
        return Stat(None, "undefined: length explains all")
    return Stat((r - with_human * with_own) / unexplained**0.5)
