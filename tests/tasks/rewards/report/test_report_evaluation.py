"""The alarm on rewards against an evaluation: the same as the rule on steps put together by hand."""

import random

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.stats.reward_hacking import hacking_alarms
from rubricflow.tasks.rewards.report.training import EARNED, alarms, ringing

STEPS = 120


def rollouts(fall: float, items: int = 2, every: int = 1) -> pd.DataFrame:
    """A rollout a step and more: what is earned rises, and quality changes by -fall; told at every so many steps."""
    draw, rows = random.Random(7), []
    for step in range(1, STEPS + 1):
        part = step / STEPS
        flat, gear = (part * rise + draw.gauss(0, 0.02) for rise in (0.5, 0.0))
        quality = 0.5 - fall * part + draw.gauss(0, 0.02) if step % every == 0 else np.nan
        rows.append({"step": float(step), "item_id": f"q{step % items}", "flat": flat, "gear": gear})
        rows[-1] |= {"gap": flat - gear, "quality": quality}
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("every", "ends"), [(1, range(3, 121, 3)), (5, range(5, 121, 5))])
def test_the_alarm_is_the_rule_over_a_few_steps_together(every: int, ends: range) -> None:
    rows = rollouts(0.4, items=1, every=every)
    size = ends.step
    quality = {end: {"q0": rows["quality"][end - size : end].mean()} for end in ends}
    said = alarms(rows)
    for name in EARNED:
        (expected, found) = (list(hacking_alarms(dict(enumerate(rows[name], 1)), quality)), said[name])
        assert [alarm.step for alarm in found] == [alarm.step for alarm in expected]
        assert np.allclose([alarm.quality for alarm in found], [alarm.quality for alarm in expected])
        assert np.allclose([alarm.paid for alarm in found], [alarm.paid for alarm in expected])
        assert found[-1].is_raised == (name != "gear")


def test_it_names_what_rises_and_is_silent_where_quality_rises_too() -> None:
    assert "flat reward" in ringing(alarms(rollouts(0.4)))
    assert ringing(alarms(rollouts(-0.4))) == ""


def test_without_items_in_common_or_scores_it_says_nothing() -> None:
    apart, unscored = alarms(rollouts(0.4, items=STEPS)), alarms(rollouts(0.4, every=STEPS + 1))
    assert [*apart.values(), *unscored.values()] == [[]] * 2 * len(EARNED)
    assert ringing(apart) == ""
