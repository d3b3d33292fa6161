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
import math
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rubricflow.flows.checks import grader_of
from rubricflow.flows.prepared_items import StudyGraphs, graphs_of_run, graphs_of_study
from rubricflow.flows.rollouts import Rollout, RolloutReward
from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.backends import BACKENDS, backends_serving
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.sources import evaluation_only
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.rewards.reward.factors import read_factors

GATHER_S = 0.005
"""How long the first of several single rollouts waits for the others."""
BATCHES = 8
"""How many batches of single rollouts are judged at once."""


class RubricReward(RolloutReward):
    """The reward as TRL and verl call it."""

    _own = (*RolloutReward._own, "_gatherings")

    @classmethod
    def of_study(
        cls, study: str | Path, warehouse: str | Path, aggregation: Aggregation = "gear", **options: Any
    ) -> RubricReward:
        """The reward of a study file, with the graphs that `rubricflow graph` or `reward` built in the warehouse of the
        same questions, rubrics, annotator and votes, whatever judged or was paid by them then.

        options: see `flows.rollouts.Options`; replies are the warehouse's where not given. Errors as of `of_run`;
        StoreError where such a graph is not there, with the command that builds it.
        """
        from rubricflow.flows.plan import plan  # with it come the libraries of calibration, which no worker needs

        path = Path(study)
        opened = Warehouse.open(warehouse)
        settings = for_training(path)
        run = plan(path, warehouse).run
        has_graphs = run.done("graph", "all")
        graphs = graphs_of_run(run) if has_graphs else graphs_of_study(settings, path, opened)
        return cls._of(settings, path, opened, graphs, aggregation, options)

    @classmethod
    def of_run(
        cls,
        warehouse: str | Path,
        run_id: str,
        study: str | Path,
        aggregation: Aggregation = "gear",
        **options: Any,
    ) -> RubricReward:
        """The reward with items, bundles and graphs of a run, and judge and settings of a study file.

        InputError for a study without `reward`, data that is for evaluation only, a judge that cannot judge rollouts,
        and a run of another study; StoreError where the run has no graphs.
        """
        path = Path(study)
        opened = Warehouse.open(warehouse)
        settings = for_training(path)
        if not run_id.startswith(f"{settings.name}-"):
            raise InputError(f"run '{run_id}' is not one of study '{settings.name}'", file=path)
        return cls._of(settings, path, opened, graphs_of_run(opened.run(run_id)), aggregation, options)

    @classmethod
    def _of(
        cls,
        settings: Study,
        path: Path,
        warehouse: Warehouse,
        graphs: StudyGraphs,
        aggregation: Aggregation,
        options: Fields,
    ) -> RubricReward:
        assert settings.reward is not None  # `for_training` asks for it
        judge = settings.judge
        learned = settings.reward.edge_retention
        if options.get("further_calls"):
            refuse_same_replies(judge, path)
        asking = partial(study_rater, judge, path.parent)
        factors = read_factors(path.parent / learned, graphs.graphs) if learned else None
        return cls(*graphs, settings.reward, asking, aggregation, factors, **{"replies": warehouse.replies, **options})

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """TRL's reward function: one number per completion, at most 1, or None where there is none, which TRL leaves
        out of the group's mean and gives no advantage.

        completions: texts, or chats whose assistant turns are judged together. columns: `item_id` is needed; of TRL's
        own, `log_metric` gets the batch's cost, `log_extra` each rollout's `reward_variance`, and `trainer_state` has
        its step. InputError names what is missing.
        """
        names = columns.get("item_id")
        if names is None:
            raise InputError("the data set has no column 'item_id', which tells a rollout's item", field="item_id")
        if len(names) != len(completions):
            raise InputError(f"{len(names)} items for {len(completions)} completions", field="item_id")
        rollouts = [Rollout(name, text_of(of)) for name, of in zip(names, completions, strict=True)]
        state = columns.get("trainer_state")
        log = columns.get("log_metric")
        batch = self._rewarded(rollouts, state.global_step if state else None)
        if batch is None:
            return []
        if log:
            for name, value in asdict(batch.cost).items():
                log(f"{self.__name__}/{name}", float(value))
        if log_extra := columns.get("log_extra"):
            log_extra(f"{self.__name__}/reward_variance", batch.variances)
        return batch.rewards

    @property
    def concurrent(self) -> Callable[..., Awaitable[list[float | None]]]:
        """The same reward as a coroutine in a thread of its own: TRL judges all coroutines of a step at once."""

        async def judged(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
            return await asyncio.to_thread(self, prompts, completions, **columns)

        judged.__name__ = self.__name__
        return judged

    async def verl_score(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Fields | None = None,
        *,
        unscored: float,
        **more: Any,
    ) -> float:
        """verl's reward of one solution. Calls that come within a few milliseconds are judged as one batch.

        verl trains on every number it gets and knows no None, so `unscored`, what a rollout without a reward becomes,
        has no default: whatever it is, the policy learns from a failure of the judge. It belongs into `reward_kwargs`.
        extra_info: `item_id` is needed. data_source, ground_truth and what else verl sends are not used.
        """
        _refuse_no_number(unscored)
        rollout = Rollout(_item_of(extra_info), solution_str)
        self.item(rollout.item_id)
        found = await asyncio.wrap_future(self._gathering.soon(rollout))
        return unscored if found is None else found

    def verl_scores(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Fields | None],
        *,
        unscored: float,
        **more: Any,
    ) -> list[float]:
        """verl's reward of a batch, for its manager `batch`; see `verl_score`."""
        _refuse_no_number(unscored)
        rollouts = [Rollout(_item_of(info), text) for info, text in zip(extra_infos, solution_strs, strict=True)]
        return [unscored if found is None else found for found in self.score(rollouts)]

    def _begin(self) -> None:
        super()._begin()
        self._gatherings: dict[int, Gathering] = {}

    @property
    def _gathering(self) -> Gathering:
        """That of this process."""
        return self._gatherings.setdefault(os.getpid(), Gathering(self.score))


class Gathering:
    """Puts single rollouts that come within a few milliseconds, or while `BATCHES` others are judged, into one
    batch."""

    def __init__(self, score: Callable[[Sequence[Rollout]], list[float | None]]) -> None:
        self._score = score
        self._judging, self._gate = threading.BoundedSemaphore(BATCHES), threading.Lock()
        self._waiting: list[tuple[Rollout, Future[float | None]]] = []

    def soon(self, rollout: Rollout) -> Future[float | None]:
        future: Future[float | None] = Future()
        with self._gate:
            self._waiting.append((rollout, future))
            if len(self._waiting) == 1:
                timer = threading.Timer(GATHER_S, self._judge)
                timer.daemon = True
                timer.start()
        return future

    def _judge(self) -> None:
        with self._judging:
            with self._gate:
                waiting = self._waiting
                self._waiting = []
            waiting = [(rollout, future) for rollout, future in waiting if future.set_running_or_notify_cancel()]
            try:
                rewards = self._score([rollout for rollout, _ in waiting])
            except BaseException as error:  # each caller is told; there is nobody else in this thread
                for _, future in waiting:
                    future.set_exception(error)
                return
        for (_, future), reward in zip(waiting, rewards, strict=True):
            future.set_result(reward)


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


def for_training(path: Path, by_graph: bool = True) -> Study:
    """The study; InputError or BackendError where nothing can be trained by it. by_graph: whether rewards are put
    together along graphs."""
    settings = load_study(path)
    if evaluation_only(settings.data):
        rule = f"the examples of '{settings.data.layout}' are for evaluation; nothing may be trained on them"
        raise InputError(rule, file=path, field="data.layout")
    if by_graph and settings.reward is None:
        raise InputError("there is no section 'reward', which names the retention factors", file=path)
    judge = settings.judge
    base = path.parent
    # A judge that knows nothing of texts that nobody has seen, or would say it several times, is refused.
    if not judge.can("rollouts") or judge.foreign:
        rule = "this judge knows only the responses of its data, no rollouts"
        if judge.escalate:
            rule = "a cascade goes by calibrated risks, and a rollout has none"
        raise InputError(rule, file=path, field="judge.backend", hint=f"use {backends_serving('rollouts')}")
    if judge.examples:
        rule = "a rollout is judged without worked examples; leave 'examples' out"
        raise InputError(rule, file=path, field="judge.examples")
    if judge.samples > 1:
        raise InputError("a rollout is judged once; leave 'samples' out", file=path, field="judge.samples")
    # So is one that could not be opened, as far as that takes neither a server nor a model.
    if BACKENDS[judge.backend].needs == "engine":
        with open_replies(":memory:") as store:
            study_rater(judge, base, store)
    if judge.grader is not None and not (base / judge.grader).is_file():
        raise InputError("there is no such file", file=base / judge.grader, field="judge.grader")
    return settings


def study_rater(judge: Judge, base: Path, store: Replies) -> Rater:
    """Who judges rollouts. base: the folder from which the judge's files are meant."""
    return rater(judge, base, store, _credential, grader_of(judge, base))


def _credential(name: str) -> str | None:
    """The value of an environment variable; InputError for a block of Prefect's, which is not at hand here."""
    if name.startswith("block:"):
        raise InputError("a trainer reads credentials from the environment; name a variable", field="judge.engine.key")
    return os.environ.get(name)


def refuse_same_replies(judge: Judge, path: Path) -> None:
    """InputError for a judge that would say the same again."""
    if BACKENDS[judge.backend].needs != "engine":
        rule = f"judge '{judge.backend}' gives the same reply every time; leave 'further_calls' out"
        raise InputError(rule, file=path, field="further_calls")
    if judge.sampling.temperature == 0:
        rule = "with temperature 0 every reply is the same; set judge.sampling.temperature"
        raise InputError(rule, file=path, field="further_calls")


def _refuse_no_number(unscored: object) -> None:
    """InputError for what verl cannot train on."""
    if isinstance(unscored, bool) or not isinstance(unscored, int | float) or not math.isfinite(unscored):
        raise InputError(f"{unscored!r} is no finite number to train on in place of a reward", field="unscored")


def _item_of(extra_info: Fields | None) -> str:
    if not extra_info or "item_id" not in extra_info:
        raise InputError("a solution without 'item_id', which tells its item", field="extra_info")
    return str(extra_info["item_id"])
