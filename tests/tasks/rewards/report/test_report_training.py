"""The training report: what it says of curves, criteria, held-out quality, the alarm and the judge."""

import random
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.stats.reward_hacking import hacking_alarms
from rubricflow.tasks.rewards.report.training import (
    EARNED,
    TrainingView,
    alarms,
    by_chance,
    content,
    criterion_shares,
    curve,
    judged_twice,
    paired,
    ringing,
    trend,
)

STEPS, ITEMS = 60, ("q1", "q2", "q3")
PAID = {"rubric_id": "r", "graph_id": "g", "rater_id": "m", "sample": 0, "inference": "none", "eta": 1.0}
PAID |= {"retention": {}, "unscored": 0, "decided_by": "probability"}


def reward_row(response_id, item_id, aggregation, marginals):
    reward = float(np.mean(list(marginals.values())))
    keys = {"response_id": response_id, "item_id": item_id, "aggregation": aggregation}
    return PAID | keys | {"reward": reward, "marginals": marginals}


def scene(gaming=1.0, told=True, twice=True, unverified=np.nan):
    """A training whose example is paid more and more, while the fact that licenses it is met less and less."""
    rng = random.Random(4)
    rewards, responses, cases, qualities, first = [], [], [], [], []
    for step in range(1, STEPS + 1):
        part = gaming * step / STEPS
        for item in ITEMS:
            response = f"{item}-{step}"
            fact, example = 0.8 - 0.5 * part, 0.2 + 0.7 * part + rng.gauss(0, 0.01)
            rewards.append(reward_row(response, item, "flat", {"fact": fact, "example": example}))
            rewards.append(reward_row(response, item, "gear", {"fact": fact, "example": example * fact}))
            responses.append({"response_id": response, "item_id": item, "text": f"<b>{response}</b>", "step": step})
            cases.append({"response_id": response, "relation": "weak_prerequisite", "leaked": example * (1 - fact)})
            first.append({"response_id": response, "criterion_id": "fact", "decision": 1.0})
            qualities.append({"step": step, "item_id": item, "quality": 0.6 - 0.3 * part + rng.gauss(0, 0.01)})
    decided = pd.DataFrame(first)
    again = decided.assign(decision=[1.0, 0.0] * (len(decided) // 2))
    paid = pd.DataFrame(rewards)[["response_id", "aggregation", "reward"]]
    rollouts = paired(paid, pd.DataFrame(responses))
    return TrainingView(
        run_id="training",
        rollouts=rollouts.assign(paid=rollouts["flat"], unverified=unverified),
        cases=pd.DataFrame(cases),
        shares=criterion_shares(conform(Rewards, rewards)),
        twice=judged_twice(decided, again) if twice else judged_twice(decided.head(0), decided.head(0)),
        quality=pd.DataFrame(qualities if told else [], columns=["step", "item_id", "quality"]),
        texts={("q1", "example"): "Gives an <i>example</i> of it"},
    )


@cache
def shown(gaming=1.0, told=True, twice=True):
    """The page's content of one scene, made once."""
    return content(scene(gaming, told, twice))


def section(page_content, name):
    return next((part for part in page_content.sections if part.id == name), None)


def test_a_gamed_training_is_called_one():
    assert "learns to please its judge" in shown().title
    held_out = section(shown(), "held-out")
    assert "The alarm rang first at step" in held_out.lead
    assert "rings now" in held_out.lead


def test_a_calm_training_is_not_and_one_without_evaluations_says_how_to_tell_them():
    calm = shown(gaming=0.0)
    assert "please" not in calm.title
    assert section(calm, "held-out").lead.startswith("The alarm never rang")
    silent = section(shown(told=False), "held-out")
    assert "client.held_out" in silent.missing
    assert not silent.drawings


def test_criteria_are_told_by_their_words_with_what_is_not_licensed():
    criteria = section(shown(), "criteria")
    rows = {(row[0], row[1]): row for row in criteria.tables[0].rows}
    own = rows["q1", "Gives an <i>example</i> of it"]
    assert own[5].low > 0
    assert own[7].value == pytest.approx(own[4].value - own[6].value)
    assert rows["q2", "fact"][5].high < 0


def test_the_judges_agreement_stands_beside_chance_and_n():
    judge = section(shown(), "judge")
    assert f"50% of {STEPS * 3} decisions stayed the same; by chance alone 50% would" in judge.lead
    assert section(shown(twice=False), "judge") is None


def test_what_is_read_says_which_criteria_were_not_licensed():
    read = section(shown(), "read")
    words = {row[1]: row[5] for row in read.tables[0].rows}
    assert words["q2"].startswith("example: 0.")
    assert words["q1"].startswith("Gives an <i>example</i> of it: 0.")
    html = rendered(shown())
    assert "&lt;b&gt;" in html
    assert "<b>q" not in html
    assert "<i>example" not in html


def test_an_unscored_criterion_has_no_share():
    rows = [reward_row("a", "q", "flat", {"C1": 1.0, "C2": 0.5}), reward_row("a", "q", "gear", {"C1": 1.0})]
    shares = criterion_shares(conform(Rewards, rows))
    assert shares.to_dict("records") == [{"response_id": "a", "criterion_id": "C1", "own": 1.0, "licensed": 1.0}]


LEVELS = st.one_of(st.none(), st.integers(0, 3))


@settings(max_examples=15)
@given(st.lists(st.tuples(LEVELS, LEVELS), max_size=30))
def test_agreement_is_that_of_plain_counting(pairs):
    keys = [{"response_id": str(number), "criterion_id": "C"} for number in range(len(pairs))]
    frames = [
        pd.DataFrame(
            [key | {"decision": pair[side]} for key, pair in zip(keys, pairs, strict=True)],
            columns=["response_id", "criterion_id", "decision"],
        )
        for side in (0, 1)
    ]
    found = judged_twice(*frames)
    both = [pair for pair in pairs if None not in pair]
    assert len(found) == len(both)
    if both:
        assert found["agreed"].mean() == pytest.approx(np.mean([one == other for one, other in both]))
        assert by_chance(found) == pytest.approx(np.mean([one == other for one, _ in both for _, other in both]))


@settings(max_examples=15)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1)), min_size=1, max_size=8))
def test_shares_are_what_the_marginals_hold(marginals):
    rows = [
        reward_row(str(number), "q", name, {"x": 0.0, **values})
        for number, values in enumerate(marginals)
        for name in ("flat", "gear")
    ]
    shares = criterion_shares(conform(Rewards, rows))
    assert len(shares) == sum(len(values) + ("x" not in values) for values in marginals)
    for row in shares.to_dict("records"):
        assert row["own"] == row["licensed"] == {"x": 0.0, **marginals[int(row["response_id"])]}[row["criterion_id"]]


def test_nothing_is_no_error():
    view = scene(told=False, twice=False)
    nothing = view._replace(rollouts=view.rollouts.head(0), cases=view.cases.head(0))
    page = content(nothing._replace(shares=criterion_shares(conform(Rewards, []))))
    assert [part.id for part in page.sections] == ["rewards", "held-out"]
    assert "</html>" in rendered(page)


@pytest.mark.parametrize("items", [5, 12, 40])
def test_a_point_has_the_t_interval_over_items(items):
    draw = np.random.default_rng(items)
    rows = pd.DataFrame(
        {"item_id": [f"i{n % items}" for n in range(3 * items)], "step": 1, "gear": draw.random(3 * items)}
    )
    (point,) = curve(rows, "gear")
    means = rows.groupby("item_id")["gear"].mean()
    low, high = stats.t.interval(0.95, items - 1, loc=means.mean(), scale=stats.sem(means))
    assert (point.y, point.low, point.high) == pytest.approx((means.mean(), low, high))


def test_a_change_has_the_t_interval_over_steps():
    draw = np.random.default_rng(1)
    rows = pd.DataFrame({"step": range(12), "gap": draw.random(12)})
    first, last = rows["gap"][:4], rows["gap"][-4:]
    found = trend(rows, "gap")
    by_library = stats.ttest_ind(last, first).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((by_library.low, by_library.high))


def test_quotes_that_are_not_there_are_drawn():
    drawn = section(content(scene(twice=False, unverified=0.25)), "judge").drawings
    assert ["quotes not in the rollout" in drawing.svg for drawing in drawn] == [True]


# The alarm on rewards against an evaluation: the same as the rule on steps put together by hand.


EVALUATED_STEPS = 120


def rollouts(fall: float, items: int = 2, every: int = 1) -> pd.DataFrame:
    """A rollout a step and more: what is earned rises, and quality changes by -fall; told at every so many steps."""
    draw, rows = random.Random(7), []
    for step in range(1, EVALUATED_STEPS + 1):
        part = step / EVALUATED_STEPS
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
    apart, unscored = (
        alarms(rollouts(0.4, items=EVALUATED_STEPS)),
        alarms(rollouts(0.4, every=EVALUATED_STEPS + 1)),
    )
    assert [*apart.values(), *unscored.values()] == [[]] * 2 * len(EARNED)
    assert ringing(apart) == ""
