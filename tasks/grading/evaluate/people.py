"""Figures that need several people: how reliable they are, and how the machine compares with a second person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
from scipy.stats import binom

from rubricflow.tasks.core.stats.agreement import Stat, krippendorff_ordinal, level_count, pearson, to_levels
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import (
    Interval,
    cluster_codes,
    cluster_sums,
    draw_totals,
    interval,
    pair_sums,
    statistics_of_totals,
)
from rubricflow.tasks.core.stats.raters import central_tendency, severity
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.stats.true_score import (
    ceiling,
    dsm,
    dsm_intervals,
    human_reliability,
    noise_line,
    overall_differences,
    true_score,
    true_score_intervals,
)
from rubricflow.tasks.grading.evaluate.agree import item_draws, mean_of_items
from rubricflow.tasks.grading.evaluate.slices import (
    TARGET,
    Record,
    ScoreSlice,
    Setting,
    both_scored,
    on_items,
    on_one_scale,
    record,
    share,
)

PEOPLE = ("people", "people")
LOST = ("qwk", "exact", "pearson")
"""Statistics whose loss against a second person is reported."""


def compare_with_people(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Reliability, ceiling and alpha of the people; of the whole set and of items also the machine's true-score figures
    and what it loses against a second person. Nothing without two people."""
    if len(on.people) < 2:
        return
    single = on_one_scale(part, on)
    ratings = single.rows[[f"human:{name}" for name in on.people]].to_numpy(float)
    marks_per_row = (~np.isnan(ratings)).sum(axis=1)
    doubles = int((marks_per_row >= 2).sum())
    reliability = human_reliability(ratings)
    per_row = float(marks_per_row[marks_per_row > 0].mean()) if marks_per_row.any() else 0.0
    # The QWK that a perfect judge of true score reaches with the target, a person's score or the mean of theirs.
    best = reliability
    if reliability.value is not None and on.target in on.people:
        best = ceiling(reliability.value)
    elif reliability.value is not None and on.target in OF_SEVERAL:
        best = ceiling(per_row * reliability.value / (1 + (per_row - 1) * reliability.value))
    elif reliability.value is not None:
        best = Stat(None, "undefined: how reliable a score resolved from several people's is, theirs do not tell")
    figures = {
        "reliability": reliability,
        "ceiling_qwk": best,
        "alpha_ordinal": krippendorff_ordinal(ratings),
    }
    for name, stat in figures.items():
        yield record(part, name, stat, doubles, stage="human", raters=PEOPLE)
    if part.slice in ("all", "item"):
        yield from _true_scores(single, ratings, on)
        yield from _lost(single, on)


def _true_scores(part: ScoreSlice, ratings: Floats, on: Setting) -> Iterator[Record]:
    is_rated = ~np.isnan(ratings).all(axis=1)
    for stage in ("raw", "calibrated"):
        scores = part.rows[stage].to_numpy(float)
        usable = ~np.isnan(scores) & is_rated
        if not usable.any():
            continue
        human = ratings[usable]
        machine = scores[usable]
        clusters = part.rows["cluster"].to_numpy()[usable]
        found = true_score(human, machine)
        intervals = true_score_intervals(human, machine, clusters, on.draws, on.seed) if on.draws else {}
        note = found.prmse.note if found.qwk_true is None else None
        figures = {
            "prmse": found.prmse,
            "r_true": found.r_true,
            "qwk_true": Stat(found.qwk_true, note),
            "loss_association": Stat(found.loss_association),
            "loss_spread": Stat(found.loss_spread),
            "loss_bias": Stat(found.loss_bias),
        }
        names = ("people", on.machine)
        lost = int(is_rated.sum() - usable.sum())
        for name, stat in figures.items():
            ends = intervals.get(name)
            yield record(part, name, stat, found.n, stage=stage, raters=names, interval=ends, unscored=lost)


def _lost(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Agreement of the calibrated score with each of two people, less that of the two, on the same responses; the mean
    over pairs of people."""
    clusters, size = cluster_codes(part.rows["cluster"].to_numpy())  # of this part, which all pairs of people share
    with_codes = part.rows.assign(cluster=clusters)
    scale = part.scale or (0.0, 1.0, 1.0)
    gaps = []
    drawn = []
    shared = [np.empty(0, dtype=int)]
    for couple in combinations(on.people, 2):
        first, second = (f"human:{name}" for name in couple)
        rows = both_scored(with_codes, first, second, "calibrated", also=["cluster"])
        if len(rows) < 2:
            continue
        codes = rows["cluster"].to_numpy()
        compared = ((first, "calibrated"), (second, "calibrated"), (first, second))
        blocks = [pair_sums(rows[a], rows[b], codes, size, scale) for a, b in compared]
        shared.append(codes)
        gaps.append(_gap([block.sum(axis=0, keepdims=True) for block in blocks]))
        if on.draws:
            drawn.append(_gap(draw_totals(blocks, on.draws, on.seed)))
    every = np.concatenate(shared)
    # On shares there are no levels to be exact about.
    for name in LOST if part.scale else ("pearson",):
        values = np.array([gap[name][0] for gap in gaps])
        values = values[~np.isnan(values)]
        value = Stat(float(values.mean())) if len(values) else Stat(None, "undefined: no two people scored the same")
        ends = interval(np.mean([gap[name] for gap in drawn], axis=0), len(np.unique(every))) if drawn else None
        names = "people", on.machine
        yield record(part, f"degradation_{name}", value, len(every), raters=names, interval=ends)


def _gap(totals: Iterable[Floats]) -> dict[str, Floats]:
    """What the machine loses, of the totals of both people with it and of the two with each other."""
    with_first, with_second, between = map(statistics_of_totals, totals)
    return {name: (with_first[name] + with_second[name]) / 2 - between[name] for name in LOST}


def lost_over_items(whole_set: ScoreSlice, lost: Mapping[str, float | None], on: Setting) -> Iterator[Record]:
    """The mean over items of the QWK lost against a second person. lost: item -> degradation_qwk."""
    values = [value for value in lost.values() if value is not None]
    if not values:
        return
    ends = None
    if on.draws and len(on.people) == 2:  # pairs of several people rest on different responses, and share no draws
        first, second = (f"human:{name}" for name in on.people)
        rows = both_scored(whole_set.rows, first, second, "calibrated", also=["item_id", "cluster"])
        a, b = (item_draws(rows, (name, "calibrated"), on) for name in (first, second))
        ends = mean_of_items((a + b) / 2 - item_draws(rows, (first, second), on), rows)
    mean = Stat(float(np.mean(values)))
    n = len(both_scored(whole_set.rows, "calibrated", TARGET))
    part = on_items(whole_set)
    names = ("people", on.machine)
    yield record(part, "degradation_qwk_item_mean", mean, n, raters=names, interval=ends)


def rater_effects(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Severity and use of the scale of each person next to the others, on the responses that they share."""
    if len(on.people) < 2 or not on.draws:
        return
    single = on_one_scale(part, on)
    ratings = single.rows[[f"human:{name}" for name in on.people]].to_numpy(float)
    low, high = part.scale[:2] if part.scale else (0.0, 1.0)
    shifts = severity(ratings, part.rows["cluster"].to_numpy(), on.draws, on.seed)
    for name, shift, use in zip(on.people, shifts, central_tendency(ratings, low, high), strict=True):
        of_rater = part._replace(slice="rater", value_of=name)
        names = ("others", name)
        ends = shift.interval
        yield record(of_rater, "severity", shift.difference, shift.n, stage="human", raters=names, interval=ends)
        for metric, stat in (("sd_ratio", use.sd_ratio), ("ends", use.ends), ("others_ends", use.others_ends)):
            yield record(of_rater, metric, stat, use.n, stage="human", raters=names)


# Which marks are awarded how often, what the score owes to single criteria and to sheer length, and whether subgroups
# are scored alike.

NEARLY_ALL = 0.95
"""Share of an item's scores on one level from which they are as good as constant."""
CHANCE = 0.05
COUNTED = "none: counted"
"""In place of what was resampled: a count of what is there."""
FEWEST = 30
"""Responses that a correlation of one criterion needs, and that a group needs to be shown."""


def level_shares(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Share of the responses at each level of the scale, the people's and the machine's, and the gap.

    Where the target is made of several people's marks, theirs are counted, not what is made of them: it lies between
    levels.
    """
    people = [f"human:{name}" for name in on.people] if on.target in OF_SEVERAL else [TARGET]
    rows = both_scored(part.rows, TARGET, "calibrated", also=[*people, "cluster"])
    if part.scale is None or rows.empty:
        return
    marks = rows[people].to_numpy(float)
    is_marked = ~np.isnan(marks)
    levels = to_levels(np.where(is_marked, marks, part.scale[0]), *part.scale)
    machine_levels = to_levels(rows["calibrated"], *part.scale)
    ones = np.ones(len(rows))
    codes = rows["cluster"].to_numpy()
    n = len(rows)
    for level in range(level_count(*part.scale)):
        human = ((levels == level) & is_marked).sum(axis=1) / is_marked.sum(axis=1)
        machine = machine_levels == level
        gap, ends = share(machine - human, ones, codes, on)
        on_level = part._replace(slice="level", value_of=f"{part.scale[0] + level * part.scale[2]:g}")
        of_people = Stat(float(human.mean()))
        of_machine = Stat(float(machine.mean()))
        yield record(on_level, "level_share", of_people, n, stage="human", raters=("people", "people"))
        yield record(on_level, "level_share", of_machine, n, raters=on.raters)
        yield record(on_level, "level_share_gap", gap, n, raters=on.raters, interval=ends)


def spread(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Standard deviation of the machine's scores over that of the target: below 1 where extremes are avoided."""
    scored = both_scored(part.rows, TARGET, "raw", "calibrated", also=["item_id"])
    rows = on_one_scale(part._replace(rows=scored), on).rows
    if len(rows) < 2:
        return
    people = rows[TARGET].std()
    for stage in ("raw", "calibrated"):
        value = Stat(float(rows[stage].std() / people)) if people > 0 else Stat(None, "undefined: target constant")
        yield record(part, "sd_ratio", value, len(rows), stage=stage, raters=on.raters)


def variety(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """How many levels hold nearly all of an item's calibrated scores, counted from the commonest on: 1 where a mapping
    gives everyone one grade.

    Nothing where people's own grades would as easily fall on one level: that one does is no fault of the machine then.
    """
    rows = both_scored(part.rows, TARGET, "calibrated")
    if part.slice != "item" or part.scale is None or rows.empty:
        return
    levels = (to_levels(rows[name], *part.scale) for name in ("calibrated", TARGET))
    machine, human = (np.sort(np.bincount(column))[::-1] for column in levels)
    used = int(np.searchsorted(np.cumsum(machine), NEARLY_ALL * len(rows)) + 1)
    if used == 1 and binom.sf(machine[0] - 1, len(rows), human[0] / len(rows)) > CHANCE:
        return
    value = Stat(float(used))
    ends = Interval(used, used, 0)
    n = len(rows)
    yield record(part, "levels_used", value, n, raters=on.raters, interval=ends, resampled=COUNTED)


def again(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Share of the responses judged more than once that got the same raw score every time."""
    rows = part.rows[part.rows["again"].notna()] if "again" in part.rows else part.rows.iloc[:0]
    if len(rows):
        value, ends = share(rows["again"].to_numpy(float), np.ones(len(rows)), rows["cluster"].to_numpy(), on)
        names = on.machine, on.machine
        yield record(part, "same_again", value, len(rows), stage="raw", raters=names, interval=ends)


def validity(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """How much of what the score explains of the target length alone explains, and each criterion's correlation with
    the target, plain and given length."""
    if "signal:length" not in part.rows:
        return
    criteria = [name for name in part.rows.columns if name.startswith("signal:criterion.") and part.slice == "item"]
    columns = (TARGET, "calibrated", "signal:length")
    rows = both_scored(on_one_scale(part, on).rows, *columns, also=[*criteria, "cluster"])
    if len(rows) < FEWEST:
        return
    scores = [rows[name].to_numpy(float) for name in columns]
    products = [a * b for a, b in combinations_with_replacement(scores, 2)]
    sums = cluster_sums(np.column_stack([np.ones(len(rows)), *scores, *products]), rows["cluster"].to_numpy())
    share_of_length = float(_length_share(sums.sum(axis=0, keepdims=True))[0])
    value = Stat(None, "undefined: constant scores") if np.isnan(share_of_length) else Stat(share_of_length)
    ends = interval(_length_share(draw_totals([sums], on.draws, on.seed)[0]), len(sums)) if on.draws else None
    yield record(part, "length_share", value, len(rows), raters=on.raters, interval=ends)
    for name in criteria:
        scored = rows[rows[name].notna()]
        if len(scored) < FEWEST:
            continue
        human, criterion, length = (scored[column].to_numpy(float) for column in (TARGET, name, "signal:length"))
        value_of = f"{part.value_of} / {name.removeprefix('signal:criterion.')}"
        of_criterion = part._replace(slice="criterion", value_of=value_of)
        plain = pearson(human, criterion)
        by_length = [pearson(scores, length).value for scores in (human, criterion)]
        partial = Stat(None, "undefined: constant scores")
        if plain.value is not None and by_length[0] is not None and by_length[1] is not None:
            unexplained = (1 - by_length[0] ** 2) * (1 - by_length[1] ** 2)
            partial = Stat(None, "undefined: length explains all")
            if unexplained > 0:
                partial = Stat((plain.value - by_length[0] * by_length[1]) / unexplained**0.5)
        figures = {"criterion_r": plain, "criterion_partial_r": partial}
        for metric, stat in figures.items():
            yield record(of_criterion, metric, stat, len(scored), stage="raw", raters=on.raters)


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


def fairness(whole_set: ScoreSlice, groups: Sequence[str], reliability: Stat, on: Setting) -> Iterator[Record]:
    """For every group variable: differences of standardised means (dsm), what membership explains of the errors (osa,
    osd, csd), and each group's difference from the first one at equal human scores (csd_difference).

    reliability: of a single person's score. People's scores are noisy, so that a machine which is fair to every true
    score still shows a difference at equal human scores; it is given alongside (csd_of_noise).
    """
    single = on_one_scale(whole_set, on)
    for variable in groups:
        column = f"group:{variable}"
        rows = both_scored(single.rows, TARGET, "calibrated", column, also=["cluster"])
        rows = rows[rows[column].map(rows[column].value_counts()) >= FEWEST]
        if rows[column].nunique() < 2:
            continue
        human = rows[TARGET].to_numpy(float)
        machine = rows["calibrated"].to_numpy(float)
        member = rows[column].to_numpy(dtype=str)
        clusters = rows["cluster"].to_numpy()
        intervals = dsm_intervals(human, machine, member, clusters, on.draws, on.seed) if on.draws else {}
        sizes = rows[column].value_counts()
        first = min(member)

        overall = overall_differences(human, machine, member)
        figures = [("dsm", group, stat, sizes[group]) for group, stat in dsm(human, machine, member).items()]
        figures += [(name, "all", getattr(overall, name), len(rows)) for name in ("osa", "osd", "csd")]
        for group, difference in overall.csd_coefficients.items():
            figures.append(("csd_difference", group, Stat(difference), sizes[group]))
            if reliability.value is not None:
                gap = float(human[member == group].mean() - human[member == first].mean())
                figures.append(("csd_of_noise", group, Stat(noise_line(reliability.value, gap)), sizes[group]))
        for metric, group, stat, n in figures:
            part = whole_set._replace(slice=variable, value_of=group)
            ends = intervals.get(group) if metric == "dsm" else None
            yield record(part, metric, stat, int(n), raters=on.raters, interval=ends)
