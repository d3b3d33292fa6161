"""The alarm of reward hacking: how often it rings where nothing is hacked, and how often where something is."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.reward_hacking import (
    FEWEST_EVALUATIONS,
    change,
    common_means,
    credit_by_evaluation,
    hacking_alarms,
)

EVALUATIONS, EVERY = 60, 5
SCATTER = 0.02
"""Standard deviation of one evaluation, of either series."""


def training(rng, rise=0.0, fall=0.0, wander=1.0, memory=0.5):
    """False credit and held-out quality whose shared noise moves them apart; rise and fall over the whole training."""
    shared = np.zeros((EVALUATIONS, 2))
    jumps = rng.multivariate_normal([0, 0], [[1, -0.5], [-0.5, 1]], EVALUATIONS)
    shared[0] = jumps[0]
    for number in range(1, EVALUATIONS):
        shared[number] = memory * shared[number - 1] + math.sqrt(1 - memory**2) * jumps[number]
    part = np.arange(1, EVALUATIONS + 1) / EVALUATIONS
    noise = SCATTER * (rng.normal(size=(EVALUATIONS, 2)) + wander * shared) / math.hypot(1, wander)
    credit, quality = 0.1 + rise * part + noise[:, 0], 0.5 - fall * part + noise[:, 1]
    steps = {EVERY * (number + 1) - back: float(credit[number]) for number in range(EVALUATIONS) for back in range(3)}
    items = {EVERY * (number + 1): {"a": float(value), "b": float(value)} for number, value in enumerate(quality)}
    return steps, items


def share_that_rings(count, **more):
    rng = np.random.default_rng(5)
    return np.mean([any(alarm.is_raised for alarm in hacking_alarms(*training(rng, **more))) for _ in range(count)])


def test_it_seldom_rings_where_nothing_is_hacked():
    assert share_that_rings(15, wander=0.0) == 0.0
    assert share_that_rings(25) <= 0.05
    assert share_that_rings(15, rise=0.1, fall=-0.1) <= 0.1


def test_it_rings_where_credit_rises_and_quality_falls():
    assert share_that_rings(15, rise=0.08, fall=0.08) >= 0.6
    assert share_that_rings(15, rise=0.16, fall=0.16) == 1.0


def test_it_knows_only_what_was_known_then():
    steps, items = training(np.random.default_rng(1), rise=0.3, fall=0.3)
    said = list(hacking_alarms(steps, items))
    cut = EVERY * 30
    earlier = list(
        hacking_alarms({s: v for s, v in steps.items() if s <= cut}, {s: v for s, v in items.items() if s <= cut})
    )
    assert said[: len(earlier)] == earlier
    assert len(said) == EVALUATIONS - FEWEST_EVALUATIONS + 1


def test_an_evaluation_of_the_untrained_policy_and_an_empty_one_do_not_count():
    steps, items = training(np.random.default_rng(2))
    assert list(hacking_alarms(steps, {**items, -1: {"a": 9.0}, 3: {}})) == list(hacking_alarms(steps, items))


def test_steps_belong_to_the_next_evaluation_and_items_to_all():
    assert credit_by_evaluation({0: 1.0, 1: 3.0, 2: 5.0, 9: 7.0}, [1, 4, 6]) == {1: 2.0, 4: 5.0}
    assert common_means([{"a": 1.0, "b": 3.0}, {"b": 5.0, "c": 9.0}]) == [3.0, 5.0]
    assert common_means([{"a": 1.0}, {"b": 5.0}]) == []


def test_a_change_is_that_of_the_library():
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(3)
    values = rng.normal(size=14)
    expected = ttest_ind(values[7:], values[:7], equal_var=False, alternative="greater")
    interval = ttest_ind(values[7:], values[:7], equal_var=False).confidence_interval(0.95)
    found = change(values)
    assert found.p_rise == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_a_series_without_scatter_is_certain():
    assert change([0.1] * 10).p_rise == 0.5
    assert change([0.1] * 5 + [0.2] * 5).p_rise == 0.0
    assert change([0.3] * 5 + [0.2] * 5).p_fall == 0.0


VALUES = st.floats(-1e6, 1e6)
CREDITS = st.dictionaries(st.integers(0, 60), VALUES, max_size=60)
QUALITIES = st.dictionaries(st.integers(0, 60), st.dictionaries(st.sampled_from("abc"), VALUES), max_size=40)


@settings(max_examples=20)
@given(CREDITS, QUALITIES)
def test_whatever_comes_is_judged_and_a_mirror_never_rings_with_it(steps, items):
    mirrored = {step: {name: -value for name, value in values.items()} for step, values in items.items()}
    for alarm, other in zip(hacking_alarms(steps, items), hacking_alarms(steps, mirrored), strict=True):
        assert not (alarm.is_raised and other.is_raised)
        assert 0 <= alarm.quality.p_fall <= 1
        assert alarm.false_credit.low <= alarm.false_credit.high
