"""Numbers about rewards, with 95% percentile intervals from resampling items with replacement.

A figure is a function of sums over its cases, so sums per item are taken once and every draw weighs them. All figures
of a batch share their draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.arrays import ratio as quotient
from rubricflow.tasks.core.stats.bootstrap import draw_totals, interval, sums_by_code
from rubricflow.tasks.rewards.reward.local import Locals

if TYPE_CHECKING:
    from rubricflow.tasks.rewards.reward.aggregate import Aggregated

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
        return self._replace(note="; ".join(text for text in (self.note, note) if text) or None)


@dataclass(frozen=True)
class Resampling:
    """The items of a batch, and how often they are drawn."""

    codes: Ints
    """(n,) number of each response's item; more than 2,000 items are resampled in 2,000 random groups."""
    size: int
    draws: int
    seed: int

    @classmethod
    def plan(cls, judged: Locals, settings: Reward) -> Resampling:
        """As the study says."""
        return cls(*judged.clusters, settings.draws, settings.seed)

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
        ends = interval(statistic(draw_totals([sums], self.draws, self.seed)[0]), items)
        lost = f"{ends.undefined} of {self.draws} draws have no value" if ends.undefined else None
        return RewardFigure(value, ends.low, ends.high, lost, items)


def record(
    metric: str,
    aggregation: str,
    figure: RewardFigure,
    n: int,
    unscored: int,
    per: str = "response",
    slice: str = "all",
) -> Record:
    """A row of `diagnostics`; the arguments are its columns."""
    return {
        "metric": metric,
        "aggregation": aggregation,
        "per": per,
        "slice": slice,
        **figure._asdict(),
        "n": n,
        "unscored": unscored,
    }


def reward_figures(judged: Locals, aggregation: str, aggregated: Aggregated, settings: Reward) -> list[Record]:
    """`reward_mean` and `reward_sd` (n − 1 below) over the responses that have a reward."""
    scored = np.flatnonzero(~np.isnan(aggregated.reward))
    plan = Resampling.plan(judged, settings)
    unscored = len(aggregated.reward) - len(scored)
    rewards = aggregated.reward[scored]
    deviations = _centred(rewards)
    ones = np.ones(len(scored))
    mean = plan.figure(ratio, scored, [rewards, ones])
    sd = plan.figure(deviation, scored, [ones, deviations, deviations**2])
    return [
        record("reward_mean", aggregation, mean, len(scored), unscored),
        record("reward_sd", aggregation, sd, len(scored), unscored),
    ]


def agreement(judged: Locals, topological: Aggregated, exact: Aggregated, settings: Reward) -> list[Record]:
    """How near the topological update comes to exact inference (GEAR, Table 6), under the aggregation gear.

    `marginal_mae`: mean |difference| of the criteria's marginals; `reward_mae`: of the rewards; `reward_correlation`:
    Pearson's of the rewards. What has no value by either is left out.
    """
    plan = Resampling.plan(judged, settings)
    owner = np.repeat(np.arange(len(judged.batch.rubric_index)), np.diff(judged.batch.start))
    apart = topological.reward - exact.reward
    gaps = topological.marginal - exact.marginal
    rewarded = np.flatnonzero(~np.isnan(apart))
    criteria = np.flatnonzero(~np.isnan(gaps))
    a = _centred(topological.reward[rewarded])
    b = _centred(exact.reward[rewarded])
    of_rewards = np.ones(len(rewarded))
    of_marginals = np.ones(len(criteria))
    marginal_mae = plan.figure(ratio, owner[criteria], [np.abs(gaps[criteria]), of_marginals])
    reward_mae = plan.figure(ratio, rewarded, [np.abs(apart[rewarded]), of_rewards])
    reward_correlation = plan.figure(correlation, rewarded, correlation_terms(a, b))
    unscored = len(apart) - len(rewarded)
    return [
        record("marginal_mae", "gear", marginal_mae, len(criteria), unscored),
        record("reward_mae", "gear", reward_mae, len(rewarded), unscored),
        record("reward_correlation", "gear", reward_correlation, len(rewarded), unscored),
    ]


def ratio(totals: Floats) -> Floats:
    """Σ above / Σ below, of sums (above, below)."""
    return quotient(totals[:, 0], totals[:, 1])


def deviation(totals: Floats) -> Floats:
    """Sample standard deviation, of sums (1, x, x²)."""
    n, x, xx = totals.T
    return np.sqrt(quotient(np.maximum(n * xx - x * x, 0.0), n * (n - 1)))


def correlation_terms(a: Floats, b: Floats) -> list[Floats]:
    """The columns whose sums `correlation` takes, of centred values (c,)."""
    return [np.ones(len(a)), a, b, a * a, b * b, a * b]


def correlation(totals: Floats) -> Floats:
    """Pearson's correlation, of sums (1, x, y, x², y², xy); NaN where either has no spread."""
    n, x, y, xx, yy, xy = totals.T
    spread = [np.sqrt(np.maximum(n * squares - sums**2, 0.0)) for sums, squares in ((x, xx), (y, yy))]
    varied = (spread[0] > SAME * n) & (spread[1] > SAME * n)
    return np.clip(quotient(n * xy - x * y, np.where(varied, spread[0] * spread[1], 0.0)), -1.0, 1.0)


def _centred(values: Floats) -> Floats:
    """Values less their mean, so that sums of squares keep their digits."""
    return values - values.mean() if len(values) else values
