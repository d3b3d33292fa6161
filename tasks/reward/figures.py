"""Numbers about rewards, with 95% percentile intervals from resampling items with replacement.

A figure is a function of sums over its cases, so sums per item are taken once and every draw weighs them. All figures
of a batch share their draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tasks.contracts.settings.reward import Reward
from tasks.reward.aggregate import Aggregated
from tasks.reward.local import Locals
from tasks.stats.arrays import Floats, Ints
from tasks.stats.bootstrap import cluster_codes, draw_totals, interval, sums_by_code

Record = dict[str, Any]
"""A row of the table `diagnostics`."""
Statistic = Callable[[Floats], Floats]
"""(d, columns) sums → (d,) values, NaN where undefined."""
SAME = 1e-12
"""Rewards that differ by less have no spread."""


class RewardFigure(NamedTuple):
    """A value, None with a note where there is none, and its interval, None where it cannot be had."""

    value: float | None
    low: float | None
    high: float | None
    note: str | None
    clusters: int | None = None
    """How many the interval resamples."""

    def noted(self, note: str | None) -> RewardFigure:
        """With a further note."""
        return self._replace(note="; ".join(one for one in (self.note, note) if one) or None)


@dataclass(frozen=True)
class Resampling:
    """The items of a batch, and how often they are drawn."""

    codes: Ints
    """(n,) number of each response's item; more than 2,000 items are resampled in 2,000 random groups."""
    size: int
    draws: int
    seed: int

    @classmethod
    def plan(cls, of: Locals, settings: Reward) -> Resampling:
        """As the study says."""
        return cls(*cluster_codes(of.item), settings.draws, settings.seed)

    def figure(self, statistic: Statistic, response: Ints, terms: list[Floats]) -> RewardFigure:
        """A statistic of the sums of some cases' terms.

        response: (c,) the response in the batch that each case belongs to; terms: columns of shape (c,).
        """
        if not len(response):
            return RewardFigure(None, None, None, "there is no such case")
        sums = sums_by_code(np.column_stack(terms), self.codes[response], self.size)
        value = float(statistic(sums.sum(axis=0, keepdims=True))[0])
        if np.isnan(value):
            return RewardFigure(
                None, None, None, "is not defined: the cases do not differ, or there is nothing to divide by"
            )
        if not self.draws:
            return RewardFigure(value, None, None, None)
        if self.size < 2:
            return RewardFigure(value, None, None, "no interval: there is one item only")
        items = len(np.unique(self.codes[response]))
        found = interval(statistic(draw_totals([sums], self.draws, self.seed)[0]), items)
        lost = f"{found.undefined} of {self.draws} draws have no value" if found.undefined else None
        return RewardFigure(value, found.low, found.high, lost, items)


def record(
    metric: str, aggregation: str, found: RewardFigure, n: int, unscored: int, per: str = "response", slice: str = "all"
) -> Record:
    """A row of `diagnostics`; the arguments are its columns."""
    return {
        "metric": metric,
        "aggregation": aggregation,
        "per": per,
        "slice": slice,
        **found._asdict(),
        "n": n,
        "unscored": unscored,
    }


def reward_figures(of: Locals, aggregation: str, found: Aggregated, settings: Reward) -> list[Record]:
    """`reward_mean` and `reward_sd` (n − 1 below) over the responses that have a reward."""
    scored = np.flatnonzero(~np.isnan(found.reward))
    plan, unscored = Resampling.plan(of, settings), len(found.reward) - len(scored)
    rewards = found.reward[scored]
    off = _centred(rewards)
    figures = {
        "reward_mean": plan.figure(ratio, scored, [rewards, np.ones(len(scored))]),
        "reward_sd": plan.figure(deviation, scored, [np.ones(len(scored)), off, off**2]),
    }
    return [record(metric, aggregation, figure, len(scored), unscored) for metric, figure in figures.items()]


def agreement(of: Locals, found: Aggregated, exact: Aggregated, settings: Reward) -> list[Record]:
    """How near the topological update comes to exact inference (GEAR, Table 6), under the aggregation gear.

    `marginal_mae`: mean |difference| of the criteria's marginals; `reward_mae`: of the rewards; `reward_correlation`:
    Pearson's of the rewards. What has no value by either is left out.
    """
    plan = Resampling.plan(of, settings)
    owner = np.repeat(np.arange(len(of.batch.of)), np.diff(of.batch.start))
    apart, gaps = found.reward - exact.reward, found.marginal - exact.marginal
    kept, known = np.flatnonzero(~np.isnan(apart)), np.flatnonzero(~np.isnan(gaps))
    a, b = _centred(found.reward[kept]), _centred(exact.reward[kept])
    of_rewards, of_marginals = np.ones(len(kept)), np.ones(len(known))
    figures = [
        ("marginal_mae", plan.figure(ratio, owner[known], [np.abs(gaps[known]), of_marginals]), len(known)),
        ("reward_mae", plan.figure(ratio, kept, [np.abs(apart[kept]), of_rewards]), len(kept)),
        ("reward_correlation", plan.figure(correlation, kept, [of_rewards, a, b, a * a, b * b, a * b]), len(kept)),
    ]
    return [record(metric, "gear", figure, n, len(apart) - len(kept)) for metric, figure, n in figures]


def ratio(totals: Floats) -> Floats:
    """Σ above / Σ below, of sums (above, below)."""
    found: Floats = np.full(len(totals), np.nan)
    np.divide(totals[:, 0], totals[:, 1], out=found, where=totals[:, 1] > 0)
    return found


def deviation(totals: Floats) -> Floats:
    """Sample standard deviation, of sums (1, x, x²)."""
    n, x, xx = totals.T
    found: Floats = np.full(len(n), np.nan)
    np.divide(np.maximum(n * xx - x * x, 0.0), n * (n - 1), out=found, where=n > 1)
    return np.sqrt(found)


def correlation(totals: Floats) -> Floats:
    """Pearson's correlation, of sums (1, x, y, x², y², xy); NaN where either has no spread."""
    n, x, y, xx, yy, xy = totals.T
    spread = [np.sqrt(np.maximum(n * squares - sums**2, 0.0)) for sums, squares in ((x, xx), (y, yy))]
    varied = (spread[0] > SAME * n) & (spread[1] > SAME * n)
    found: Floats = np.full(len(n), np.nan)
    np.divide(n * xy - x * y, spread[0] * spread[1], out=found, where=varied)
    return np.clip(found, -1.0, 1.0)


def _centred(values: Floats) -> Floats:
    """Values less their mean, so that sums of squares keep their digits."""
    return values - values.mean() if len(values) else values
