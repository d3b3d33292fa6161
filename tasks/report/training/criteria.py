"""What each criterion is worth over a training's steps, by itself and after what licenses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tasks.report.training.curves import Trend, trend


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
    for _, group in seen.groupby(["item_id", "criterion_id"]):
        item_id, criterion_id = map(str, group[["item_id", "criterion_id"]].iloc[0])
        own, licensed = trend(group, "own"), trend(group, "licensed")
        if own is None or licensed is None:
            continue
        text = texts.get((item_id, criterion_id), "")
        trends.append(CriterionTrend(item_id, criterion_id, text, len(group), own, licensed.last))
    return sorted(trends, key=_sureness, reverse=True)


def criterion_rows(rows: pd.DataFrame, shares: pd.DataFrame, item_id: str, criterion_id: str) -> pd.DataFrame:
    """The rollouts of an item with a criterion's own and licensed share."""
    chosen = shares[shares["criterion_id"] == criterion_id]
    return rows[rows["item_id"] == item_id].merge(chosen, on="response_id")


class UnlicensedShare(NamedTuple):
    """A criterion of a rollout that counts for less after what licenses it."""

    criterion_id: str
    own: float
    licensed: float


def unlicensed_shares(shares: pd.DataFrame, most: int = 3) -> dict[str, list[UnlicensedShare]]:
    """Response → its criteria that count for less after what licenses them, the widest gaps first."""
    gaps = shares.assign(gap=shares["own"] - shares["licensed"])
    gaps = gaps[gaps["gap"] > 0.005].sort_values("gap", ascending=False, kind="stable")
    worst = gaps.groupby("response_id", sort=False).head(most)
    unlicensed: dict[str, list[UnlicensedShare]] = {}
    for row in worst.to_dict("records"):
        share = UnlicensedShare(str(row["criterion_id"]), float(row["own"]), float(row["licensed"]))
        unlicensed.setdefault(str(row["response_id"]), []).append(share)
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
