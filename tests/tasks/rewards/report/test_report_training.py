"""The training report: what it says of curves, criteria, held-out quality, the alarm and the judge."""

import random
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.rewards.report.training.curves import (
    criterion_shares,
    criterion_trends,
    curve,
    judged_twice,
    paired,
    self_agreement,
    unlicensed_shares,
    unverified_shares,
)
from rubricflow.tasks.rewards.report.training.view import TrainingView, content

STEPS, ITEMS = 60, ("q1", "q2", "q3")
PAID = {"rubric_id": "r", "graph_id": "g", "rater_id": "m", "sample": 0, "inference": "none", "eta": 1.0}
PAID |= {"retention": {}, "unscored": 0, "decided_by": "probability"}


def reward_row(response_id, item_id, aggregation, marginals):
    reward = float(np.mean(list(marginals.values())))
    keys = {"response_id": response_id, "item_id": item_id, "aggregation": aggregation}
    return PAID | keys | {"reward": reward, "marginals": marginals}


def scene(gaming=1.0, told=True, twice=True, unverified=None):
    """A training whose example is paid more and more, while the fact that licenses it is met less and less."""
    rng = random.Random(4)
    rewards, responses, cases, qualities, first = [], [], [], [], []
    for step in range(1, STEPS + 1):
        part = gaming * step / STEPS
        for item in ITEMS:
            response = f"{item}-{step}"
            fact, example = 0.8 - 0.7 * part, 0.2 + 0.7 * part + rng.gauss(0, 0.01)
            rewards.append(reward_row(response, item, "flat", {"fact": fact, "example": example}))
            rewards.append(reward_row(response, item, "gear", {"fact": fact, "example": example * fact}))
            responses.append({"response_id": response, "item_id": item, "text": f"<b>{response}</b>", "step": step})
            cases.append({"response_id": response, "relation": "weak_prerequisite", "leaked": example * (1 - fact)})
            first.append({"response_id": response, "criterion_id": "fact", "decision": 1.0})
            qualities.append({"step": step, "item_id": item, "quality": 0.6 - 0.3 * part + rng.gauss(0, 0.01)})
    decided = pd.DataFrame(first)
    again = decided.assign(decision=[1.0, 0.0] * (len(decided) // 2))
    return TrainingView(
        run_id="training",
        rewards=pd.DataFrame(rewards)[["response_id", "item_id", "aggregation", "reward"]],
        responses=pd.DataFrame(responses),
        cases=pd.DataFrame(cases),
        shares=criterion_shares(conform(Rewards, rewards)),
        twice=judged_twice(decided, again) if twice else judged_twice(decided.head(0), decided.head(0)),
        unverified=unverified or {},
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
    assert "looks as if it learns to earn points without licence" in shown().title
    held_out = section(shown(), "held-out")
    assert "The alarm rang first at step" in held_out.lead
    assert "rings now" in held_out.lead
    assert [row[0] for row in held_out.small[0].rows] == ["false credit, a rise", "held-out quality, a fall"]


def test_a_calm_training_is_not_and_one_without_evaluations_says_how_to_tell_them():
    calm = shown(gaming=0.0)
    assert "looks as if" not in calm.title
    assert section(calm, "held-out").lead == "The alarm never rang."
    silent = section(shown(told=False), "held-out")
    assert "client.held_out" in silent.missing
    assert not silent.drawings


def test_criteria_are_told_by_their_words_with_what_is_not_licensed():
    criteria = section(shown(), "criteria")
    assert len(criteria.drawings) == 3
    rows = {(row[0], row[1]): row for row in criteria.tables[0].rows}
    own = rows["q1", "Gives an <i>example</i> of it"]
    assert own[5].low > 0
    assert own[7].value == pytest.approx(own[4].value - own[6].value)
    assert rows["q2", "fact"][5].high < 0


def test_the_judges_agreement_stands_beside_chance_and_n():
    judge = section(shown(), "judge")
    assert (
        f"50% of {STEPS * 3} decisions on {STEPS * 3} rollouts stayed the same; by chance alone 50% would" in judge.lead
    )
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


@settings(max_examples=60)
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
    found = self_agreement(judged_twice(*frames))
    both = [pair for pair in pairs if None not in pair]
    if not both:
        assert found is None
        return
    assert found.value == pytest.approx(np.mean([one == other for one, other in both]))
    assert found.by_chance == pytest.approx(np.mean([one == other for one, _ in both for _, other in both]))
    assert found.decisions == len(both)


@settings(max_examples=40)
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
    assert unlicensed_shares(shares) == {}


def test_nothing_is_no_error():
    empty = criterion_shares(conform(Rewards, []))
    assert empty.empty
    view = scene()
    rows = paired(view.rewards, view.responses)
    assert criterion_trends(rows, empty, {}) == []
    assert isinstance(conform(Rewards, []), pa.Table)


@pytest.mark.parametrize("items", [5, 12, 40])
def test_a_point_has_the_t_interval_over_items(items):
    draw = np.random.default_rng(items)
    rows = pd.DataFrame(
        {"item_id": [f"i{n % items}" for n in range(3 * items)], "step": 1, "gear": draw.random(3 * items)}
    )
    (point,) = curve(rows, "gear")
    means = rows.groupby("item_id")["gear"].mean()
    low, high = stats.t.interval(0.95, items - 1, loc=means.mean(), scale=stats.sem(means))
    assert (point.value, point.low, point.high) == pytest.approx((means.mean(), low, high))


def test_quotes_that_are_not_there_are_drawn_and_counted():
    rows = [("r1", True), ("r1", False), ("r1", None), ("r2", None), ("r3", False)]
    shares = unverified_shares(pd.DataFrame(rows, columns=["response_id", "verified"]))
    assert shares == {"r1": 0.5, "r3": 1.0}
    responses = scene().responses["response_id"]
    unverified = {name: float(place < len(responses) / 4) for place, name in enumerate(responses)}
    view = content(scene(twice=False, unverified=unverified))
    assert [drawing.title for drawing in section(view, "judge").drawings] == [
        "Levels above 0 without a quote in the rollout"
    ]
    assert ("Quotes not in the rollout", "25%") in {(key.name, key.value) for key in view.keys}
