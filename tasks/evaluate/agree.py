"""Agreement of every rater with the human scores: overall, per item, per type of item and per subgroup."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tasks.stats import agreement as stats
from tasks.stats.bootstrap import bootstrap

TARGET = "target"
ScaleBounds = tuple[float, float, float]
Record = dict[str, Any]


class Pair(NamedTuple):
    """Two raters to compare: columns of the score frame, and the stage of the second one."""

    rater_a: str
    rater_b: str
    stage: str
    column_a: str
    column_b: str


def statistics(human: np.ndarray, machine: np.ndarray, scale: ScaleBounds) -> dict[str, stats.Stat]:
    """Every agreement statistic of two score vectors on one scale, by name."""
    low, high, step = scale
    return {
        "qwk": stats.qwk(human, machine, low, high, step),
        "qwk_continuous": stats.qwk_continuous(human, machine),
        "icc": stats.icc_2_1(np.column_stack([human, machine])),
        "exact": stats.exact_agreement(human, machine, low, high, step),
        "within_1": stats.adjacent_agreement(human, machine, low, high, step, within=1),
        "within_2": stats.adjacent_agreement(human, machine, low, high, step, within=2),
        "mae": stats.mae(human, machine),
        "rmse": stats.rmse(human, machine),
        "bias": stats.bias(human, machine),
        "smd": stats.smd(human, machine),
        "smd_pooled": stats.smd_pooled(human, machine),
        "pearson": stats.pearson(human, machine),
        "spearman": stats.spearman(human, machine),
        "macro_f1": stats.macro_f1(human, machine, low, high, step),
    }


def pairs(people: list[str], machine: str) -> list[Pair]:
    """Human with human, and the machine before and after calibration with the target and with each person."""
    found = [Pair(a, b, "human", f"human:{a}", f"human:{b}") for a, b in combinations(people, 2)]
    for stage in ("raw", "calibrated"):
        found.append(Pair(TARGET, machine, stage, TARGET, stage))
        found += [Pair(name, machine, stage, f"human:{name}", stage) for name in people]
    return found


def agree(
    scores: pd.DataFrame, groups: list[str], scales: dict[str, ScaleBounds], compared: list[Pair], draws: int, seed: int
) -> list[Record]:
    """Rows of `metrics`.

    `scores` has one row per held-out response: item_id, type, author_id, response_id, a column per group variable
    (`group:<name>`), `target`, `human:<rater>` for each person, `raw` and `calibrated`; NaN where there is no score.
    Intervals resample authors where every response has one, else responses.
    """
    has_authors = bool(len(scores)) and bool(scores["author_id"].notna().all())
    resampled = "author" if has_authors else "response"
    found = []
    for pair in compared:
        by_item: dict[str, stats.Stat] = {}
        n = 0
        for kind, value, rows in _slices(scores, groups):
            for row in _compare(rows, pair, scales, f"{resampled}_id", draws, seed):
                row |= {"slice": kind, "value_of": value, "resampled": resampled if row["low"] is not None else ""}
                found.append(row)
                if kind == "item" and row["metric"] == "qwk":
                    by_item[value] = stats.Stat(row["value"], row["note"])
                    n += row["n"]
        found += _item_means(pair, by_item, n)
    return found


def _slices(scores: pd.DataFrame, groups: list[str]) -> Iterator[tuple[str, str, pd.DataFrame]]:
    yield "all", "all", scores
    for kind, column in [("item", "item_id"), ("type", "type"), *((name, f"group:{name}") for name in groups)]:
        for value, rows in scores.groupby(column, sort=True):
            yield kind, str(value), rows


def _compare(
    rows: pd.DataFrame, pair: Pair, scales: dict[str, ScaleBounds], cluster: str, draws: int, seed: int
) -> Iterator[Record]:
    columns = rows[[pair.column_a, pair.column_b]].astype(float)
    both = columns.notna().all(axis=1)
    # A response that no human of this pair scored is no loss of the machine's.
    unscored = int((columns[pair.column_a].notna() & ~both).sum())
    human, machine = columns.loc[both, pair.column_a].to_numpy(), columns.loc[both, pair.column_b].to_numpy()
    common = {
        "rater_a": pair.rater_a,
        "rater_b": pair.rater_b,
        "stage": pair.stage,
        "n": int(both.sum()),
        "unscored": unscored,
    }
    empty = {"value": None, "low": None, "high": None, "undefined_draws": 0}
    if not len(human):
        yield common | empty | {"metric": "qwk", "note": "no response has both scores"}
        return
    used = {scales[item] for item in rows.loc[both, "item_id"].unique()}
    if len(used) > 1:
        yield common | empty | {"metric": "qwk", "note": "items have different scales; see the mean over items"}
        return
    (scale,) = used
    intervals = bootstrap(human, machine, rows.loc[both, cluster].to_numpy(), scale, draws, seed) if draws else {}
    for name, stat in statistics(human, machine, scale).items():
        interval = intervals.get(name)
        yield common | {
            "metric": name,
            "value": stat.value,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "undefined_draws": interval.undefined if interval else 0,
            "note": stat.note,
        }


def _item_means(pair: Pair, by_item: dict[str, stats.Stat], n: int) -> Iterator[Record]:
    """The mean QWK over items, plain and by Fisher's z; pooled QWK flatters, since item means inflate it."""
    defined = {item: stat.value for item, stat in by_item.items() if stat.value is not None}
    nulls = sorted(set(by_item) - set(defined))
    note = f"undefined for {len(nulls)} items, the first {nulls[0]}" if nulls else None
    kappas = np.array(list(defined.values()))
    means = {
        "qwk_item_mean": stats.Stat(float(kappas.mean()) if len(kappas) else None),
        "qwk_item_fisher": stats.fisher_mean_kappa(kappas, np.ones(len(kappas))),
    }
    for name, mean in means.items():
        yield {
            "metric": name,
            "rater_a": pair.rater_a,
            "rater_b": pair.rater_b,
            "stage": pair.stage,
            "slice": "all",
            "value_of": "all",
            "value": mean.value,
            "low": None,
            "high": None,
            "n": n,
            "unscored": 0,
            "resampled": "",
            "undefined_draws": 0,
            "note": note or mean.note,
        }
