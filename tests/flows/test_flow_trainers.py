"""Rewards in trainers: what TRL and verl are given, how rollouts are judged, and that it is what the tables hold."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))

import topics
from builders.loopback import Server, body_of, http

from rubricflow.flows.plan import plan
from rubricflow.flows.rollouts import Rollout
from rubricflow.flows.trainers import RubricReward, refuse_same_replies, text_of
from rubricflow.tasks.core.contracts.backends import Answered, GraderOutput
from rubricflow.tasks.core.contracts.bundle import Protocol
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, StoreError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, RubricGraphs
from rubricflow.tasks.core.llm.backend import Offline
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.rows import Case, Rater, judgments
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import compile_graph
from rubricflow.tasks.rewards.reward.local import local_scores

HOUSE = Path(__file__).resolve().parents[2]
COPPER = topics.fact("copper")
SAID = {
    "all": f"{COPPER} atoms explain . in short .",
    "bare": "atoms explain . studies confirm . examples follow . in short .",
    "none": "ask experts .",
}


def reward_of(aggregation: Any = "gear", open_rater: Callable[[ReplyStore], Rater] = topics.noisy, **more: Any):
    """The reward of the topics."""
    bundles = more.pop("bundles", None) or {topic: topics.bundle(topic) for topic in topics.TOPICS}
    graphs = dict.fromkeys(bundles, topics.graph())
    settings = more.pop("settings", topics.SETTINGS)
    items = [row for row in topics.items() if row["rubric_id"] in bundles]
    return RubricReward(items, bundles, graphs, settings, open_rater, aggregation, **more)


def rater_of(answer: Callable[[Sequence[Question]], Sequence[Reply]]) -> Callable[[ReplyStore], Rater]:
    return lambda store: Rater("offline:test:pointwise", "simulated", Offline("test", answer))


def certain(questions: Sequence[Question]) -> list[Reply]:
    """The exact judge, whose answers a test can add up by hand."""
    replies = []
    for question in questions:
        holds = topics.exact(question.item_id, question.text)
        decisions = {c.id: {"diagnostic": "", "level": int(holds[c.id])} for c in question.criteria}
        likely = {c.id: [1.0 - holds[c.id], float(holds[c.id])] for c in question.criteria}
        replies.append(Reply(text=json.dumps({"decisions": decisions}), level_probabilities=likely))
    return replies


def silent_on(word: str) -> Callable[[Sequence[Question]], list[Reply]]:
    """A judge that leaves the last call about a text with this word unanswered."""

    def answer(questions: Sequence[Question]) -> list[Reply]:
        lost = [word in question.text and question.criteria[-1].id == "careless" for question in questions]
        replies = zip(lost, certain(questions), strict=True)
        return [Reply(error="timeout: gone") if gone else reply for gone, reply in replies]

    return answer


def rollouts(*names: str) -> list[Rollout]:
    return [Rollout("copper", SAID[name]) for name in names]


def test_the_trainers_import_no_prefect_and_nothing_of_folders_beside_a_script(tmp_path: Path) -> None:
    for name in ("tasks", "flows", "sql"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('the wrong one')")
    modules = "flows.trainers, rubricflow.flows.prepared_items, rubricflow.tasks.rewards.reward.recipes"
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(HOUSE)!r}]; import rubricflow.{modules}"
    command = [sys.executable, "-c", f"{code}; print('prefect' in sys.modules)"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip()) == (0, "False"), found.stderr


def test_one_word_changes_the_aggregation() -> None:
    # all: fact 3, reason 2, summary 2 of 11, and the missing warning, which no advice licenses.
    # bare: without the fact a strong child keeps 0.2, a weak one 0.6, and the evidence hangs on the reason.
    reason = 0.2
    evidence = reason + (1 - reason) * 0.2
    bare = {
        "flat": (2 + 2 + 2 + 2 - 2) / 11,
        "hard_local": 2 / 11,
        "hard_propagated": 0.0,
        "gear": (2 * reason + 2 * evidence + 2 * 0.2 + 2 * 0.6) / 11,
    }
    for aggregation, expected in bare.items():
        with reward_of(aggregation, rater_of(certain)) as reward:
            assert reward.score(rollouts("bare", "all")) == pytest.approx(
                [expected, 5 / 11 if aggregation == "flat" else 7 / 11], abs=1e-12
            )


def test_trl_gets_numbers_in_the_order_of_its_completions() -> None:
    with reward_of("flat", rater_of(certain)) as reward:
        chat = [{"role": "assistant", "content": SAID["bare"]}]
        found = reward(prompts=["?"] * 3, completions=[SAID["all"], chat, SAID["none"]], item_id=["copper"] * 3)
    assert found == pytest.approx([5 / 11, 6 / 11, 0.0], abs=1e-12)
    assert all(type(number) is float for number in found)


def test_a_completion_is_text_or_the_assistants_turns() -> None:
    turns = [{"role": "assistant", "content": "one"}, {"role": "tool", "content": "no"}]
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": "two"}, {"type": "image"}]}]
    assert text_of([*turns, *blocks]) == "one\ntwo"
    assert text_of([{"role": "assistant", "content": None}]) == ""
    for bad in (None, 3, [3], [{"content": "no role"}], [{"role": "assistant", "content": 3}]):
        with pytest.raises(InputError, match="neither a text nor a list of messages"):
            text_of(bad)


def test_bad_calls_say_what_is_missing() -> None:
    reward = reward_of(open_rater=rater_of(certain))
    with pytest.raises(InputError, match="no column 'item_id'"):
        reward(prompts=["?"], completions=["x"])
    with pytest.raises(InputError, match="2 items for 1 completions"):
        reward(prompts=["?"], completions=["x"], item_id=["copper", "copper"])
    with pytest.raises(InputError, match="there is no item 'gold'"):
        reward(prompts=["?"], completions=["x"], item_id=["gold"])
    assert reward(prompts=[], completions=[], item_id=[]) == []


@pytest.mark.parametrize(("rule", "expected"), [("null", None), ("bounds", None), ("zero", 0.0)])
def test_an_unscored_rollout_is_what_the_bundle_says(rule: str, expected: float | None) -> None:
    plain = topics.bundle("copper")
    bundle = plain.model_copy(update={"protocol": plain.protocol.model_copy(update={"unscored": rule})})
    with reward_of("flat", rater_of(silent_on("experts")), bundles={"copper": bundle}) as reward:
        assert reward.score(rollouts("none", "bare")) == [expected, pytest.approx(6 / 11)]
        assert reward.last is not None
        assert reward.last.unscored == (expected is None)


def test_verl_is_told_what_an_unscored_rollout_becomes() -> None:
    with reward_of("flat", rater_of(silent_on("experts"))) as reward:
        infos = [{"item_id": "copper"}] * 2
        found = reward.verl_scores(["d"] * 2, [SAID["none"], SAID["bare"]], [""] * 2, infos, unscored=-1.0)
        assert found == [-1.0, pytest.approx(6 / 11)]
        with pytest.raises(TypeError, match="unscored"):
            reward.verl_scores(["d"], ["x"], [""], infos[:1])  # type: ignore[call-arg]
        with pytest.raises(InputError, match="item_id"):
            reward.verl_scores(["d"], ["x"], [""], [{}], unscored=0.0)


def test_verl_sees_a_coroutine_function_and_hands_it_its_settings() -> None:
    reward = reward_of("flat", rater_of(certain))
    assert inspect.iscoroutinefunction(reward.verl_score)

    async def called(extra: dict[str, Any], **given: Any) -> float:  # as verl merges reward_kwargs into a call
        return await reward.verl_score(**{**given, **extra})

    loaded = functools.partial(called, {"unscored": 0.0})
    given = {"data_source": "d", "solution_str": SAID["bare"], "ground_truth": None}
    found = asyncio.run(loaded(**given, extra_info={"item_id": "copper"}, reward_router_address="here"))
    assert found == pytest.approx(6 / 11)


def test_single_calls_of_verl_are_judged_together() -> None:
    batches: list[int] = []

    def counting(questions: Sequence[Question]) -> list[Reply]:
        batches.append(len(questions))
        return certain(questions)

    async def everything() -> list[float]:
        texts = [f"{SAID['bare']} {n}" for n in range(200)]
        info = {"item_id": "copper"}
        return await asyncio.gather(*(reward.verl_score("d", text, None, info, unscored=0.0) for text in texts))

    with reward_of("flat", rater_of(counting)) as reward:
        assert asyncio.run(everything()) == pytest.approx([6 / 11] * 200)
    assert sum(batches) == 400  # seven criteria, four in a call
    assert len(batches) <= 20


def test_a_judge_that_cannot_be_used_ends_every_waiting_call() -> None:
    def broken(questions: Sequence[Question]) -> list[Reply]:
        raise BackendError("the server is gone")

    async def everything() -> list[Any]:
        calls = (reward.verl_score("d", f"{n}", None, {"item_id": "copper"}, unscored=0.0) for n in range(5))
        return await asyncio.gather(*calls, return_exceptions=True)

    with reward_of("flat", rater_of(broken)) as reward:
        assert [type(of) for of in asyncio.run(everything())] == [BackendError] * 5
        with pytest.raises(BackendError):
            reward.score(rollouts("all"))


def test_identical_rollouts_are_judged_once() -> None:
    with reward_of(open_rater=rater_of(certain)) as reward:
        found = reward.score(rollouts("all", "bare", "all", "all"))
        assert found[0] == found[2] == found[3] != found[1]
        assert reward.last is not None
        assert (reward.last.rollouts, reward.last.calls) == (4, 4)
        reward.score(rollouts("all", "bare"))
        assert reward.last.calls == 0


@pytest.mark.parametrize(("per_call", "sizes"), [(4, {4, 3}), (1, {1}), (None, {7})])
def test_criteria_are_asked_in_calls_of_so_many(per_call: int | None, sizes: set[int]) -> None:
    seen: list[int] = []

    def looking(questions: Sequence[Question]) -> list[Reply]:
        seen.extend(len(question.criteria) for question in questions)
        return certain(questions)

    plain = topics.bundle("copper")
    rulers = plain.protocol.model_copy(update={"name": "rulers", "criteria_per_call": 1})
    bundle = plain.model_copy(update={"protocol": rulers})
    more = {"bundles": {"copper": bundle}, "criteria_per_call": per_call}
    with reward_of("flat", rater_of(looking), **more) as reward:
        assert reward.score(rollouts("bare")) == pytest.approx([6 / 11])
    assert set(seen) == sizes


def test_the_judge_never_sees_a_weight() -> None:
    prompts: list[str] = []

    class Reading(Offline):
        def answer(self, requests: Sequence[Request]) -> Any:
            prompts.extend(message.content for request in requests for message in request.messages)
            return super().answer(requests)

    plain = topics.bundle("copper")
    weighted = tuple(c.model_copy(update={"weight": 7.25 * c.weight}) for c in plain.criteria)
    shown = plain.model_copy(
        update={"criteria": weighted, "protocol": plain.protocol.model_copy(update={"show_weights": True})}
    )
    more = {"bundles": {"copper": shown}}
    with reward_of("flat", lambda store: Rater("r", "simulated", Reading("test", certain)), **more) as reward:
        reward.score(rollouts("bare"))
    assert prompts
    assert not [prompt for prompt in prompts if "21.75" in prompt or "14.5" in prompt]


def test_the_reward_is_that_of_the_flow_on_the_same_judgments() -> None:
    luck = random.Random(3)
    asked = [luck.choice(topics.TOPICS) for _ in range(60)]
    mine = [Rollout(topic, topics.imperfect(topic, luck)) for topic in asked]
    settings = topics.SETTINGS.model_copy(update={"eta": 0.7, "inference": "exact"})
    bundles = {topic: topics.bundle(topic) for topic in topics.TOPICS}
    compiled = {
        name: compile_graph(name, of, topics.graph(), settings.retention, settings.eta) for name, of in bundles.items()
    }
    cases = [
        Case(
            f"r{n}",
            of.item_id,
            of.text,
            tuple(units(of.text)),
            topics.prompt(of.item_id),
            None,
            bundles[of.item_id],
            "",
        )
        for n, of in enumerate(mine)
    ]
    with ReplyStore(":memory:") as store:
        who = topics.noisy(store)
        table = judgments(who, grade_batch(list(reversed(cases)), who, store).judged)
    item_of = {case.response_id: case.item_id for case in cases}
    found = local_scores(table, item_of, dict(zip(bundles, bundles, strict=True)), bundles, compiled, settings.local)
    for aggregation in ("flat", "hard_local", "hard_propagated", "gear"):
        paid = aggregate(found.batch, aggregation, threshold=settings.threshold, inference=settings.inference)
        of = dict(zip(found.response_id.to_pylist(), paid.reward, strict=True))
        with reward_of(aggregation, settings=settings) as reward:
            halves = reward.score(mine[:7]) + reward.score(mine[7:])
        assert halves == pytest.approx([of[case.response_id] for case in cases], abs=1e-12)


def test_what_is_recorded_is_what_was_paid(tmp_path: Path) -> None:
    run = Warehouse.open(tmp_path / "warehouse").run("gear-1")
    names = ["copper", "silver"]
    with reward_of(open_rater=rater_of(silent_on("experts")), record=run) as reward:
        first = reward([""] * 2, [SAID["all"], SAID["bare"]], item_id=names)
        second = reward([""] * 2, [SAID["none"], "half a pair \ud83d"], item_id=names)
    rows = {row["response_id"]: row for row in run.read(run.ref(Rewards, "trainer")).to_pylist()}
    said = run.read(run.ref(Responses, "trainer")).sort_by("response_id").to_pylist()
    assert [row["text"] for row in said] == [SAID["all"], SAID["bare"], SAID["none"], "half a pair ?"]
    assert [rows[row["response_id"]]["reward"] for row in said] == [*first, *second]
    assert second[0] is None
    assert {row["split"] for row in said} == {"train"}
    assert run.ref(Judgments, "trainer").rows == 4 * 7


def test_the_cost_of_a_batch_is_logged_and_given_to_trl(caplog: pytest.LogCaptureFixture) -> None:
    metrics: dict[str, float] = {}
    with reward_of(open_rater=rater_of(silent_on("experts"))) as reward, caplog.at_level(logging.INFO):
        reward([""] * 2, [SAID["none"], SAID["all"]], item_id=["copper"] * 2, log_metric=metrics.__setitem__)
    assert metrics["rubric_gear/rollouts"] == 2
    assert metrics["rubric_gear/unscored"] == 1
    assert metrics["rubric_gear/calls"] == 4
    assert "unscored=1" in caplog.text
    assert "experts" not in caplog.text


def test_each_reward_has_the_variance_of_the_judges_own_doubts() -> None:
    columns: dict[str, list[float | None]] = {}
    with reward_of("flat") as reward:
        rewarded = reward.score_with_variance(rollouts("all", "bare"))
        names = ["copper"] * 2
        paid = reward([""] * 2, [SAID["all"], SAID["bare"]], item_id=names, log_extra=columns.__setitem__)
    likely = [topics._likely("copper", name, SAID["all"]) for name in topics.WEIGHTS]
    weights = np.array(list(topics.WEIGHTS.values())) / topics.MASS
    expected = float((weights**2 * np.array([p * (1 - p) for p in likely])).sum())
    assert rewarded[0].variance == pytest.approx(expected)
    assert columns["rubric_flat/reward_variance"] == [one.variance for one in rewarded]
    assert paid == [one.reward for one in rewarded]


class Wavering:
    """A judge that is unsure of what `unsure` names, and of another mind when it is asked again."""

    def __init__(self, *unsure: str) -> None:
        self.unsure, self.asked = unsure, []

    def __call__(self, questions: Sequence[Question]) -> list[Reply]:
        return [self._reply(question) for question in questions]

    def _reply(self, question: Question) -> Reply:
        names = tuple(criterion.id for criterion in question.criteria)
        is_second = names in self.asked
        self.asked.append(names)
        doubt = 0.3 if is_second else 0.5
        likely = {name: doubt if name in self.unsure else 1.0 for name in names}
        decisions = {name: {"diagnostic": "", "level": 1} for name in names}
        probabilities = {name: [1 - share, share] for name, share in likely.items()}
        return Reply(text=json.dumps({"decisions": decisions}), level_probabilities=probabilities)


def test_further_calls_go_where_the_reward_is_in_doubt(tmp_path: Path) -> None:
    run = Warehouse.open(tmp_path / "warehouse").run("gear-1")
    judge = Wavering("fact")
    with reward_of("flat", rater_of(judge), further_calls=1.0, record=run) as reward:
        rewarded = reward.score_with_variance(rollouts("all"))
        assert reward.last is not None
        assert reward.last.calls == 3
    assert judge.asked == [tuple(topics.WEIGHTS)[:4], tuple(topics.WEIGHTS)[4:], tuple(topics.WEIGHTS)[:4]]
    assert rewarded[0].reward == pytest.approx((topics.MASS - 3 + 3 * 0.4 - 2) / topics.MASS)
    assert rewarded[0].variance == pytest.approx((3 / topics.MASS) ** 2 * 0.4 * 0.6)
    judged = run.read(run.ref(Judgments, "trainer"), ["criterion_id", "sample", "level_probabilities"]).to_pylist()
    facts = [(row["sample"], row["level_probabilities"]) for row in judged if row["criterion_id"] == "fact"]
    assert facts == [(0, [0.5, 0.5]), (1, [0.7, 0.3])]


def test_a_call_without_doubts_is_not_made_again() -> None:
    judge = Wavering()
    with reward_of("gear", rater_of(judge), further_calls=2) as reward:
        reward.score(rollouts("all", "none"))
    assert len(judge.asked) == 4


def test_an_empty_rollout_takes_no_further_call_from_the_others() -> None:
    judge = Wavering("fact")
    with reward_of("flat", rater_of(judge), further_calls=0.5) as reward:
        reward.score([Rollout("copper", ""), *rollouts("all")])
    assert judge.asked[-1] == tuple(topics.WEIGHTS)[:4]
    assert len(judge.asked) == 3


@pytest.mark.parametrize("error", ["refused: no", "deadline: no answer in time", "outage: nobody is there"])
def test_a_second_reply_that_fails_leaves_the_first(error: str) -> None:
    asked: list[Question] = []

    def failing(questions: Sequence[Question]) -> list[Reply]:
        asked.extend(questions)
        return [Reply(error=error)] if len(asked) > 2 else [unsure(question) for question in questions]

    def unsure(question: Question) -> Reply:
        names = [criterion.id for criterion in question.criteria]
        decisions = {name: {"diagnostic": "", "level": 1} for name in names}
        return Reply(
            text=json.dumps({"decisions": decisions}), level_probabilities={name: [0.5, 0.5] for name in names}
        )

    with reward_of("flat", rater_of(failing), further_calls=1) as reward:
        assert reward.score(rollouts("all")) == [pytest.approx((topics.MASS - 2) / 2 / topics.MASS)]


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        ({"backend": "embedded"}, "the same reply every time"),
        ({"backend": "openai", "engine": {"model": "m", "urls": ["http://127.0.0.1:9/v1"]}}, "with temperature 0"),
    ],
)
def test_a_judge_that_says_the_same_again_is_not_asked_again(tmp_path: Path, judge: Any, says: str) -> None:
    study = tmp_path / "study.yaml"
    settings = Judge.model_validate({"protocol": "pointwise", "evidence": "off", **judge})
    with pytest.raises(InputError, match=says):
        refuse_same_replies(settings, study)


def test_a_judge_that_gives_no_probabilities_leaves_the_variance_open() -> None:
    def plain(questions: Sequence[Question]) -> list[Reply]:
        return [Reply(text=reply.text) for reply in certain(questions)]

    with reward_of("gear", rater_of(plain)) as reward:
        rewarded = reward.score_with_variance(rollouts("all", "none"))
        assert [one.variance for one in rewarded] == [None, None]
        assert None not in [one.reward for one in rewarded]
        assert reward.score_with_variance([]) == []


def test_a_pickled_reward_judges_alike(tmp_path: Path) -> None:
    reward = reward_of(replies=tmp_path / "replies.sqlite")
    here = reward.score(rollouts("all", "bare"))  # opened, and sent all the same
    again = pickle.loads(pickle.dumps(reward))
    assert again.__name__ == "rubric_gear"
    assert again.score(rollouts("bare", "all")) == here[::-1]
    again.score(rollouts("all", "bare", "none"))
    assert again.last.calls == 2  # the others are in the file
    reward.close()
    reward.close()
    assert reward.score(rollouts("all")) == here[:1]


def test_a_forked_process_opens_its_own_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[ReplyStore] = []

    def opening(store: ReplyStore) -> Rater:
        stores.append(store)
        return topics.noisy(store)

    reward = reward_of(open_rater=opening)
    reward.score(rollouts("all"))
    monkeypatch.setattr("os.getpid", lambda: 1 << 30)  # no process has this number
    reward.score(rollouts("all"))
    assert len(stores) == 2
    assert stores[0] is not stores[1]


def test_threads_get_their_own_rewards() -> None:
    texts = [SAID["all"], SAID["bare"], SAID["none"], COPPER]
    with reward_of("gear", rater_of(certain)) as reward:
        alone = [reward.score([Rollout("copper", text)]) for text in texts]
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda text: reward.score([Rollout("copper", text)]), texts * 4))
    assert found == alone * 4


def test_two_concurrent_rewards_are_judged_at_once() -> None:
    both = threading.Barrier(2, timeout=300)

    def meeting(questions: Sequence[Question]) -> list[Reply]:
        both.wait()  # broken, and so an error, unless the other judge is at work, too
        return certain(questions)

    async def together() -> list[Any]:
        given = {"prompts": [""], "completions": [SAID["bare"]], "item_id": ["copper"]}
        return await asyncio.gather(*(one.concurrent(**given) for one in rewards))

    rewards = [reward_of(name, rater_of(meeting)) for name in ("flat", "hard_propagated")]
    assert asyncio.run(together()) == [pytest.approx([6 / 11]), pytest.approx([0.0])]


def test_a_protocol_without_single_decisions_is_refused() -> None:
    plain = topics.bundle("copper")
    holistic = plain.protocol.model_copy(update={"name": "dhs", "final_score": "judged"})
    with pytest.raises(InputError, match="'dhs' decides no single criteria"):
        reward_of(bundles={"copper": plain.model_copy(update={"protocol": holistic})})


def test_bundles_that_differ_in_what_an_unscored_criterion_does_are_refused() -> None:
    bundles = {topic: topics.bundle(topic) for topic in topics.TOPICS}
    other = bundles["copper"].protocol.model_copy(update={"unscored": "zero"})
    bundles["copper"] = bundles["copper"].model_copy(update={"protocol": other})
    with pytest.raises(InputError, match="differ in what an unscored criterion does: null, zero"):
        reward_of(bundles=bundles)


def test_an_item_without_a_graph_is_refused() -> None:
    bundles = {"copper": topics.bundle("copper")}
    items = [row for row in topics.items() if row["item_id"] == "copper"]
    with pytest.raises(InputError, match="'copper' of an item has no graph"):
        RubricReward(items, bundles, {}, topics.SETTINGS, topics.noisy)
    with pytest.raises(InputError, match="there is no item"):
        RubricReward([], bundles, {}, topics.SETTINGS, topics.noisy)
    with pytest.raises(InputError, match="has no bundle"):
        RubricReward(items, {}, {"copper": topics.graph()}, topics.SETTINGS, topics.noisy)


STUDY = """
name: topics
data: {sources: [{file: items.csv, items: {item_id: id, question: question}}]}
rubrics: {file: rubrics.yaml}
judge: {protocol: pointwise, criteria_per_call: 4, backend: embedded}
reward: {retention: {weak_prerequisite: 0.6, strong_prerequisite: 0.2, activation: 0.0}}
"""


def study_in(folder: Path, text: str = STUDY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


def run_in(folder: Path, study: Path, protocol: Protocol | None = None, reference_answer: str | None = None) -> Run:
    """A finished run of the study in the warehouse of this folder: the tables that a reward reads."""
    run, graph = plan(study, folder / "warehouse").run, topics.graph()
    bundles = {topic: topics.bundle(topic) for topic in topics.TOPICS}
    if protocol:
        bundles = {topic: of.model_copy(update={"protocol": protocol}) for topic, of in bundles.items()}
    none = dict.fromkeys(("key_weights", "misconceptions", "criteria"))
    more = none | {"reference_answer": reference_answer, "key_elements": [], "type": "item"}
    items = [more | row for row in topics.items()]
    locked = [{"rubric_id": n, "bundle_id": b.bundle_id, "content": b.canonical()} for n, b in bundles.items()]
    counts = ("criteria", "candidates", "proposed", "kept", "invalid", "failed", "roles_missing", "depth")
    drawn = {"graph_id": graph.graph_id, "content": graph.canonical(), "annotator": "authored", "profile": "general"}
    drawn |= {"source_digest": "0" * 64, "made_from": {}, "calls": []} | dict.fromkeys(counts, 0)
    run.commit("ingest", "all", {Items: items})
    run.commit("lock", "all", {Bundles: locked})
    run.commit("graph", "all", {RubricGraphs: [{**drawn, "rubric_id": name} for name in bundles]})
    return run


def test_a_study_is_found_with_the_graphs_of_its_run(tmp_path: Path) -> None:
    study = study_in(tmp_path / "study")
    with pytest.raises(
        StoreError, match=r"no run in .* has a graph; build it: rubricflow graph .*study.yaml --warehouse"
    ):
        RubricReward.of_study(study, tmp_path / "warehouse")
    run = run_in(tmp_path, study)
    texts = [f"Red and heavy and rare {topic}. Studies confirm that." for topic in topics.TOPICS]
    mine = [Rollout(topic, text) for topic, text in zip(topics.TOPICS, texts, strict=True)]
    with (
        RubricReward.of_study(study, tmp_path / "warehouse") as gear,
        RubricReward.of_run(tmp_path / "warehouse", run.run_id, study, "flat") as flat,
    ):
        paid, plain = gear.score(mine), flat.score(mine)
        assert gear.last.calls == 16
        assert flat.last.calls == 0  # they share the warehouse's reply store
    assert all(-2 / 11 <= number <= 1 for number in paid)
    assert paid != pytest.approx(plain)
    assert len(ReplyStore(run.warehouse.replies)) == 16


class Exact:
    """A trained grader that sees what holds, and notes which references it was shown."""

    name = "rec_cbm:exact:0123456789ab"
    scores = (0.0, 1.0)

    def __init__(self) -> None:
        self.references: list[str | None] = []

    @property
    def concepts(self) -> dict[str, int]:
        return dict.fromkeys(topics.exact("copper", ""), 2)

    def __call__(self, answered: Sequence[Answered]) -> list[GraderOutput]:
        self.references += [one.reference for one in answered]
        held = [topics.exact("copper", one.response) for one in answered]
        return [
            GraderOutput({c: [1.0 - holds, float(holds)] for c, holds in of.items()}, {0.0: 0.4, 1.0: 0.6}, 1.0)
            for of in held
        ]


def test_a_trained_grader_judges_rollouts_as_it_judges_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader, trained = Exact(), "backend: trained, protocol: bottleneck, grader: mine.safetensors"
    asked = STUDY.replace("protocol: pointwise, criteria_per_call: 4, backend: embedded", trained)
    study = study_in(tmp_path / "study", asked)
    protocol = Judge(backend="trained", protocol="bottleneck", grader="mine.safetensors").as_protocol()
    (study.parent / "mine.safetensors").touch()
    run_in(tmp_path, study, protocol, reference_answer="It is red.")
    opened = {study.parent / "mine.safetensors": grader}
    monkeypatch.setattr("rubricflow.tasks.methods.bottleneck.grader.load", lambda path, base: opened[path])
    with RubricReward.of_study(study, tmp_path / "warehouse", "flat") as reward:
        assert reward.score(rollouts("bare", "all", "none")) == pytest.approx([6 / 11, 5 / 11, 0.0])
    assert grader.references == ["It is red."] * 3


def test_learned_factors_of_edges_are_used(tmp_path: Path) -> None:
    rows = "".join(
        f"{topic},fact,{child},1.0\n" for topic in topics.TOPICS for child in ("reason", "example", "summary")
    )
    study = study_in(tmp_path / "study", STUDY.replace("reward: {", "reward: {edge_retention: factors.csv, "))
    (study.parent / "factors.csv").write_text("rubric_id,parent,child,retention\n" + rows)
    run_in(tmp_path, study)
    reward = RubricReward.of_study(study, tmp_path / "warehouse")
    compiled = reward.items["copper"].compiled
    retention = dict(zip(compiled.edges, compiled.retention, strict=True))
    assert retention["fact", "summary"] == 1.0
    assert retention["reason", "evidence"] == 0.2


def test_a_run_of_another_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'other-0123456789' is not one of study 'topics'"):
        RubricReward.of_run(tmp_path / "warehouse", "other-0123456789", study_in(tmp_path / "study"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((STUDY[STUDY.index("data") : STUDY.index("rubrics")], "data: {layout: healthbench}\n"), "for evaluation"),
        (("reward:", "graph: {profile: law} #"), "no section 'reward'"),
        (("backend: embedded}", "backend: simulated, truth: {rater: one}}"), "no rollouts"),
        (("backend: embedded}", "backend: embedded, samples: 3}"), "judged once"),
        (("backend: embedded}", "backend: openai, engine: {model: m}, examples: {}}"), "without worked examples"),
    ],
)
def test_a_study_that_cannot_train_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    study = study_in(tmp_path, STUDY.replace(*change))
    with pytest.raises(InputError, match=message):
        RubricReward.of_run(tmp_path / "warehouse", "any", study)


def test_a_credential_of_prefects_is_refused(tmp_path: Path) -> None:
    engine = "engine: {model: m, key: 'block:mine'}"
    study = study_in(tmp_path, STUDY.replace("backend: embedded", f"backend: openai, {engine}"))
    run_in(tmp_path, study)
    with pytest.raises(InputError, match="from the environment"):
        RubricReward.of_study(study, tmp_path / "warehouse").score(rollouts("all"))


def test_a_language_model_behind_a_server_judges_from_any_thread(tmp_path: Path) -> None:
    sizes: list[int] = []

    def found(n: int, body: dict[str, Any]) -> bytes:
        asked = body["response_format"]["json_schema"]["schema"]["properties"]["decisions"]["properties"]
        sizes.append(len(asked))
        decisions = {name: {"diagnostic": "", "level": 1} for name in asked}
        return http(200, body_of(json.dumps({"decisions": decisions})))

    server = Server(found)
    engine = f"engine: {{model: m, urls: ['{server.url}'], concurrency: 2}}"
    study = study_in(tmp_path / "study", STUDY.replace("backend: embedded", f"backend: openai, {engine}"))
    run_in(tmp_path, study)
    with RubricReward.of_study(study, tmp_path / "warehouse") as reward:
        assert reward.score(rollouts("all", "bare", "all")) == [pytest.approx(9 / 11)] * 3
        assert sorted(sizes) == [3, 3, 4, 4]
        assert reward.last is not None
        assert (reward.last.calls, reward.last.prompt_tokens, reward.last.completion_tokens) == (4, 44, 12)
        given = {"prompts": [""], "completions": [COPPER], "item_id": ["copper"]}
        assert asyncio.run(reward.concurrent(**given)) == [pytest.approx(9 / 11)]
        verl = reward.verl_score("d", SAID["none"], None, {"item_id": "silver"}, unscored=0.0)
        assert asyncio.run(verl) == pytest.approx(9 / 11)
    server.close()
