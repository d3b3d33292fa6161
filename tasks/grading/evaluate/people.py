"""Figures that need several people: how reliable they are, and how the machine compares with a second person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import numpy as np

from rubricflow.tasks.core.stats.agreement import Stat, krippendorff_ordinal
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums, statistics_of_totals
from rubricflow.tasks.core.stats.raters import central_tendency, severity
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.stats.true_score import ceiling, human_reliability, true_score, true_score_intervals
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
        human, machine, clusters = ratings[usable], scores[usable], part.rows["cluster"].to_numpy()[usable]
        found = true_score(human, machine)
        intervals = true_score_intervals(human, machine, clusters, on.draws, on.seed) if on.draws else {}
        figures = {
            "prmse": found.prmse,
            "r_true": found.r_true,
            "qwk_true": Stat(found.qwk_true, None if found.qwk_true is not None else found.prmse.note),
            "loss_association": Stat(found.loss_association),
            "loss_spread": Stat(found.loss_spread),
            "loss_bias": Stat(found.loss_bias),
        }
        names, lost = ("people", on.machine), int(is_rated.sum() - usable.sum())
        for name, stat in figures.items():
            ends = intervals.get(name)
            yield record(part, name, stat, found.n, stage=stage, raters=names, interval=ends, unscored=lost)


def _lost(part: ScoreSlice, on: Setting) -> Iterator[Record]:
    """Agreement of the calibrated score with each of two people, less that of the two, on the same responses; the mean
    over pairs of people."""
    clusters, size = cluster_codes(part.rows["cluster"].to_numpy())  # of this part, which all pairs of people share
    with_codes = part.rows.assign(cluster=clusters)
    scale = part.scale or (0.0, 1.0, 1.0)
    gaps, drawn = list[dict[str, Floats]](), list[dict[str, Floats]]()
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
    mean, n = Stat(float(np.mean(values))), len(both_scored(whole_set.rows, "calibrated", TARGET))
    part, names = on_items(whole_set), ("people", on.machine)
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
        of_rater, names = part._replace(slice="rater", value_of=name), ("others", name)
        ends = shift.interval
        yield record(of_rater, "severity", shift.difference, shift.n, stage="human", raters=names, interval=ends)
        for metric, stat in (("sd_ratio", use.sd_ratio), ("ends", use.ends), ("others_ends", use.others_ends)):
            yield record(of_rater, metric, stat, use.n, stage="human", raters=names)
