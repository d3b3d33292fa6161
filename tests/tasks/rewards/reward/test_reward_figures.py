"""Figures of rewards against the standard library, NumPy, and a plain bootstrap."""

import statistics

import numpy as np
import pytest
from reward_scene import WEAK, locals_of, random_locals, rubric, study

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics
from rubricflow.tasks.core.stats.bootstrap import draw_totals, interval
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.figures import agreement, reward_figures

ONE = rubric([1, 1], [(0, 1, WEAK)])


def rewarded(rewards, marginals=None):
    nothing = np.full(len(rewards), np.nan)
    return Aggregated(
        reward=np.array(rewards, dtype=float),
        low=nothing,
        high=nothing,
        marginal=np.zeros(2 * len(rewards)) if marginals is None else np.array(marginals),
    )


def responses(n, items=None):
    return locals_of([ONE], [0] * n, [[0.5, 0.5]] * n, items)


def named(records):
    conform(Diagnostics, records)
    return {record["metric"]: record for record in records}


def resampled(locals_, settings, statistic):
    """The 95% interval of a statistic of the responses' places, by a loop over resampled items."""
    items = sorted(set(locals_.item_id.to_pylist()))
    of_item = {item: [n for n, own in enumerate(locals_.item_id.to_pylist()) if own == item] for item in items}
    drawn = []
    for row in draw_totals([np.eye(len(items))], settings.draws, settings.seed)[0]:
        places = [n for item, times in zip(items, row, strict=True) for n in of_item[item] * int(times)]
        drawn.append(statistic(places))
    return list(interval(np.array(drawn), len(items))[:2])


def test_mean_and_standard_deviation_are_those_of_the_scored_rewards():
    rewards = [0.2, float("nan"), -0.4, 0.9, 0.1]
    found = named(reward_figures(responses(5), "gear", rewarded(rewards), study()))
    scored = [reward for reward in rewards if reward == reward]
    assert found["reward_mean"]["value"] == pytest.approx(statistics.mean(scored))
    assert found["reward_sd"]["value"] == pytest.approx(statistics.stdev(scored))
    assert [(one["n"], one["unscored"], one["aggregation"]) for one in found.values()] == [(4, 1, "gear")] * 2


def test_intervals_of_rewards_resample_items():
    locals_, settings = random_locals(np.random.default_rng(1), responses=40, items=7, unscored=0.0), study(draws=30)
    rewards = aggregate(locals_.batch, "flat")
    found = named(reward_figures(locals_, "flat", rewards, settings))
    for metric, statistic in (("reward_mean", np.mean), ("reward_sd", lambda of: np.std(of, ddof=1))):
        ends = resampled(locals_, settings, lambda places, statistic=statistic: statistic(rewards.reward[places]))
        assert [found[metric][end] for end in ("low", "high")] == pytest.approx(ends)


def test_agreement_is_over_marginals_and_over_rewards():
    near = rewarded([0.1, 0.5, 0.9], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    exact = rewarded([0.2, 0.5, 0.7], [0.1, 0.3, 0.3, 0.4, 0.5, 0.4])
    found = named(agreement(responses(3), near, exact, study()))
    assert found["marginal_mae"]["value"] == pytest.approx(0.3 / 6)
    assert found["reward_mae"]["value"] == pytest.approx(0.1)
    assert found["reward_correlation"]["value"] == pytest.approx(np.corrcoef([0.1, 0.5, 0.9], [0.2, 0.5, 0.7])[0, 1])
    assert [one["n"] for one in found.values()] == [6, 3, 3]


def test_agreement_leaves_out_what_has_no_value_by_either():
    near = rewarded([0.1, np.nan, 0.9], [0.1, 0.2, np.nan, 0.4, 0.5, 0.6])
    exact = rewarded([np.nan, 0.5, 0.7], [0.1, 0.2, 0.3, 0.4, 0.5, np.nan])
    found = named(agreement(responses(3), near, exact, study()))
    assert [(one["n"], one["unscored"]) for one in found.values()] == [(4, 2), (1, 2), (1, 2)]


def test_rewards_without_spread_have_no_correlation():
    found = named(agreement(responses(3), rewarded([0.1] * 3), rewarded([0.1, 0.2, 0.3]), study()))
    assert found["reward_correlation"]["value"] is None
    assert "do not differ" in found["reward_correlation"]["note"]


def test_draws_without_a_value_are_counted():
    found = named(reward_figures(responses(2), "gear", rewarded([0.1, np.nan]), study(draws=200)))["reward_mean"]
    assert found["value"] == pytest.approx(0.1)
    lost = int(found["note"].split()[0])
    assert 20 < lost < 80  # both draws of two take the unscored response: a quarter of 200
