"""Agreement of every rater with the human scores: overall, per item, per type of item and per subgroup; whether one run
agrees better than another, paired over the same held-out responses; how far the two agree, and where they part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.stats import agreement as stats
from rubricflow.tasks.core.stats.arrays import Floats, ratio
from rubricflow.tasks.core.stats.bootstrap import (
    Difference,
    Interval,
    bootstrap,
    cluster_codes,
    difference,
    draw_totals,
    gap,
    interval,
    pair_sums,
    paired_bootstrap,
    statistics_of_totals,
)
from rubricflow.tasks.core.stats.metrics import METRICS, Metric
from rubricflow.tasks.core.stats.scores import steps_off
from rubricflow.tasks.grading.evaluate.slices import (
    TARGET,
    Record,
    ScaleBounds,
    ScoreSlice,
    Setting,
    both_scored,
    group_slices,
    narrowed,
    on_items,
    record,
    slices,
)


class RaterPair(NamedTuple):
    """Two raters to compare: columns of the score frame, and the stage of the second one."""

    rater_a: str
    rater_b: str
    stage: str
    column_a: str
    column_b: str


def statistics(
    human: np.ndarray, machine: np.ndarray, scale: ScaleBounds, metrics: Sequence[Metric] = METRICS
) -> dict[str, stats.Stat]:
    """Every metric of two score vectors on one scale, by name."""
    return {metric.name: metric.of(human, machine, scale) for metric in metrics if metric.of}


def pairs(people: Sequence[str], machine: str) -> list[RaterPair]:
    """Human with human; the machine before and after calibration with the target and with each person; and what is
    released of it with the target."""
    compared = [RaterPair(a, b, "human", f"human:{a}", f"human:{b}") for a, b in combinations(people, 2)]
    for stage in ("raw", "calibrated"):
        compared.append(RaterPair(TARGET, machine, stage, TARGET, stage))
        compared += [RaterPair(name, machine, stage, f"human:{name}", stage) for name in people]
    return [*compared, RaterPair(TARGET, machine, "released", TARGET, "released")]


def agree(
    scores: pd.DataFrame,
    groups: Sequence[str],
    compared: Sequence[RaterPair],
    on: Setting,
    metrics: Sequence[Metric] = METRICS,
) -> list[Record]:
    """Rows of `metrics`. scores: the score frame; intervals resample its clusters. People are compared with each other
    on the answers that the machine scored, so that theirs and its figures compare; on all where it scored none."""
    columns = {"calibrated", *(pair.column_a for pair in compared), *(pair.column_b for pair in compared)} - {
        "released"
    }
    by = ("item_id", "author_id", "type", "cluster", *(f"group:{name}" for name in groups))
    released = scores["calibrated"].where(scores["route"] == "release")
    every = narrowed(scores, [*sorted(columns), *by]).assign(released=released)
    is_scored = scores["calibrated"].notna()
    scored = every[is_scored] if is_scored.any() else every
    records = []
    for pair in compared:
        kappas = {}
        answers = scored if pair.stage == "human" else every
        for part in chain(slices(answers, on.scales), group_slices(answers, groups, on.scales)):
            rows = list(_compare(part, pair, on, metrics))
            records += rows
            if part.slice == "item":
                kappas[part.value_of] = next(row["value"] for row in rows if row["metric"] == "qwk")
        records += _item_means(next(slices(answers, on.scales)), pair, kappas, on)
    return records


def _compare(part: ScoreSlice, pair: RaterPair, on: Setting, metrics: Sequence[Metric]) -> Iterator[Record]:
    rows = both_scored(part.rows, pair.column_a, pair.column_b, also=["cluster"])
    # A response that no human of this pair scored is no loss of the machine's.
    unscored = int(part.rows[pair.column_a].notna().sum()) - len(rows)

    def row(metric: str, stat: stats.Stat, ends: Interval | None = None) -> Record:
        names = pair.rater_a, pair.rater_b
        return record(part, metric, stat, len(rows), stage=pair.stage, raters=names, interval=ends, unscored=unscored)

    if rows.empty or part.scale is None:
        why = "no response has both scores" if rows.empty else "items have different scales; see the mean over items"
        yield row("qwk", stats.Stat(None, why)) | {"note": why}
        return
    human = rows[pair.column_a].to_numpy(float)
    machine = rows[pair.column_b].to_numpy(float)
    more = {metric.name: metric.of_totals for metric in metrics if metric.of_totals}
    clusters = rows["cluster"].to_numpy()
    intervals = bootstrap(human, machine, clusters, part.scale, on.draws, on.seed, more=more) if on.draws else {}
    for name, stat in statistics(human, machine, part.scale, metrics).items():
        yield row(name, stat, intervals.get(name))


def _item_means(
    whole_set: ScoreSlice, pair: RaterPair, by_item: Mapping[str, float | None], on: Setting
) -> Iterator[Record]:
    """The mean QWK over items, plain and by Fisher's z; pooled QWK flatters, since item means inflate it."""
    kappas = np.array([value for value in by_item.values() if value is not None])
    nulls = sorted(item for item, value in by_item.items() if value is None)
    note = f"undefined for {len(nulls)} items, the first {nulls[0]}" if nulls else None
    rows = both_scored(whole_set.rows, pair.column_a, pair.column_b, also=["cluster"])
    ends = None
    if on.draws and len(kappas):
        ends = mean_of_items(item_draws(whole_set.rows, (pair.column_a, pair.column_b), on), rows)
    plain = stats.Stat(float(kappas.mean()) if len(kappas) else None)
    by_fisher = stats.fisher_mean_kappa(kappas, np.ones(len(kappas)))
    names = pair.rater_a, pair.rater_b
    for name, mean, shown in (("qwk_item_mean", plain, ends), ("qwk_item_fisher", by_fisher, None)):
        stat = stats.Stat(mean.value, note or mean.note)
        yield record(on_items(whole_set), name, stat, len(rows), stage=pair.stage, raters=names, interval=shown)


def item_draws(scores: pd.DataFrame, columns: tuple[str, str], on: Setting) -> Floats:
    """The QWK of two columns on every item in every draw, (items, draws), NaN where undefined; all items share the
    draws, so that an author of several items is drawn with all of them."""
    scored = both_scored(scores, *columns, also=["item_id", "cluster"])
    if scored.empty or not on.draws:
        return np.empty((scored["item_id"].nunique(), on.draws))
    size = int(scores["cluster"].max()) + 1
    blocks = []
    for item, rows in scored.groupby("item_id", sort=True):
        human, machine = (rows[column] for column in columns)
        blocks.append(pair_sums(human, machine, rows["cluster"].to_numpy(), size, on.scales[str(item)]))
    return np.stack([statistics_of_totals(total)["qwk"] for total in draw_totals(blocks, on.draws, on.seed)])


def item_qwk(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds], human: str, machine: str) -> Floats:
    """QWK of two columns on every item, in the order of `item_draws`; NaN where undefined."""
    parts = rows.groupby("item_id", sort=True)
    values = [stats.qwk(part[human], part[machine], *scales[str(item)]).value for item, part in parts]
    return np.array(values, dtype=np.float64)


def mean_of_items(drawn: np.ndarray, rows: pd.DataFrame) -> Interval:
    """Interval of the plain mean over the items in which the statistic is defined. rows: those that it is taken on."""
    return interval(over_items(drawn), rows["cluster"].nunique())


def over_items(values: Floats) -> Floats:
    """Plain means over the items in which a figure is defined, NaN where it is in none: (items, draws) → (draws,)."""
    defined = ~np.isnan(values)
    return ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0).astype(np.float64))


LEVEL = ""
"""The group variable of `agreements` that stands for the level that run a gives: no study's is called so."""


def compare(
    a: pd.DataFrame, b: pd.DataFrame, scale: ScaleBounds, draws: int, seed: int
) -> tuple[dict[str, Difference], int, str]:
    """(statistic → difference b − a of the calibrated scores' agreement with the target, responses compared, what was
    resampled), on the responses that both score frames hold out and score.

    UserError where the two share no such response or disagree on its target.
    """
    both = in_common(a, b)
    if both.empty:
        raise UserError("the two runs hold out no response in common that both score")
    if not np.allclose(both["target_a"], both["target_b"]):
        raise UserError("the two runs compare with different human scores; give both the same target")
    resampled, clusters = _clusters(both)
    differences = paired_bootstrap(
        both["target_a"].to_numpy(),
        both["calibrated_a"].to_numpy(),
        both["calibrated_b"].to_numpy(),
        clusters.to_numpy(),
        scale,
        draws=draws,
        seed=seed,
    )
    return differences, len(both), resampled


def compare_over_items(
    a: pd.DataFrame, b: pd.DataFrame, scales: Mapping[str, ScaleBounds], draws: int, seed: int
) -> Difference:
    """The mean over items of the difference b − a in QWK, on the same responses and draws as in `compare`: what is left
    of agreement within items, where pooling counts the items' means."""
    both = in_common(a, b)
    clusters, size = cluster_codes(_clusters(both)[1].to_numpy())
    rows = both.rename(columns={"item_id_a": "item_id"}).assign(cluster=clusters)
    couples = [("target_a", f"calibrated_{run}") for run in "ab"]
    on = Setting(scales, draws=draws, seed=seed)
    kappas = [item_qwk(rows, scales, *couple)[:, None] for couple in couples]
    drawn = [item_draws(rows, couple, on) for couple in couples]
    return difference(float(over_items(gap(*kappas))[0]), over_items(gap(*drawn)), size)


def _clusters(both: pd.DataFrame) -> tuple[str, pd.Series]:
    """What is resampled, and the one of every response."""
    resampled = "author" if both["author_id_a"].notna().all() else "response"
    return resampled, both["author_id_a"] if resampled == "author" else both["response_id"]


def alike(a: pd.DataFrame, b: pd.DataFrame, methods: tuple[Collection[str], Collection[str]]) -> str:
    """Where two runs have equal scores, in words, and why: no difference is a finding then; '' where they have none.

    methods: of the mappings of either run, none where the raw score is kept.
    """
    both = in_common(a, b)
    raw = both[["response_id"]].merge(a[["response_id", "raw"]]).merge(b[["response_id", "raw"]], on="response_id")
    equal = np.isclose(both["calibrated_a"], both["calibrated_b"])
    items = pd.Series(equal).groupby(both["item_id_a"].to_numpy()).all()
    if not items.any():
        return ""
    if not items.all():
        return f"equal scores on {int(items.sum())} of {len(items)} items"
    same_raw = np.allclose(raw["raw_x"], raw["raw_y"], equal_nan=True)
    if all(set(names) <= {"identity"} for names in methods):
        why, about_raw = "both runs keep the raw score", ", and it is the same"
    else:
        mappings = ", ".join(sorted(set().union(*methods)))
        why, about_raw = f"the mappings ({mappings}) give the same scores", ", of the same raw scores"
    return f"equal scores on all {len(both):,} responses: {why}{about_raw if same_raw else ''}"


def in_common(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The responses with a target and a calibrated score in both frames; columns end in `_a` and `_b`."""
    columns = ["response_id", "item_id", "author_id", "target", "calibrated"]
    both = a[columns].merge(b[columns], on="response_id", suffixes=("_a", "_b"))
    return both.dropna(subset=["target_a", "target_b", "calibrated_a", "calibrated_b"])


def side_by_side(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Run a's score frame with the scores `a` and `b` of both runs, and whether both hold a response out (`held_out`);
    responses that b does not know are left out. The rows' levels in a are the group variable LEVEL."""
    other = b[["response_id", "calibrated", "split"]].rename(columns={"calibrated": "b", "split": "split_b"})
    both = a.assign(a=a["calibrated"]).merge(other, on="response_id")
    levels = both["a"].map(lambda score: f"{score + 0.0:g}", na_action="ignore")
    return both.assign(held_out=(both["split"] == "test") & (both["split_b"] == "test"), **{f"group:{LEVEL}": levels})


def agreements(
    both: pd.DataFrame, groups: Sequence[str], scales: Mapping[str, ScaleBounds], draws: int, seed: int
) -> Iterator[Record]:
    """Rows as of `metrics`, of `side_by_side` on one scale: each run with the target on what both hold out and score,
    and the runs with each other on all that both score; these by level of a and by group, too."""
    on = Setting(scales, draws=draws, seed=seed)
    metrics = [metric for metric in METRICS if metric.name in ("qwk", "exact", "mae", "bias")]
    scored = both[both["a"].notna() & both["b"].notna()]
    held_out = scored[scored["held_out"] & scored[TARGET].notna()]
    if len(held_out):
        people = [RaterPair("people", run, "", TARGET, run) for run in "ab"]
        yield from agree(held_out, [], people, on, metrics)
    if len(scored):
        yield from agree(scored, [LEVEL, *groups], [RaterPair("a", "b", "", "a", "b")], on, metrics)


def most_changed(both: pd.DataFrame, scales: Mapping[str, ScaleBounds], most: int = 10) -> pd.DataFrame:
    """The rows of `side_by_side` whose score differs most between the runs, in steps of their scale, the most first;
    of equals the one that is first by id. Equal scores are none."""
    ranked = both.assign(steps=steps_off(both, scales, "b", "a").abs().round(6)).sort_values(
        ["steps", "response_id"], ascending=[False, True]
    )
    return ranked[ranked["steps"] > 0].head(most)
