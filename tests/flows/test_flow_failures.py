"""A judge that fails while a policy is trained: what each fault becomes under each setting, and that nothing is lost,
paid twice or left running."""

from __future__ import annotations

import json
import logging
import pickle
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))

import topics
from builders.loopback import DROP, HANG, Server, body_of, http

from rubricflow.flows.batch import FEW, WINDOW, Trouble, Watch
from rubricflow.flows.rollouts import Rollout
from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, StoppedError, StoreError
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.llm.backend import Offline, Scripted
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge.rater import Levelled
from rubricflow.tasks.grading.judge.rows import Rater

Play = Callable[[int, Mapping[str, Any]], Any]
PAID = 9 / 11
"""The flat reward of a rollout of which every criterion is found: all credit and the penalty."""


def asked(body: Mapping[str, Any]) -> list[str]:
    """The criteria that a call asks for."""
    return list(body["response_format"]["json_schema"]["schema"]["properties"]["decisions"]["properties"])


def found(n: int, body: Mapping[str, Any]) -> bytes:
    """Every criterion is found."""
    return http(200, body_of(json.dumps({"decisions": {name: {"level": 1} for name in asked(body)}})))


def said(text: str) -> Play:
    return lambda n, body: http(200, body_of(text))


def refusing(code: int, message: str = "no") -> Play:
    return lambda n, body: http(code, {"error": {"message": message}})


def on(word: str, play: Play) -> Play:
    """A fault of the calls about rollouts with this word; all others are answered."""
    return lambda n, body: play(n, body) if word in body["messages"][-1]["content"] else found(n, body)


def first(times: int, play: Play) -> Play:
    return lambda n, body: play(n, body) if n < times else found(n, body)


def later(n: int, body: Mapping[str, Any]) -> bytes:
    return http(429, {"error": {"message": "slow down"}}, ["Retry-After: 0"])


def reward_of(server: Server | str, replies: str | Path = ":memory:", aggregation: Any = "flat", **more: Any):
    """A reward judged by a server, with few tries and little time."""
    url = server if isinstance(server, str) else server.url
    plan = {"model": "m", "urls": [url], "timeout_s": 20, "retries": 0, "patience_s": 0} | more.pop("engine", {})
    engine = Engine.model_validate(plan)

    def opened(store: ReplyStore) -> Rater:
        return Rater("openai:m:pointwise", "llm", Levelled(OpenAI(engine, None)))

    return reward_by(opened, aggregation, replies=replies, **{"deadline": 10.0, **more})


def reward_by(open_rater: Callable[[ReplyStore], Rater], aggregation: Any = "flat", **more: Any):
    rule = more.pop("unscored_criteria", "null")
    plain = topics.bundle("copper")
    bundle = plain.model_copy(update={"protocol": plain.protocol.model_copy(update={"unscored": rule})})
    items = [row for row in topics.items() if row["rubric_id"] == "copper"]
    graph = more.pop("graph", topics.graph())
    reward_settings = more.pop("settings", topics.SETTINGS)
    return RubricReward(items, {"copper": bundle}, {"copper": graph}, reward_settings, open_rater, aggregation, **more)


def rollouts(*texts: str) -> list[Rollout]:
    return [Rollout("copper", text) for text in texts]


MANY = [f"answer {n}" for n in range(9)]
ONE_BAD = ["poison", *MANY]
NOTHING, REST = [None] * len(MANY), [None, *[PAID] * len(MANY)]
LONG = "This model's maximum context length is 2048 tokens."
TABLE: dict[str, tuple[Play, list[str], dict[str, float], Any, Any]] = {
    # fault: (what the server does, rollouts, settings, under stop, under none): rewards with the reasons, or an error
    "400 for all": (refusing(400), MANY, {}, "answers 400: no; no batch", "answers 400: no; no batch"),
    "401": (refusing(401), MANY, {}, "answers 401.*no batch can", "answers 401.*whatever on_failure says"),
    "403": (refusing(403), MANY, {}, "answers 403.*no batch can", "answers 403.*whatever on_failure says"),
    "404": (refusing(404), MANY, {}, "serve the model.*no batch can", "serve the model.*no batch can"),
    "400 for one": (on("poison", refusing(400)), ONE_BAD, {}, (REST, {"refused": 1}), (REST, {"refused": 1})),
    "too long": (on("poison", refusing(400, LONG)), ONE_BAD, {}, (REST, {"too_long": 1}), (REST, {"too_long": 1})),
    "500 for one": (on("poison", refusing(500)), ONE_BAD, {}, (REST, {"broken": 1}), (REST, {"broken": 1})),
    "prose for one": (
        on("poison", said("Fine.")),
        ONE_BAD,
        {},
        (REST, {"unreadable_reply": 1}),
        (REST, {"unreadable_reply": 1}),
    ),
    "500 for all": (refusing(500), MANY, {}, "answers 500.*stops", (NOTHING, {"outage", "broken"})),
    "dropped": (lambda n, body: DROP, MANY, {}, "broke off.*stops", (NOTHING, {"outage", "broken"})),
    "429 for all": (refusing(429), MANY, {}, "answers 429.*stops", (NOTHING, {"outage": 9})),
    "429 at first": (first(6, later), MANY, {"retries": 3}, ([PAID] * 9, {}), ([PAID] * 9, {})),
    "429 until the deadline": (
        later,
        MANY,
        {"retries": 10**6, "deadline": 1.5},
        "deadline 9.*answers 429: slow down.*stops",
        (NOTHING, {"deadline": 9}),
    ),
    "hanging for all": (
        lambda n, body: HANG,
        MANY,
        {"deadline": 1.0},
        "deadline 9.*stops",
        (NOTHING, {"deadline": 9}),
    ),
    "hanging for one": (
        on("poison", lambda n, body: HANG),
        ONE_BAD,
        {"deadline": 3.0},
        "1 of 10 .*deadline 1.*stops",
        (REST, {"deadline": 1}),
    ),
    "prose": (
        said("I think\x1b[31m it is"),
        MANY,
        {},
        r"'I think\\x1b\[31m it is'.*ALARM.*stops",
        (NOTHING, {"unreadable_reply": 9}),
    ),
    "empty": (said(""), MANY, {}, "ALARM.*stops", (NOTHING, {"unreadable_reply": 9})),
    "half": (said('{"decisions": {"fact": {"lev'), MANY, {}, "ALARM.*stops", (NOTHING, {"truncated": 9})),
}


TABLE["down"] = (found, MANY, {}, "cannot be reached.*stops", (NOTHING, {"outage": 9}))
BOTH = [(fault, "none") for fault, (*_, under_stop, under_none) in TABLE.items() if under_none != under_stop]


@pytest.mark.parametrize(("fault", "on_failure"), [*BOTH, *((fault, "stop") for fault in TABLE)])
def test_every_fault_becomes_what_the_setting_says(serve, caplog, fault: str, on_failure: str) -> None:
    play, texts, tuned, under_stop, under_none = TABLE[fault]
    server, tuned = serve(play), dict(tuned)
    if fault == "down":
        server.close()
    threads = set(threading.enumerate())
    more = {"deadline": tuned.pop("deadline", 20.0), "on_failure": on_failure, "engine": tuned}
    expected = under_stop if on_failure == "stop" else under_none
    with reward_of(server, **more) as reward:
        if isinstance(expected, str):
            with pytest.raises(BackendError, match=expected) as caught:
                reward.score(rollouts(*texts))
            assert "same command" not in str(caught.value)
            assert "last checkpoint" in str(caught.value)
        else:
            rewards, reasons = expected
            assert reward.score(rollouts(*texts)) == [pytest.approx(of) if of else None for of in rewards]
            counted = reward.unscored
            assert set(counted) <= reasons if isinstance(reasons, set) else counted == reasons
            assert sum(counted.values()) == rewards.count(None)
            ours = [record for record in caplog.records if record.name.startswith("rubricflow")]
            loud = [record for record in ours if record.levelno >= logging.WARNING]
            assert bool(loud) == bool(reasons)
            assert any("ALARM" in record.getMessage() for record in loud) == (None in rewards and PAID not in rewards)
    assert set(threading.enumerate()) <= threads


def test_one_hanging_call_delays_its_own_batch_alone(serve) -> None:
    server = serve(on("slowly", lambda n, body: HANG))
    with reward_of(server, on_failure="none", deadline=60.0) as reward:
        slow = threading.Thread(target=lambda: reward.score(rollouts("slowly")), daemon=True)
        slow.start()
        while not server.calls:
            pass
        paid = [reward.score(rollouts(f"quick {n}")) for n in range(5)]
        assert slow.is_alive()
        assert paid == [[pytest.approx(PAID)]] * 5
        server.close()
        slow.join(600)


def test_batches_share_the_concurrency_of_the_backend(serve) -> None:
    server = serve(found, pause=0.05)
    with reward_of(server, engine={"concurrency": 3}) as reward:
        batches = [rollouts(*(f"{batch} {n}" for n in range(4))) for batch in range(6)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(reward.score, batches))
    assert server.most == 3
    assert len(server.calls) == 6 * 4 * 2
    assert not [thread for thread in threading.enumerate() if thread.name == "openai"]


def test_a_pace_holds_for_all_batches_together(serve) -> None:
    server = serve(found)
    with reward_of(server, on_failure="none", deadline=2.0, engine={"requests_per_minute": 5}) as reward:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(reward.score, [rollouts(f"{n}") for n in range(8)]))
        assert len(server.calls) == 5
        assert set(reward.unscored) == {"deadline"}


def test_what_came_before_the_deadline_is_kept_and_not_paid_again(serve, tmp_path: Path) -> None:
    hanging = True

    def play(n: int, body: Mapping[str, Any]) -> Any:
        return HANG if hanging and "slowly" in body["messages"][-1]["content"] else found(n, body)

    server = serve(play)
    with reward_of(server, tmp_path / "replies.sqlite", on_failure="none", deadline=2.0) as reward:
        assert reward.score(rollouts("quick", "slowly")) == [pytest.approx(PAID), None]
        before = len(server.calls)
        hanging = False
        assert reward.score(rollouts("quick", "slowly")) == [pytest.approx(PAID)] * 2
        assert len(server.calls) == before + 2  # two calls about the slow one, none about the other
    assert len(ReplyStore(tmp_path / "replies.sqlite")) == 4


def test_a_judge_that_did_not_answer_in_time_is_no_zero(serve, tmp_path: Path) -> None:
    def play(n: int, body: Mapping[str, Any]) -> Any:
        return HANG if "careless" in asked(body) and "slowly" in body["messages"][-1]["content"] else found(n, body)

    run = Warehouse.open(tmp_path / "warehouse").run("r")
    more = {"on_failure": "none", "deadline": 2.0, "unscored_criteria": "zero", "record": run}
    with reward_of(serve(play), **more) as reward:
        paid = reward.score(rollouts("quick", "slowly"))
    assert paid == [pytest.approx(PAID), None]
    recorded = run.read(run.ref(Rewards, "trainer")).sort_by("response_id")["reward"].to_pylist()
    assert recorded == paid


def test_what_stands_for_no_reward_is_a_number(serve) -> None:
    server = serve(found)
    with reward_of(server) as reward:
        for bad in (None, float("nan"), float("inf"), "0", True):
            with pytest.raises(InputError, match="unscored"):
                reward.verl_scores(["d"], ["x"], [""], [{"item_id": "copper"}], unscored=bad)
        assert not server.calls


def test_a_model_in_this_process_takes_turns_and_nobody_waits_for_ever() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def answer(questions: Any) -> list[Reply]:
        begun.set()
        go_on.wait(600)
        decisions = [{c.id: {"level": 1} for c in question.criteria} for question in questions]
        return [Reply(text=json.dumps({"decisions": of})) for of in decisions]

    def opened(store: ReplyStore) -> Rater:
        return Rater("offline", "simulated", Offline("t", answer))

    with reward_by(opened, on_failure="none", deadline=1.5) as reward:
        slow = threading.Thread(target=lambda: reward.score(rollouts("slowly")))
        slow.start()
        begun.wait(600)
        assert reward.score(rollouts("quick")) == [None]
        assert reward.unscored == {"deadline": 1}
        go_on.set()
        slow.join(600)
        assert reward.score(rollouts("slowly")) == [pytest.approx(PAID)]


def test_a_copy_in_another_process_fails_alike(serve) -> None:
    server = serve(refusing(429))
    reward = reward_by(Down(), on_failure="none", most_unscored=0.9)
    for one in (reward, pickle.loads(pickle.dumps(reward))):
        assert one.score(rollouts("a", "b")) == [None, None]
        assert one.unscored == {"outage": 2}
    strict = pickle.loads(pickle.dumps(reward_by(Down())))
    with pytest.raises(BackendError, match="outage 2"):
        strict.score(rollouts("a", "b"))
    assert not server.calls


class Down:
    """Opens a judge that is down; can be pickled."""

    def __call__(self, store: ReplyStore) -> Rater:
        return Rater("r", "llm", Scripted(lambda request: StoppedError("it is down", passing=True)))


FAULTS = st.sampled_from(["fine", "prose", "refused: no", "deadline: late", "broken: gone", "outage", "no reply"])


@settings(max_examples=50)
@given(st.lists(st.tuples(FAULTS, FAULTS), min_size=1, max_size=12), st.sampled_from(["null", "bounds", "zero"]))
def test_whatever_fails_the_others_are_paid_and_all_are_accounted_for(faults: list[tuple[str, str]], rule: str) -> None:
    """Two calls about each rollout, each with a fault of its own; an outage leaves what comes after it open."""

    def line(request: Request) -> Any:
        number = int(request.data.text.rpartition(" ")[2])
        fault = faults[number][request.data.criteria[0].id != "fact"]
        if fault == "outage":
            return StoppedError("down", passing=True)
        if fault == "fine":
            return json.dumps({"decisions": {c.id: {"level": 1} for c in request.data.criteria}})
        return "Fine." if fault == "prose" else None if fault == "no reply" else Reply(error=fault)

    asked_of = Scripted(line)
    more = {"on_failure": "none", "most_unscored": 1.0, "unscored_criteria": rule}
    with reward_by(lambda store: Rater("r", "llm", asked_of), **more) as reward:
        rewards = reward.score(rollouts(*(f"answer {n}" for n in range(len(faults)))))
        counted = reward.unscored
    flat = [fault for pair in faults for fault in pair]
    down = flat.index("outage") if "outage" in flat else len(flat)
    reached = [[at < down and flat[at] for at in (2 * n, 2 * n + 1)] for n in range(len(faults))]
    for calls, paid in zip(reached, rewards, strict=True):
        if calls == ["fine", "fine"]:
            assert paid == pytest.approx(PAID)
        elif rule != "zero" or False in calls or "deadline: late" in calls or "fine" not in calls:
            assert paid is None
    assert sum(counted.values()) == rewards.count(None)
    assert max(Counter(request.messages for request in asked_of.asked).values()) == 1


TROUBLE = Trouble("refused", "refused: no")


@settings(max_examples=50)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=40), max_size=60), st.sampled_from([0.1, 0.2, 0.5]))
def test_the_alarm_is_that_of_a_plain_loop(batches: list[list[bool]], limit: float) -> None:
    quiet, strict = Watch("r", "none", limit), Watch("r", "stop", limit)
    log, logger = BufferingHandler(10**6), logging.getLogger("rubricflow.flows.batch")
    seen: list[bool] = []
    before = ended = False
    for batch in batches:
        seen += batch
        last = seen[-WINDOW:]
        enough = len(last) >= FEW or (all(last) and len(last) > 1)
        above = enough and sum(last) / len(last) > limit
        noted = [TROUBLE if lost else None for lost in batch]
        log.flush()
        logger.addHandler(log)
        quiet.note(noted)
        logger.removeHandler(log)
        assert any("ALARM" in record.getMessage() for record in log.buffer) == (above and not before)
        assert bool(log.buffer) == (any(batch) or (above and not before))
        if not ended:
            try:
                strict.note(noted)
            except BackendError:
                ended = True
            assert ended == (above and not before)
        before = above
    assert quiet.unscored.total() == sum(seen)


def test_a_failure_stops_at_once_however_small_its_share() -> None:
    watch = Watch("r", "stop", 0.5)
    watch.note([None] * 500)
    with pytest.raises(BackendError, match=r"1 of 100 rollouts have no reward; so far, by reason: deadline 1"):
        watch.note([*[None] * 99, Trouble("deadline", "deadline: no answer in time")])


WIDE = Graph(
    nodes=tuple(Node(criterion_id=name, role="core") for name in topics.WEIGHTS),
    edges=(Edge(parent="fact", child="reason", relation="strong_prerequisite"),),
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"aggregation": "hard"},
        {"aggregation": "GEAR"},
        {"aggregation": None},
        {"record": "name"},
        {"record": Path("run")},
        {"on_failure": "zero"},
        {"on_failure": None},
        {"deadline": 0},
        {"deadline": "60"},
        {"deadline": None},
        {"deadline": float("nan")},
        {"most_unscored": 20},
        {"criteria_per_call": 0},
        {"criteria_per_call": "4"},
        {"criteria_per_call": True},
        {"judged_thrice": 1},
        {"judged_twice": -0.1},
        {"judged_twice": 1.5},
        {"judged_twice": float("nan")},
        {"judged_twice": True},
        {"further_calls": -1},
        {"further_calls": "two"},
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_judged(wrong: dict[str, Any]) -> None:
    ((field, value),) = wrong.items()
    with pytest.raises(InputError, match=f"field '{field}'.*not {re.escape(repr(value))}"):
        reward_by(lambda store: pytest.fail("the judge was opened"), **wrong)


def test_files_that_cannot_be_written_are_refused_before_anything_is_judged(tmp_path: Path) -> None:
    def never(store: ReplyStore) -> Rater:
        raise AssertionError("the judge was opened")

    (tmp_path / "text").write_text("no database")
    with pytest.raises(StoreError, match="reply store cannot be used"):
        reward_by(never, replies=tmp_path / "text")
    run = Warehouse.open(tmp_path / "warehouse").run("r")
    run.folder.write_text("no folder")
    with pytest.raises(StoreError, match="cannot write"):
        reward_by(never, record=run)


def test_a_graph_too_wide_is_refused_before_anything_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricflow.tasks.rewards.reward.compiled.MOST", 1)
    exact = topics.SETTINGS.model_copy(update={"inference": "exact"})
    with pytest.raises(Exception, match="exact inference would hold 2"):
        reward_by(lambda store: pytest.fail("opened"), "gear", settings=exact, graph=WIDE)
    reward_by(lambda store: pytest.fail("opened"), "flat", settings=exact, graph=WIDE)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"item_id": "x", "rubric_id": "copper"}, "row 1, field 'items.question'"),
        ({"rubric_id": "copper", "question": "?"}, "row 1, field 'items.item_id'"),
        ({"item_id": 3, "rubric_id": "copper", "question": "?"}, "row 1, field 'items.item_id'"),
    ],
)
def test_items_are_looked_at_before_anything_is_judged(row: dict[str, Any], message: str) -> None:
    bundles, graphs = {"copper": topics.bundle("copper")}, {"copper": topics.graph()}
    with pytest.raises(InputError, match=message):
        RubricReward([row], bundles, graphs, topics.SETTINGS, topics.noisy)
    whole = {"item_id": "copper", "rubric_id": "copper", "question": "?"}
    with pytest.raises(InputError, match=r"row 2.*given twice"):
        RubricReward([whole, whole], bundles, graphs, topics.SETTINGS, topics.noisy)


def test_an_unknown_item_is_refused_before_the_batch_is_paid(serve) -> None:
    server = serve(found)
    with reward_of(server) as reward, pytest.raises(InputError, match="no item 'cooper'"):
        reward.score([*rollouts("fine"), Rollout("cooper", "lost")])
    assert not server.calls
