"""Figures that need several people: how reliable they are, and how the machine stands beside a second person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from rubricflow.tasks.core.stats.agreement import Stat, krippendorff_ordinal
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums
from rubricflow.tasks.core.stats.pair_sums import statistics_of_totals
from rubricflow.tasks.core.stats.raters import central_tendency, severity
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.stats.true_score import ceiling, human_reliability, true_score, true_score_intervals
from rubricflow.tasks.grading.evaluate.agree import RaterPair, both_scored, item_draws, mean_of_items
from rubricflow.tasks.grading.evaluate.slices import (
    TARGET,
    Record,
    ScaleBounds,
    ScoreSlice,
    on_items,
    on_one_scale,
    record,
)

PEOPLE = ("people", "people")
LOST = ("qwk", "exact", "pearson")
"""Statistics whose loss against a second person is reported."""


def beside_people(
    part: ScoreSlice,
    scales: Mapping[str, ScaleBounds],
    raters: list[str],
    machine: str,
    target: str,
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """Reliability, ceiling and alpha of the people; of the whole set and of items also the machine's true-score figures
    and what it loses against a second person. Nothing without two people."""
    if len(raters) < 2:
        return
    single = on_one_scale(part, scales)
    ratings = single.rows[[f"human:{name}" for name in raters]].to_numpy(float)
    rated = ratings[~np.isnan(ratings).all(axis=1)]
    doubles = int(((~np.isnan(rated)).sum(axis=1) >= 2).sum())
    reliability = human_reliability(ratings)
    yield record(part, "reliability", reliability, doubles, stage="human", raters=PEOPLE)
    yield record(
        part, "ceiling_qwk", _ceiling(reliability, rated, raters, target), doubles, stage="human", raters=PEOPLE
    )
    yield record(part, "alpha_ordinal", krippendorff_ordinal(ratings), doubles, stage="human", raters=PEOPLE)
    if part.slice not in ("all", "item"):
        return
    yield from _true_scores(single, ratings, machine, draws, seed)
    yield from _lost(single, raters, machine, draws, seed)


def _ceiling(reliability: Stat, rated: np.ndarray, raters: list[str], target: str) -> Stat:
    """The QWK that a perfect judge of true score reaches with the target, a person's score or the mean of theirs."""
    if reliability.value is None:
        return reliability
    if target in raters:
        return ceiling(reliability.value)
    if target not in OF_SEVERAL:
        return Stat(None, "undefined: how reliable a score resolved from several people's is, theirs do not tell")
    per_row = float((~np.isnan(rated)).sum(axis=1).mean())
    return ceiling(per_row * reliability.value / (1 + (per_row - 1) * reliability.value))


def _true_scores(part: ScoreSlice, ratings: np.ndarray, machine: str, draws: int, seed: int) -> Iterator[Record]:
    for stage in ("raw", "calibrated"):
        scores = part.rows[stage].to_numpy(float)
        usable = ~np.isnan(scores) & ~np.isnan(ratings).all(axis=1)
        if not usable.any():
            continue
        lost = int((~np.isnan(ratings).all(axis=1)).sum() - usable.sum())
        human, machine_scores, clusters = ratings[usable], scores[usable], part.rows["cluster"].to_numpy()[usable]
        estimates = true_score(human, machine_scores)
        intervals = true_score_intervals(human, machine_scores, clusters, draws, seed) if draws else {}
        losses = {name: Stat(getattr(estimates, name)) for name in ("loss_association", "loss_spread", "loss_bias")}
        true = Stat(estimates.qwk_true, None if estimates.qwk_true is not None else estimates.prmse.note)
        figures = {"prmse": estimates.prmse, "r_true": estimates.r_true, "qwk_true": true, **losses}
        for name, stat in figures.items():
            yield record(
                part,
                name,
                stat,
                estimates.n,
                stage=stage,
                raters=("people", machine),
                interval=intervals.get(name),
                unscored=lost,
            )


def _lost(part: ScoreSlice, raters: list[str], machine: str, draws: int, seed: int) -> Iterator[Record]:
    """Agreement of the calibrated score with each of two people, less that of the two, on the same responses; the mean
    over pairs of people."""
    clusters, size = cluster_codes(part.rows["cluster"].to_numpy())  # of this part, which all pairs of people share
    with_codes = part.rows.assign(cluster=clusters)
    scale = part.scale or (0.0, 1.0, 1.0)
    gaps: list[dict[str, np.ndarray]] = []
    drawn: list[dict[str, np.ndarray]] = []
    shared = []
    for first, second in combinations(raters, 2):
        rows = both_scored(with_codes, f"human:{first}", f"human:{second}", "calibrated", beside=["cluster"])
        if len(rows) < 2:
            continue
        one_mark, other_mark = f"human:{first}", f"human:{second}"
        couples = ((one_mark, "calibrated"), (other_mark, "calibrated"), (one_mark, other_mark))
        codes = rows["cluster"].to_numpy()
        shared.append(codes)
        blocks = [pair_sums(rows[a], rows[b], codes, size, scale) for a, b in couples]
        gaps.append(_gap([statistics_of_totals(block.sum(axis=0, keepdims=True)) for block in blocks]))
        if draws:
            drawn.append(_gap([statistics_of_totals(total) for total in draw_totals(blocks, draws, seed)]))
    codes_of_pairs = np.concatenate(shared) if shared else np.empty(0)
    n, cluster_count = len(codes_of_pairs), len(np.unique(codes_of_pairs))
    # On shares there are no levels to be exact about.
    for name in LOST if part.scale else ("pearson",):
        values = np.array([gap[name][0] for gap in gaps])
        values = values[~np.isnan(values)]
        value = Stat(float(values.mean())) if len(values) else Stat(None, "undefined: no two people scored the same")
        ends = interval(np.mean([gap[name] for gap in drawn], axis=0), cluster_count) if drawn else None
        yield record(
            part, f"degradation_{name}", value, n, stage="calibrated", raters=("people", machine), interval=ends
        )


def _gap(statistics: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    with_first, with_second, between = statistics
    return {name: (with_first[name] + with_second[name]) / 2 - between[name] for name in LOST}


def lost_over_items(
    whole_set: ScoreSlice,
    scales: Mapping[str, ScaleBounds],
    raters: list[str],
    machine: str,
    lost: Mapping[str, Stat],
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """The mean over items of the QWK lost against a second person. lost: item -> degradation_qwk."""
    values = [stat.value for stat in lost.values() if stat.value is not None]
    if not values:
        return
    ends = None
    if draws and len(raters) == 2:  # pairs of several people rest on different responses, and share no draws
        first, second = (f"human:{name}" for name in raters)
        rows = both_scored(whole_set.rows, first, second, "calibrated", beside=["item_id", "cluster"])
        couples = ((first, "calibrated"), (second, "calibrated"), (first, second))
        a, b, c = (item_draws(rows, scales, RaterPair("", "", "", *couple), "qwk", draws, seed) for couple in couples)
        ends = mean_of_items((a + b) / 2 - c, rows)
    yield record(
        on_items(whole_set),
        "degradation_qwk_item_mean",
        Stat(float(np.mean(values))),
        len(both_scored(whole_set.rows, "calibrated", TARGET)),
        stage="calibrated",
        raters=("people", machine),
        interval=ends,
    )


def rater_effects(
    part: ScoreSlice, scales: Mapping[str, ScaleBounds], raters: list[str], draws: int, seed: int
) -> Iterator[Record]:
    """Severity and use of the scale of each person beside the others, on the responses that they share."""
    if len(raters) < 2 or not draws:
        return
    single = on_one_scale(part, scales)
    ratings = single.rows[[f"human:{name}" for name in raters]].to_numpy(float)
    low, high = part.scale[:2] if part.scale else (0.0, 1.0)
    strict = severity(ratings, part.rows["cluster"].to_numpy(), draws, seed)
    use = central_tendency(ratings, low, high)
    for name, shift, tendency in zip(raters, strict, use, strict=True):
        of_rater, names = part._replace(slice="rater", value_of=name), ("others", name)
        ends = shift.interval
        yield record(of_rater, "severity", shift.difference, shift.n, stage="human", raters=names, interval=ends)
        use_of_scale = {"sd_ratio": tendency.sd_ratio, "ends": tendency.ends, "others_ends": tendency.others_ends}
        for metric, stat in use_of_scale.items():
            yield record(of_rater, metric, stat, tendency.n, stage="human", raters=names)
