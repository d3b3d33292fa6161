"""How far the judge of a training can be trusted: whether it agrees with itself where rollouts were judged twice, and
whether its quotes are there."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd


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
