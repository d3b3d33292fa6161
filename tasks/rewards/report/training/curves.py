"""A training's curves, figures of each step with intervals over its items, and how far its judge can be trusted:
whether it agrees with itself where rollouts were judged twice, and whether its quotes are there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit


class CriterionTrend(NamedTuple):
    """A criterion's share at both ends of the training."""

    item_id: str
    criterion_id: str
    text: str
    """Empty where it was not recorded."""
    rollouts: int
    own: Trend
    """The share that it has by itself, which a flat sum pays."""
    licensed: float
    """The share that its dependencies leave of it, mean of the last third of the steps."""

    @property
    def unlicensed(self) -> float:
        """What a flat sum pays beyond that, in the last third."""
        return self.own.last - self.licensed


class UnlicensedShare(NamedTuple):
    """A criterion of a rollout that counts for less after what licenses it."""

    criterion_id: str
    own: float
    licensed: float


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
    scored = rows[rows["unscored"] == 0]
    found = {}
    for relation, of_relation in cases.groupby("relation"):
        sums = of_relation.groupby("response_id")["leaked"].sum()
        found[str(relation)] = scored.assign(leaked=scored["response_id"].map(sums).fillna(0.0))
    return found


def suppression(rows: pd.DataFrame, cases: pd.DataFrame) -> pd.DataFrame:
    """The rollouts with `suppressed`: the share of their supported dependencies whose parent fails; NaN without any."""
    violated = cases.assign(violated=cases["leaked"].notna()).groupby("response_id")["violated"].mean()
    return rows.assign(suppressed=rows["response_id"].map(violated))


# What each criterion is worth over a training's steps, by itself and after what licenses it.


def criterion_shares(rewards: pa.Table) -> pd.DataFrame:
    """A row for each criterion of each rollout: response_id, criterion_id, own and licensed share, each in [0, 1].

    rewards: response_id, aggregation ('flat' and 'gear') and marginals. Unscored criteria have no row.
    """
    own, licensed = (_exploded(rewards, name) for name in ("flat", "gear"))
    keys = ["response_id", "criterion_id"]
    pairs = own.merge(licensed, on=keys, suffixes=("_own", "_licensed"))
    return pairs.rename(columns={"share_own": "own", "share_licensed": "licensed"})


def criterion_trends(
    rows: pd.DataFrame, shares: pd.DataFrame, texts: Mapping[tuple[str, str], str]
) -> list[CriterionTrend]:
    """Every criterion that was seen in six steps or more, the one whose own share changed most surely first.

    rows: response_id, item_id and step of the rollouts; texts: (item, criterion) → what is looked for.
    """
    seen = shares.merge(rows[["response_id", "item_id", "step"]], on="response_id")
    trends = []
    for key, group in seen.groupby(["item_id", "criterion_id"]):
        item_id, criterion_id = map(str, key)
        own, licensed = trend(group, "own"), trend(group, "licensed")
        if own is not None and licensed is not None:
            text = texts.get((item_id, criterion_id), "")
            trends.append(CriterionTrend(item_id, criterion_id, text, len(group), own, licensed.last))
    return sorted(trends, key=_sureness, reverse=True)


def criterion_rows(rows: pd.DataFrame, shares: pd.DataFrame, item_id: str, criterion_id: str) -> pd.DataFrame:
    """The rollouts of an item with a criterion's own and licensed share."""
    chosen = shares[shares["criterion_id"] == criterion_id]
    return rows[rows["item_id"] == item_id].merge(chosen, on="response_id")


def unlicensed_shares(shares: pd.DataFrame) -> dict[str, list[UnlicensedShare]]:
    """Response → the three criteria that count for less after what licenses them by the widest gaps."""
    gaps = shares.assign(gap=shares["own"] - shares["licensed"])
    gaps = gaps[gaps["gap"] > 0.005].sort_values("gap", ascending=False, kind="stable")
    worst = gaps.groupby("response_id", sort=False).head(3)
    unlicensed = defaultdict[str, list[UnlicensedShare]](list)
    for response, *share in worst[["response_id", *UnlicensedShare._fields]].itertuples(index=False):
        unlicensed[response].append(UnlicensedShare(*share))
    return unlicensed


def _exploded(rewards: pa.Table, aggregation: str) -> pd.DataFrame:
    """response_id, criterion_id and share, a row for each entry of the marginals."""
    chosen = rewards.filter(pc.field("aggregation") == aggregation).combine_chunks()
    if not chosen.num_rows:
        return pd.DataFrame({"response_id": [], "criterion_id": [], "share": []})
    marginals = chosen["marginals"].combine_chunks()
    lengths = np.diff(marginals.offsets.to_numpy())
    return pd.DataFrame(
        {
            "response_id": np.repeat(chosen["response_id"].to_numpy(zero_copy_only=False), lengths),
            "criterion_id": marginals.keys.to_numpy(zero_copy_only=False),
            "share": marginals.items.to_numpy(zero_copy_only=False),
        }
    )


def _sureness(criterion: CriterionTrend) -> float:
    """How many half-widths of its interval the change is."""
    change = criterion.own.last - criterion.own.first
    half = (criterion.own.high - criterion.own.low) / 2
    return abs(change) / half if half else abs(change) * 1e6


class SelfAgreement(NamedTuple):
    """Of the criteria that two judgings of the same rollout decided."""

    value: float
    """Share on the same level."""
    by_chance: float
    """What two judgings would share that draw their levels blindly, each as often as the judge gives it."""
    decisions: int
    rollouts: int


def judged_twice(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """A row for each criterion that both judgings decided: response_id, criterion_id, decision, decision_again and
    agreed.

    first, second: response_id, criterion_id and decision, a level, NaN where it is unscored.
    """
    both = first.merge(second, on=["response_id", "criterion_id"], suffixes=("", "_again"))
    both = both.dropna(subset=["decision", "decision_again"])
    return both.assign(agreed=(both["decision"] == both["decision_again"]).astype(float))


def self_agreement(pairs: pd.DataFrame) -> SelfAgreement | None:
    """Over all pairs; None for none."""
    if pairs.empty:
        return None
    shares = [pairs[name].value_counts(normalize=True) for name in ("decision", "decision_again")]
    by_chance = float(shares[0].mul(shares[1], fill_value=0.0).sum())
    rollouts = int(pairs["response_id"].nunique())
    return SelfAgreement(float(pairs["agreed"].mean()), by_chance, len(pairs), rollouts)


def unverified_shares(judgments: pd.DataFrame) -> dict[str, float]:
    """Response → share of its levels above 0 for which no quote was found in it, of those that a quote was asked for.

    judgments: response_id and verified, None where no quote is asked for.
    """
    asked = judgments.dropna(subset=["verified"])
    shares = (1 - asked["verified"].astype(float)).groupby(asked["response_id"]).mean()
    return dict(zip(shares.index.astype(str), shares.tolist(), strict=True))


def agreement_rows(rows: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """The rollouts that were judged twice, with `agreed`: their share of criteria on the same level."""
    agreed = pairs.groupby("response_id")["agreed"].mean()
    return rows.assign(agreed=rows["response_id"].map(agreed)).dropna(subset=["agreed"])
