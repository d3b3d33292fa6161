"""The alarm of reward hacking: how often it rings where nothing is hacked, and how soon where something is.

600 simulated trainings of 60 evaluations each, an evaluation scattering by .02 (.06: few held-out rollouts). Where
quality gains just half of what the reward gains it rang in 1 % with independent scatter, in 7 % where a policy also
wanders (autocorrelation .5) as far as evaluations scatter, in 14 % where twice as far, in 7 % with few rollouts and
wandering; of 12 evaluations in .5, 2, 4 and 2 %. Where quality gains .8 of it and both reach a plateau, in 0 to 1 %,
where it is lost again slowly, by .05, in 0 to 2 %; where both are still, both fall, or both rise by .06 in all, in 0
to 3 %.

Where quality gains .15 of it, and the reward .32 in all, it rang in 100 % (83 % with twice the wandering; 57 % with
few rollouts), in half by the 24th evaluation; where a third, in 87 %, by the 35th; where quality falls to 0 within
six, in all, by the 9th; where both rise and quality falls from the 36th on as fast as it rose, in all (52 % with few
rollouts), by the 54th; where it stays as it is from the 20th on while the reward rises, in 86 %, by the 55th.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.reward_hacking import (
    FEWEST_EVALUATIONS,
    by_evaluation,
    change,
    hacking_alarms,
)

EVALUATIONS, EVERY = 60, 5
PART = np.arange(1, EVALUATIONS + 1) / EVALUATIONS
LEARNED = 0.3 + 0.4 * (1 - np.exp(-PART / 0.3))
"""A reward that rises less and less."""


def training(rng, reward, quality, wander=1.0, scatter=0.02):
    """Paid reward and held-out quality, with scatter, half of it a wandering with a memory of .5 where that is 1."""
    noise = rng.normal(size=(2, EVALUATIONS))
    walk = np.zeros((2, EVALUATIONS))
    for number in range(EVALUATIONS):
        jump = rng.normal(size=2)
        walk[:, number] = 0.5 * walk[:, number - 1] + math.sqrt(0.75) * jump if number else jump
    noise = scatter * (noise + wander * walk) / math.hypot(1, wander)
    paid, worth = reward + noise[0], np.clip(quality + noise[1], 0, 1)
    steps = {EVERY * (number + 1) - back: float(paid[number]) for number in range(EVALUATIONS) for back in range(3)}
    items = {EVERY * (number + 1): {"a": float(value), "b": float(value)} for number, value in enumerate(worth)}
    return steps, items


def rings(count, *more, **noise):
    """The evaluation at which each of so many trainings rang first; infinite where none did."""
    rng, found = np.random.default_rng(5), []
    for _ in range(count):
        said = hacking_alarms(*training(rng, *more, **noise))
        found.append(next((alarm.step / EVERY for alarm in said if alarm.is_raised), math.inf))
    return np.array(found)


def test_it_seldom_rings_where_at_least_half_of_the_gain_is_quality():
    half = rings(16, LEARNED, 0.1 + 0.5 * (LEARNED - 0.3), wander=0.0)
    assert np.isfinite(half).sum() <= 1
    honest = [rings(4, LEARNED, LEARNED - 0.2), rings(4, LEARNED, 0.1 + 0.8 * (LEARNED - 0.3), scatter=0.06)]
    still = [rings(4, 0 * PART + 0.5, 0 * PART + 0.5), rings(4, 0.8 - LEARNED / 2, 0.9 - LEARNED)]
    assert np.isinf([*honest, *still]).all()


def test_it_rings_soon_where_little_of_the_gain_is_quality_and_where_quality_falls():
    hacked = rings(15, 0.45 + 0.32 * PART, 0.12 + 0.15 * 0.32 * PART)
    assert np.median(hacked) <= 35
    at_once = rings(6, LEARNED, 0.15 * np.exp(-np.arange(EVALUATIONS) / 2))
    assert at_once.max() <= 15
    late = rings(8, 0.3 + 0.4 * PART, 0.3 + 0.4 * np.where(PART < 0.6, PART, 1.8 - 2 * PART))
    assert (late > 36).all()
    assert np.isfinite(late).mean() >= 0.9


def test_what_rings_says_since_when_and_by_how_much():
    rng = np.random.default_rng(3)
    last = list(hacking_alarms(*training(rng, LEARNED, 0 * PART + 0.2)))[-1]
    assert (last.is_raised, last.since, last.step) == (True, EVERY, EVERY * EVALUATIONS)
    assert last.paid.low > 0.2
    assert last.quality.low < 0 < last.quality.high
    assert f"{last.paid.before:.3f} to {last.paid.now:.3f}" in last.said
    late = list(hacking_alarms(*training(rng, PART, np.minimum(PART, 1.3 - PART))))
    assert next(alarm for alarm in late if alarm.is_raised).since > 0.5 * EVERY * EVALUATIONS


def test_quality_in_another_unit_rings_only_where_it_falls():
    rng = np.random.default_rng(4)
    steps, items = training(rng, LEARNED, 0 * PART + 0.2)
    scaled = {step: {name: 100 * value for name, value in values.items()} for step, values in items.items()}
    assert not any(alarm.is_raised for alarm in hacking_alarms(steps, scaled))
    steps, items = training(rng, LEARNED, 0.6 - LEARNED / 2)
    scaled = {step: {name: value - 9 for name, value in values.items()} for step, values in items.items()}
    assert list(hacking_alarms(steps, scaled))[-1].is_raised


def test_it_knows_only_what_was_known_then():
    steps, items = training(np.random.default_rng(1), LEARNED, 0.6 - LEARNED / 2)
    items[EVERY * EVALUATIONS] = {"a": 7.0, "b": 7.0}
    said = list(hacking_alarms(steps, items))
    cut = EVERY * 30
    earlier = list(
        hacking_alarms({s: v for s, v in steps.items() if s <= cut}, {s: v for s, v in items.items() if s <= cut})
    )
    assert said[: len(earlier)] == earlier
    assert len(said) == EVALUATIONS - FEWEST_EVALUATIONS + 1


def test_an_evaluation_of_the_untrained_policy_and_an_empty_one_do_not_count_nor_do_items_that_some_lack():
    steps, items = training(np.random.default_rng(2), LEARNED, LEARNED)
    more = {step: {**values, f"only {step}": 0.0} for step, values in items.items()}
    assert list(hacking_alarms(steps, {**more, -1: {"a": 0.9}, 3: {}})) == list(hacking_alarms(steps, items))
    assert list(hacking_alarms(steps, {step: {str(step): 0.5} for step in items})) == []


def test_steps_belong_to_the_next_evaluation():
    assert by_evaluation({0: 1.0, 1: 3.0, 2: 5.0, 9: 7.0}, [1, 4, 6]) == {1: 2.0, 4: 5.0}


def test_a_change_is_that_of_the_worked_formula_and_its_chance_is_uniform():
    found = change([1.0, 2, 3, 2, 2, 3, 5, 6, 5, 6, 8])
    assert (found.before, found.now) == (2.0, 6.0)
    squares = 1 + 1 + 1 + 0 + 1 + 4 + 1 + 1 + 1 + 4
    assert found.high - found.low == pytest.approx(2 * 2.3646 * math.sqrt(squares / 10 / 2 * 2 / 5), rel=0.05)
    rng = np.random.default_rng(7)
    for size in (6, 12, 60):
        chances = np.array([change(rng.normal(size=size)).fall for _ in range(1000)])
        for level in (0.01, 0.1, 0.5):
            assert abs((chances <= level).mean() - level) <= 4 * math.sqrt(level / 1000)


def test_a_series_without_scatter_does_not_fall():
    assert change(np.full(10, 0.1)) == (0.1, 0.1, 0.0, 0.0, 0.5)


VALUES = st.floats(-1e6, 1e6)
PAID = st.dictionaries(st.integers(0, 60), VALUES, max_size=60)
QUALITIES = st.dictionaries(st.integers(0, 60), st.dictionaries(st.sampled_from("abc"), VALUES), max_size=40)


@settings(max_examples=20)
@given(PAID, QUALITIES)
def test_whatever_comes_is_judged_and_a_mirror_never_rings_with_it(steps, items):
    mirrored = {step: -value for step, value in steps.items()}
    for alarm, other in zip(hacking_alarms(steps, items), hacking_alarms(mirrored, items), strict=True):
        assert not (alarm.is_raised and other.is_raised)
        assert alarm.paid.low <= alarm.paid.high
