"""A training's curves: figures of each step, with intervals over its items."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

MOST_POINTS = 40
"""Points of a curve; where a training has more steps, neighbouring ones are put together."""
FEWEST_ITEMS = 5
"""Items of a point that has an interval: that of fewer would say little but fill the picture."""


class StepPoint(NamedTuple):
    """A mean over the rollouts of some steps."""

    step: float
    """The middle one."""
    value: float
    low: float | None
    """Lower end of the 95% interval over items; None for fewer than `FEWEST_ITEMS`."""
    high: float | None
    rollouts: int
    items: int


class Trend(NamedTuple):
    """How a figure changed from the first third of the steps to the last."""

    first: float
    last: float
    low: float
    """Lower end of the 95% interval of the difference, over steps."""
    high: float
    steps: int
    """In each third."""

    @property
    def rises(self) -> bool:
        """Whether the interval of the difference lies above 0."""
        return self.low > 0


def paired(rewards: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """A row for each rollout: response_id, item_id, step, flat, gear, gap (flat − gear) and unscored.

    rewards: response_id, item_id, aggregation ('flat' and 'gear') and reward; responses: response_id, step, text. Steps
    are numbers; rollouts without one are left out.
    """
    wide = rewards.pivot(index="response_id", columns="aggregation", values="reward")
    rows = responses.merge(wide, on="response_id").dropna(subset=["step"])
    rows = rows.assign(gap=rows["flat"] - rows["gear"], unscored=rows["gear"].isna().astype(float))
    return rows.sort_values(["step", "response_id"], kind="stable").reset_index(drop=True)


def curve(rows: pd.DataFrame, name: str) -> list[StepPoint]:
    """The mean of a column at each step, or at a few steps together; empty where it has no value."""
    known = rows.dropna(subset=[name])
    if known.empty:
        return []
    steps = np.sort(known["step"].unique())
    groups = np.array_split(steps, min(MOST_POINTS, len(steps)))
    return [_point(known[known["step"].isin(group)], name, float(np.median(group))) for group in groups]


def _point(rows: pd.DataFrame, name: str, step: float) -> StepPoint:
    of_items = rows.groupby("item_id")[name].mean()
    value, items = float(rows[name].mean()), len(of_items)
    if items < FEWEST_ITEMS:
        return StepPoint(step, value, None, None, len(rows), items)
    half = _factor(items - 1) * float(of_items.std(ddof=1)) / math.sqrt(items)
    return StepPoint(step, value, value - half, value + half, len(rows), items)


def _factor(freedom: int) -> float:
    """Half-width of a 95% interval in standard errors."""
    return float(stdtrit(freedom, 0.975))


def trend(rows: pd.DataFrame, name: str) -> Trend | None:
    """How a column changed; None for fewer than six steps."""
    means = rows.dropna(subset=[name]).groupby("step")[name].mean()
    third = len(means) // 3
    if third < 2:
        return None
    first, last = means.iloc[:third], means.iloc[-third:]
    half = _factor(2 * third - 2) * math.sqrt((float(first.var(ddof=1)) + float(last.var(ddof=1))) / third)
    change = float(last.mean() - first.mean())
    return Trend(float(first.mean()), float(last.mean()), change - half, change + half, third)


def leaks(rows: pd.DataFrame, cases: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Relation → the rollouts with `leaked`, what the flat sum pays there without licence; 0 where it pays nothing.

    cases: response_id, relation, leaked (NaN for a satisfied dependency).
    """
    sums = cases.groupby(["relation", "response_id"])["leaked"].sum()
    scored = rows[rows["unscored"] == 0]
    relations = sorted(cases["relation"].unique())
    return {
        relation: scored.assign(leaked=scored["response_id"].map(sums[relation]).fillna(0.0)) for relation in relations
    }


def suppression(rows: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """The rollouts with `suppressed`: the share of their supported dependencies whose parent fails; NaN without any."""
    violated = cases.assign(violated=cases["leaked"].notna()).groupby("response_id")["violated"].mean()
    return rows.assign(suppressed=rows["response_id"].map(violated))
