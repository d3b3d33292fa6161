"""Rewards for trainers: rollouts in, rewards out, judged and put together as the flow `reward` does it.

TRL (1.16) calls a reward with prompts, completions and the data set's columns, and takes a list of numbers and None:

    reward = RubricReward.of_study("study.yaml", "data/warehouse", "gear")  # or "flat", for the plain sum
    GRPOTrainer(model, reward_funcs=reward, train_dataset=questions, ...)   # questions: columns `prompt`, `item_id`

`reward.concurrent` is the same as a coroutine, so that several rewards are judged at once. verl loads a function by
name from a file and calls it with one solution, or with a list of them (its `batch` manager):

    compute_score = RubricReward.of_study("study.yaml", "data/warehouse").verl_score  # or .verl_scores
    # reward.custom_reward_function: {path: this file, name: compute_score, reward_kwargs: {unscored: 0.0}}

An instance can be pickled and opened in any number of processes: each opens its own backend at its first batch. A reply
store in a file is shared by all of them; rate limits hold for each process alone. Prefect is never imported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypedDict, Unpack

import pyarrow as pa

from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.errors import InputError
from tasks.contracts.graph import Aggregation, Graph, Reward
from tasks.contracts.reward_tables import Rewards, RubricGraphs
from tasks.contracts.study import Judge, load_study
from tasks.contracts.table import Row
from tasks.contracts.tables import Bundles, Items, Judgments, Responses
from tasks.ingest.sources import evaluation_only
from tasks.judge.grade import grade_batch
from tasks.judge.keep import KEEPING
from tasks.judge.rater import rater
from tasks.judge.rows import Case, Rater, judgments
from tasks.llm.ask import Wave
from tasks.llm.replies import ReplyStore
from tasks.reward.aggregate import aggregate
from tasks.reward.factors import Factors, read_factors
from tasks.reward.local import local_scores
from tasks.reward.rows import rewards as reward_rows
from tasks.reward.wire import wire
from tasks.store.warehouse import Rows, Run, Warehouse
from tasks.text.units import units

CRITERIA_PER_CALL = 4
"""As many as GEAR's reward judge gets at once."""
GATHER_S = 0.005
"""How long the first of several single rollouts waits for the others."""
_logger = logging.getLogger(__name__)


class Rollout(NamedTuple):
    """One text of the policy."""

    item_id: str
    """The item that it answers."""
    text: str
    """What it says."""


@dataclass(frozen=True)
class Cost:
    """What one batch took."""

    rollouts: int
    unscored: int
    """Rollouts without a reward."""
    calls: int
    """Calls to the judge; replies from the store and those shared by identical rollouts are none."""
    prompt_tokens: int
    """Of the calls, as far as the backend counts them."""
    completion_tokens: int
    seconds: float


class Options(TypedDict, total=False):
    """How a study's reward judges and what it keeps; see `RubricReward.__init__`."""

    criteria_per_call: int | None
    replies: str | Path
    """The warehouse's reply store where not given."""
    record: Run | None


class _Opened(NamedTuple):
    """What one process judges with."""

    process: int
    rater: Rater
    store: ReplyStore
    name: str
    """Unlike that of any other process: its batches are recorded under it."""
    batches: Iterator[int]
    """Their numbers."""


class RubricReward:
    """The reward of rollouts under the rubrics of their items. One batch at a time is judged; more threads wait."""

    last: Cost | None = None
    """What the last batch took; None before the first."""
    _opened: _Opened | None = None

    def __init__(
        self,
        items: Iterable[Mapping[str, Any]],
        bundles: Mapping[str, Bundle],
        graphs: Mapping[str, Graph],
        settings: Reward,
        open_rater: Callable[[ReplyStore], Rater],
        aggregation: Aggregation = "gear",
        *,
        criteria_per_call: int | None = CRITERIA_PER_CALL,
        replies: str | Path = ":memory:",
        record: Run | None = None,
        factors: Factors | None = None,
    ) -> None:
        """All that does not need the judge is checked here.

        items: rows of the table `items`, of which item_id, rubric_id, question and context are used.
        bundles, graphs: rubric → its bundle and its graph.
        open_rater: the reply store → who judges; called once in each process, so it must be picklable to be sent there.
        criteria_per_call: rollouts are judged pointwise with so many criteria in a call; None: as the bundles say. The
            judge never sees the weights.
        replies: file of the reply store.
        record: a run into which every batch is written: its rollouts, judgments and rewards, under stage `trainer`.
        factors: rubric → (parent, child) → retention factor of this edge in place of its relation's.
        InputError and ContractError for an item without bundle or graph, and a bundle that decides no single criteria.
        """
        self._items = {row["item_id"]: row for row in items}
        used = sorted({row["rubric_id"] for row in self._items.values()})
        if not used:
            raise InputError("there is no item that a rollout could answer")
        for name in used:
            if name not in bundles or name not in graphs:
                raise InputError(f"rubric '{name}' of an item has no {'graph' if name in bundles else 'bundle'}")
        self._bundles = {name: _asked(name, bundles[name], criteria_per_call) for name in used}
        rules = {bundle.protocol.unscored for bundle in self._bundles.values()}
        if len(rules) != 1:
            raise InputError(f"the bundles differ in what an unscored criterion does: {', '.join(sorted(rules))}")
        self._unscored = rules.pop()
        given = factors or {}
        self._wired = {
            name: wire(name, bundles[name], graphs[name], settings.retention, settings.eta, given.get(name))
            for name in used
        }
        self._rubric_of = {name: row["rubric_id"] for name, row in self._items.items()}
        self._bundle_ids = {name: bundle.bundle_id for name, bundle in self._bundles.items()}
        self._settings, self._aggregation = settings, aggregation
        self._open_rater, self._replies, self._record = open_rater, str(replies), record
        self.__name__ = f"rubric_{aggregation}"
        self._locks()

    @classmethod
    def of_study(
        cls, study: str | Path, warehouse: str | Path, aggregation: Aggregation = "gear", **more: Unpack[Options]
    ) -> RubricReward:
        """The reward of a study file, with the graphs that `rubricflow graph` or `reward` made of it in the warehouse.

        StoreError where that run is not there; otherwise as `of_run`.
        """
        from flows.plan import plan  # with it come the libraries of calibration, which no worker needs

        return cls.of_run(warehouse, plan(study, warehouse).run.run_id, study, aggregation, **more)

    @classmethod
    def of_run(
        cls,
        warehouse: str | Path,
        run_id: str,
        study: str | Path,
        aggregation: Aggregation = "gear",
        **more: Unpack[Options],
    ) -> RubricReward:
        """The reward with items, bundles and graphs of a run, and judge and settings of a study file.

        InputError for a study without `reward`, data that is for evaluation only, a judge that cannot judge rollouts,
        and a run of another study; StoreError where the run has no graphs.
        """
        path = Path(study)
        settings = load_study(path)
        if evaluation_only(settings.data):
            rule = f"the examples of '{settings.data.layout}' are for evaluation; nothing may be trained on them"
            raise InputError(rule, file=path, field="data.layout")
        if settings.reward is None:
            raise InputError("there is no section 'reward', which names the retention factors", file=path)
        _refuse_idle(settings.judge, path)
        if not run_id.startswith(f"{settings.name}-"):
            raise InputError(f"run '{run_id}' is not one of study '{settings.name}'", file=path)
        run = Warehouse.open(warehouse).run(run_id)
        rows = run.read(run.ref(RubricGraphs, "graph"), ["rubric_id", "content"]).to_pylist()
        graphs = {row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in rows}
        learned = settings.reward.edge_retention
        return cls(
            run.read(run.ref(Items, "ingest")).to_pylist(),
            unlocked(run.read(run.ref(Bundles, "lock")).to_pylist()),
            graphs,
            settings.reward,
            partial(_study_rater, settings.judge, path.parent),
            aggregation,
            criteria_per_call=more.get("criteria_per_call", CRITERIA_PER_CALL),
            replies=more.get("replies", run.warehouse.replies),
            record=more.get("record"),
            factors=read_factors(path.parent / learned, graphs) if learned else None,
        )

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """TRL's reward function: one number per completion, at most 1, or None where there is none, which TRL leaves
        out of the group's mean and gives no advantage.

        completions: texts, or chats whose assistant turns are judged together. columns: `item_id` is needed; of TRL's
        own, `log_metric` gets the batch's cost and `trainer_state` its step. InputError names what is missing.
        """
        names = columns.get("item_id")
        if names is None:
            raise InputError("the data set has no column 'item_id', which tells a rollout's item", field="item_id")
        if len(names) != len(completions):
            raise InputError(f"{len(names)} items for {len(completions)} completions", field="item_id")
        rollouts = [Rollout(name, text_of(of)) for name, of in zip(names, completions, strict=True)]
        state, log = columns.get("trainer_state"), columns.get("log_metric")
        found, cost = self._rewarded(rollouts, state.global_step if state else None)
        if log and cost:
            for name, value in asdict(cost).items():
                log(f"{self.__name__}/{name}", float(value))
        return found

    @property
    def concurrent(self) -> Concurrent:
        """The same reward as a coroutine: TRL judges all coroutines of a step at once."""
        return Concurrent(self)

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """The reward of each rollout, None where there is none."""
        return self._rewarded(rollouts, None)[0]

    async def verl_score(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        *,
        unscored: float,
        **more: Any,
    ) -> float:
        """verl's reward of one solution. Calls that come within a few milliseconds are judged as one batch.

        verl trains on every number it gets and knows no None, so `unscored`, what a rollout without a reward becomes,
        has no default: whatever it is, the policy learns from a failure of the judge. It belongs into `reward_kwargs`.
        extra_info: `item_id` is needed. data_source, ground_truth and what else verl sends are not used.
        """
        rollout = Rollout(_item_of(extra_info), solution_str)
        self._known(rollout)
        found = await asyncio.wrap_future(self._soon(rollout))
        return unscored if found is None else found

    def verl_scores(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Mapping[str, Any] | None],
        *,
        unscored: float,
        **more: Any,
    ) -> list[float]:
        """verl's reward of a batch, for its manager `batch`; see `verl_score`."""
        rollouts = [Rollout(_item_of(info), text) for info, text in zip(extra_infos, solution_strs, strict=True)]
        return [unscored if found is None else found for found in self.score(rollouts)]

    def close(self) -> None:
        """Gives the reply store back; the next batch opens it again."""
        with self._judging:
            if self._opened and self._opened.process == os.getpid():
                self._opened.store.close()
            self._opened = None

    def __enter__(self) -> RubricReward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what belongs to this process."""
        mine = {"_judging", "_gate", "_waiting", "_opened", "last"}
        return {name: value for name, value in self.__dict__.items() if name not in mine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._locks()

    def _locks(self) -> None:
        """What this process has for itself."""
        self._judging = threading.RLock()
        self._gate = threading.Lock()
        self._waiting: list[tuple[Rollout, Future[float | None]]] = []

    def _open(self) -> _Opened:
        """What judges in this process: what a parent opened before it forked is the parent's."""
        if self._opened is None or self._opened.process != os.getpid():
            store = ReplyStore(self._replies)
            self._opened = _Opened(os.getpid(), self._open_rater(store), store, secrets.token_hex(4), count())
        return self._opened

    def _known(self, rollout: Rollout) -> None:
        if rollout.item_id not in self._items:
            raise InputError(f"there is no item '{rollout.item_id}'", field="item_id")

    def _rewarded(self, rollouts: Sequence[Rollout], step: int | None) -> tuple[list[float | None], Cost | None]:
        """Rewards and cost of a batch; no cost where there is nothing to judge."""
        for rollout in rollouts:
            self._known(rollout)
        if not rollouts:
            return [], None
        with self._judging:
            start = perf_counter()
            _, who, store, name, batches = self._open()
            shard = f"{name}-{next(batches):06d}"
            cases = [self._case(f"{shard}-{n:04d}", rollout) for n, rollout in enumerate(rollouts)]
            waves: list[Wave] = []
            judged = judgments(who, grade_batch(cases, who, store, waves.append).judged)
            found, rows = self._aggregated(judged, {case.response_id: case.item_id for case in cases})
            if self._record is not None:
                tables: dict[type[Row], Rows] = {Responses: _responses(cases, step), Judgments: judged, Rewards: rows}
                self._record.commit("trainer", shard, tables)
            rewards = [found[case.response_id] for case in cases]
            self.last = Cost(
                rollouts=len(rewards),
                unscored=rewards.count(None),
                calls=sum(wave.asked for wave in waves),
                prompt_tokens=sum(wave.prompt_tokens for wave in waves),
                completion_tokens=sum(wave.completion_tokens for wave in waves),
                seconds=perf_counter() - start,
            )
            _logger.info("%s: %s", self.__name__, self.last)
            return rewards, self.last

    def _aggregated(self, judged: pa.Table, item_of: Mapping[str, str]) -> tuple[dict[str, float | None], pa.Table]:
        """Response → reward, and the rows of the table `rewards`."""
        settings = self._settings
        locals_ = local_scores(judged, item_of, self._rubric_of, self._bundles, self._wired, settings.local)
        found = aggregate(
            locals_.batch,
            self._aggregation,
            threshold=settings.threshold,
            inference=settings.inference,
            unscored=self._unscored,
        )
        numbers = pa.array(found.reward, from_pandas=True).to_pylist()  # None for NaN
        rows = reward_rows(locals_, found, self._aggregation, settings)
        return dict(zip(locals_.response_id.to_pylist(), numbers, strict=True)), rows

    def _case(self, name: str, rollout: Rollout) -> Case:
        item = self._items[rollout.item_id]
        text = rollout.text.encode("utf-8", "replace").decode()  # half a surrogate pair fits into no table
        return Case(
            response_id=name,
            item_id=rollout.item_id,
            text=text,
            units=tuple(units(text)),
            question=item["question"],
            context=item.get("context"),
            bundle=self._bundles[item["rubric_id"]],
            bundle_id=self._bundle_ids[item["rubric_id"]],
        )

    def _soon(self, rollout: Rollout) -> Future[float | None]:
        """The reward of a rollout that is judged together with those that come right after it."""
        future: Future[float | None] = Future()
        with self._gate:
            self._waiting.append((rollout, future))
            if len(self._waiting) == 1:
                timer = threading.Timer(GATHER_S, self._judge_waiting)
                timer.daemon = True
                timer.start()
        return future

    def _judge_waiting(self) -> None:
        with self._judging:  # what comes while a batch is judged becomes the next one
            with self._gate:
                waiting, self._waiting = self._waiting, []
            waiting = [(rollout, future) for rollout, future in waiting if future.set_running_or_notify_cancel()]
            try:
                rewards = self.score([rollout for rollout, _ in waiting])
            except BaseException as error:  # each caller is told; there is nobody else in this thread
                for _, future in waiting:
                    future.set_exception(error)
                return
        for (_, future), reward in zip(waiting, rewards, strict=True):
            future.set_result(reward)


class Concurrent:
    """A reward as a coroutine, judged in a thread of its own."""

    def __init__(self, reward: RubricReward) -> None:
        self._reward = reward
        self.__name__ = reward.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """See `RubricReward.__call__`."""
        return await asyncio.to_thread(self._reward, prompts, completions, **columns)


def text_of(completion: Any) -> str:
    """What a completion says: a text, or the texts of a chat's assistant turns, a line break between them.

    InputError for anything else.
    """
    if isinstance(completion, str):
        return completion
    try:
        said = [turn["content"] for turn in completion if turn["role"] == "assistant" and turn["content"]]
        parts = [[of] if isinstance(of, str) else [one["text"] for one in of if one["type"] == "text"] for of in said]
        return "\n".join(text for some in parts for text in some)
    except (TypeError, KeyError) as error:
        raise InputError("a completion is neither a text nor a list of messages", field="completions") from error


def _asked(name: str, bundle: Bundle, criteria_per_call: int | None) -> Bundle:
    """The bundle as rollouts are judged under it."""
    if bundle.protocol.name not in KEEPING:
        rule = f"rubric '{name}': protocol '{bundle.protocol.name}' decides no single criteria"
        raise InputError(rule, field="judge.protocol", hint=f"use {', '.join(sorted(KEEPING))}")
    changed: dict[str, Any] = {"show_weights": False}
    if criteria_per_call is not None:
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})


def _refuse_idle(judge: Judge, path: Path) -> None:
    """InputError for a judge that has nothing to say about texts that nobody has seen, or would say it several
    times."""
    if judge.backend == "simulated" or judge.foreign:
        rule = "this judge knows only the responses of its data, no rollouts"
        raise InputError(rule, file=path, field="judge.backend", hint="use embedded, vllm, openai or replay")
    if judge.samples > 1:
        raise InputError("a rollout is judged once; leave 'samples' out", file=path, field="judge.samples")


def _study_rater(judge: Judge, base: Path, store: ReplyStore) -> Rater:
    return rater(judge, base, store, _credential)


def _credential(name: str) -> str | None:
    """The value of an environment variable; InputError for a block of Prefect's, which is not at hand here."""
    if name.startswith("block:"):
        raise InputError("a trainer reads credentials from the environment; name a variable", field="judge.engine.key")
    return os.environ.get(name)


def _item_of(extra_info: Mapping[str, Any] | None) -> str:
    if not extra_info or "item_id" not in extra_info:
        raise InputError("a solution without 'item_id', which tells its item", field="extra_info")
    return str(extra_info["item_id"])


def _responses(cases: Sequence[Case], step: int | None) -> list[dict[str, Any]]:
    """Rollouts as rows of the table `responses`, with the step that they were made in."""
    groups = {} if step is None else {"step": str(step)}
    return [
        {
            "response_id": case.response_id,
            "item_id": case.item_id,
            "author_id": None,
            "text": case.text,
            "split": "train",
            "groups": groups,
        }
        for case in cases
    ]
