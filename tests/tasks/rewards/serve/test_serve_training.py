"""What the server remembers of a training, and what it says of a held-out evaluation."""

import random

import pytest
from serve_scene import Scripted, paid, serving

from rubricflow.client import RewardClient, RewardError
from rubricflow.tasks.rewards.serve.answered import (
    RewardSum,
    TrainingMemory,
    TrainingRecord,
    summary_of,
    unscored_answer,
)

NOTHING = TrainingRecord({}, {})
EVERY = 4


def rollout(reward):
    return paid("a", reward)


def hacked(memory, rng, steps=80, gaming=1.0):
    """A training whose reward rises and whose held-out quality falls, where it is gamed."""
    for step in range(1, steps + 1):
        part = gaming * step / steps
        memory.note(step, [rollout(0.1 + 0.3 * part + rng.gauss(0, 0.01)) for _ in range(4)])
        if step % EVERY == 0:
            yield memory.evaluated(step, {item: 0.6 - 0.3 * part + rng.gauss(0, 0.01) for item in "abc"})


def test_the_alarm_rings_where_the_reward_is_gamed_and_else_not():
    said = list(hacked(TrainingMemory(NOTHING), random.Random(1)))
    assert said[4]["alarm"] is None
    assert "too few" in said[4]["said"]
    assert said[-1]["alarm"] is True
    assert said[-1]["reward"]["now"] > said[-1]["reward"]["before"]
    assert said[-1]["held_out"]["high"] < 0
    calm = list(hacked(TrainingMemory(NOTHING), random.Random(1), gaming=0.0))
    assert {answer["alarm"] for answer in calm[5:]} == {False}
    assert "no sign" in calm[-1]["said"]


def test_a_server_that_starts_again_says_the_same():
    rng, memory = random.Random(2), TrainingMemory(NOTHING)
    before = list(hacked(memory, rng))[-1]
    recorded = TrainingRecord(
        {step: RewardSum(rewards.total, rewards.rollouts) for step, rewards in memory._rewards.items()},
        dict(memory._quality),
    )
    again = TrainingMemory(recorded)
    assert again.figures == memory.figures
    assert again.evaluated(before["step"], memory._quality[before["step"]]) == before


def test_batches_of_one_step_are_put_together_and_those_without_reward_or_step_left_out():
    memory = TrainingMemory(NOTHING)
    memory.note(3, [rollout(0.2)])
    memory.note(3, [rollout(0.4), unscored_answer("a", "outage", "")])
    memory.note(None, [rollout(0.9)])
    memory.note(4, [unscored_answer("a", "outage", "")])
    (total, rollouts) = memory._rewards[3]
    assert (total, rollouts) == (pytest.approx(0.6), 2)
    assert list(memory._rewards) == [3]


def test_agreement_is_over_the_decisions_of_those_judged_twice():
    answers = [
        paid("a", 1.0, agreement={"same": 3, "compared": 4}),
        paid("a", 1.0, agreement={"same": 0, "compared": 2}),
        paid("a", 1.0),
    ]
    summary = summary_of(answers)
    assert (summary["judge_agreement"], summary["judged_twice"]) == (0.5, 2)
    assert summary_of(answers[2:])["judge_agreement"] is None


class Evaluated(RewardClient):
    """Notes what TRL would log."""

    def logged(self):
        figures = {}
        self.trl(["p"], ["two words"], item_id=["a"], log_metric=figures.__setitem__)
        return figures


def test_a_client_tells_held_out_quality_and_finds_it_in_its_curves():
    service = Scripted()
    with serving(service) as server:
        client = Evaluated(server.url)
        assert "rubricflow/held_out" not in client.logged()
        answer = client.held_out(8, {"x": 0.25, "y": 0.75})
        assert (answer["quality"], answer["items"], answer["alarm"]) == (0.5, 2, None)
        assert service.qualities == {8: {"x": 0.25, "y": 0.75}}
        assert client.logged()["rubricflow/held_out"] == 0.5
        assert "rubricflow/alarm" not in client.logged()
        client.held_out(4, {"x": 1.0})  # a late answer of an earlier step does not take the place of the last
        assert client.logged()["rubricflow/held_out"] == 0.5


def test_the_alarm_is_a_curve_of_zeros_and_ones():
    with serving(Scripted()) as server:
        client = Evaluated(server.url)
        for step in range(1, 11):
            client.rewards([{"item_id": "a", "completion": "x"}], step=step)
            client.held_out(step, {"x": 0.5})
        assert client.logged()["rubricflow/alarm"] == 0.0


@pytest.mark.parametrize(
    ("step", "quality", "said"),
    [
        (-1, {"x": 1.0}, "step"),
        (1, {}, "quality"),
        (1, {"x": float("nan")}, "quality"),
        (1, {"x": "good"}, "quality"),
    ],
)
def test_a_wrong_evaluation_is_told_field_and_rule(step, quality, said):
    with serving(Scripted()) as server, pytest.raises(RewardError, match=said):
        RewardClient(server.url).held_out(step, quality)
