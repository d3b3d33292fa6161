"""A live client while the judge behind the server answers errors, hangs, writes prose, comes back; and a full disk."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "builders"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks" / "rewards" / "serve"))

import topics
from loopback import HANG, Server, body_of, http
from serve_scene import serving
from waiting import until

from rubricflow.client import RewardClient, RewardError
from rubricflow.flows.reward_service import InlineRubrics, RewardService
from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.rater import rater

ROLLOUTS = [{"item_id": "copper", "completion": f"atoms explain . take {number}"} for number in range(3)]


def right(number, body):
    schema = body["response_format"]["json_schema"]["schema"]
    decisions = {name: {"level": 1} for name in schema["properties"]["decisions"]["properties"]}
    return http(200, body_of(json.dumps({"decisions": decisions})))


FAULTS = {
    "error": (lambda number, body: http(500, {"error": "broken"}), {"broken", "outage"}),
    "hang": (lambda number, body: HANG, {"deadline"}),
    "prose": (lambda number, body: http(200, body_of("I would say it is rather good.")), {"unreadable_reply"}),
    "refusal": (lambda number, body: http(400, {"error": {"message": "content filter"}}), None),
}


class Flaky:
    """A judge that a test breaks and mends."""

    def __init__(self):
        self.play = right

    def __call__(self, number, body):
        return self.play(number, body)


@pytest.fixture
def world(tmp_path, monkeypatch):
    judge = Flaky()
    server = Server(judge)
    engine = Engine(model="m", urls=(server.url,), retries=0, patience_s=0, timeout_s=600.0)
    asking = Judge(protocol="pointwise", criteria_per_call=4, backend="openai", engine=engine, evidence="off")
    bundles = {topic: topics.bundle(topic) for topic in topics.TOPICS}
    reward = RubricReward(
        topics.items(),
        bundles,
        dict.fromkeys(bundles, topics.graph()),
        topics.SETTINGS,
        lambda store: rater(asking, tmp_path, store),
        replies=tmp_path / "replies.sqlite",
        on_failure="none",
    )
    inline = InlineRubrics(asking, topics.SETTINGS, 4)
    with serving(RewardService("topics", reward, inline)) as running:
        yield judge, server, running
    server.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_training_survives_each_fault_of_the_judge_as_its_setting_says(world, fault):
    judge, _, running = world
    play, reasons = FAULTS[fault]
    due_s = 1.0 if fault == "hang" else 600.0
    patient = RewardClient(running.url, on_failure="none", patience_s=0)
    hasty = RewardClient(running.url, on_failure="none", deadline_s=due_s, patience_s=0)
    strict = RewardClient(running.url, on_failure="stop", deadline_s=due_s, patience_s=0)
    assert None not in patient.rewards(ROLLOUTS[:1])["rewards"]
    judge.play = play
    answer = hasty.rewards(ROLLOUTS[1:])
    assert answer["rewards"] == [None, None]
    met = {one["unscored"]["reason"] for one in answer["rollouts"]}
    assert reasons is None or met <= reasons
    assert patient.rewards(ROLLOUTS[:1])["rewards"] != [None]  # it is in the reply store
    with pytest.raises(RewardError, match="2 of the last 2 rollouts have no reward"):
        strict.rewards([{"item_id": "copper", "completion": f"anew {number}"} for number in range(2)])
    judge.play = right
    later = RewardClient(running.url).rewards([{"item_id": "copper", "completion": "later"}, ROLLOUTS[0]])
    assert None not in later["rewards"]


def test_a_full_disk_is_said_and_passes(world, monkeypatch):
    _, _, running = world

    def full(*_):
        raise StoreError("the disk is full")

    client = RewardClient(running.url, patience_s=0)
    with monkeypatch.context() as patched:
        patched.setattr(ReplyStore, "put_many", full)
        with pytest.raises(RewardError, match="the disk is full"):
            client.rewards(ROLLOUTS)
    assert None not in client.rewards(ROLLOUTS)["rewards"]


def hangs_for(*words):
    """The right judge, which never answers about a rollout with one of these words."""

    def play(number, body):
        return HANG if any(word in json.dumps(body["messages"]) for word in words) else right(number, body)

    return play


def waits_for(running, count):
    """Whether there is one request, of whose rollouts so many wait for a reply and all others are answered."""
    return [(asked.unanswered, len(asked.stalled)) for asked in running.endpoints.waves._asked] == [(count, count)]


@pytest.fixture
def let_time_pass(monkeypatch):
    """let_time_pass(running): ten minutes pass at once, as a server sees by the next request. The clock is set back
    only when `world`, which asks for the same monkeypatch before, is gone."""
    clock, passed = time.monotonic, []
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 600 * len(passed))

    def passes(running):
        passed.append(600)
        RewardClient(running.url).dataset()

    return passes


def test_a_hanging_call_costs_its_own_rollout_alone(world, monkeypatch, let_time_pass):
    monkeypatch.setattr("rubricflow.flows.reward_service.PATIENCE_S", 0.2)
    judge, _, running = world
    judge.play = hangs_for("dragon", "unicorn")
    texts = ["one", "dragon", "two", "unicorn", "three"]
    batch = [{"item_id": "copper", "completion": f"atoms explain . {text}"} for text in texts]
    client = RewardClient(running.url, on_failure="none", deadline_s=600, patience_s=0)
    with ThreadPoolExecutor(2) as threads:
        hanging = threads.submit(client.rewards, batch)
        neighbour = threads.submit(client.rewards, [{"item_id": "copper", "completion": "take care"}])
        assert None not in neighbour.result()["rewards"]
        until(lambda: waits_for(running, 2))
        let_time_pass(running)
        answer = hanging.result()
    assert [reward is None for reward in answer["rewards"]] == [False, True, False, True, False]
    assert {one["unscored"]["reason"] for one in answer["rollouts"] if one["unscored"]} <= {"deadline", "broken"}


def test_a_slow_judge_is_paid_once_however_many_batches_wait_for_it(world, monkeypatch):
    monkeypatch.setattr("rubricflow.flows.reward_service.PATIENCE_S", 0.05)
    judge, server, running = world
    free = threading.Event()

    def slow(number, body):
        free.wait(600)
        return right(number, body)

    judge.play = slow
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(RewardClient(running.url, patience_s=0).rewards, ROLLOUTS)
        until(lambda: waits_for(running, 3))
        free.set()
        answer = asked.result()
    assert None not in answer["rewards"]
    assert answer["summary"]["calls"] == len(server.calls) == 6


def test_a_second_judging_that_hangs_costs_no_reward(world, monkeypatch):
    monkeypatch.setattr("rubricflow.flows.reward_service.PATIENCE_S", 0.1)
    judge, _, running = world
    running.service._reward._judged_twice = 1.0

    def hangs_the_second_time(number, body):
        return right(number, body) if body["seed"] == Sampling().seed else HANG

    judge.play = hangs_the_second_time
    answer = RewardClient(running.url, on_failure="stop", deadline_s=600, patience_s=0).rewards(ROLLOUTS[:1])
    assert None not in answer["rewards"]
    assert answer["rollouts"][0]["agreement"] in (None, {"same": 0, "compared": 0})
