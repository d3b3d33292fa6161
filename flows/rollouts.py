"""Rewards of rollouts: judged, put together and recorded as the flow `reward` does it, batch by batch, in any number
of threads and processes."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, ValidationError

from rubricflow.flows.batch import (
    FAILURES,
    UNKNOWN,
    Cost,
    JudgedBatch,
    OnFailure,
    PosedRollout,
    UnfinishedRollout,
    Watch,
    case_of_rollout,
    chosen_share,
    cost_of,
    finished,
    patient,
    second_judging,
    troubles,
    unfinished,
    worth_repeating,
)
from rubricflow.flows.prepared_items import PreparedItem, prepared_items
from rubricflow.flows.recorder import CURVES, REPEATS, TRAINER, Recorder, record_quality
from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, StoppedError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.schema import Frozen, Row
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, EdgeCases, Rewards
from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.backend import Backend, Steady, kept_open
from rubricflow.tasks.core.llm.calls import InFlight
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Case, Graded, Rater, judgments
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate, averaged, weights_of_doubts
from rubricflow.tasks.rewards.reward.exact import reward_variances
from rubricflow.tasks.rewards.reward.factors import Factors
from rubricflow.tasks.rewards.reward.leakage import edge_cases, or_none
from rubricflow.tasks.rewards.reward.local import Locals, local_scores
from rubricflow.tasks.rewards.reward.rows import case_rows, reward_rows
from rubricflow.tasks.rewards.serve.answered import Qualities

_logger = logging.getLogger(__name__)


class Options(Frozen):
    """How rollouts are judged, and what is kept of them."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)

    aggregation: Aggregation = "gear"
    """How a reward is put together."""
    criteria_per_call: int | None = Field(default=4, ge=1)
    """Rollouts are judged pointwise with so many criteria in a call, as many as GEAR's reward judge gets at once; None:
    as the bundles say. The judge never sees the weights."""
    replies: str | Path = ":memory:"
    """File of the reply store."""
    record: Run | None = None
    """A run into which every batch is written: its rollouts, judgments and rewards, under stage `trainer`; complete
    when the reward is closed, see `flows.recorder`."""
    on_failure: OnFailure = "stop"
    """What happens where the judge is down or out of time, or too much is unscored; see `Watch`."""
    deadline: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    """Seconds for one batch; what is not answered then is given up, and has no reward. Long for a busy judge, and a
    fraction of what a hung call may take with its retries."""
    most_unscored: float = Field(default=0.2, gt=0, le=1)
    """Share of the last rollouts without a reward that is still borne."""
    judged_twice: float = Field(default=0.0, ge=0, le=1)
    """Share of the rollouts that are judged a second time at the same time, to see how far the judge agrees with
    itself; no reward depends on it."""
    further_calls: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Further calls for a rollout in the mean. A batch's go to the calls whose criteria leave its rewards most in
    doubt; what they are worth is the mean of both replies. Pays only where the judge draws its replies, that is at a
    temperature above 0."""


class Rollout(NamedTuple):
    """One text of the policy."""

    item_id: str
    """The item that it answers."""
    text: str
    """What it says."""


class VariedReward(NamedTuple):
    """What a rollout is paid."""

    reward: float | None
    """None where there is no reward."""
    variance: float | None
    """See `reward_variances`; None where nothing is known of it."""


class Opened(NamedTuple):
    """What one process judges with."""

    rater: Rater
    store: Replies
    shards: Iterator[str]
    """Names of its batches, unlike those of any other process."""
    recorder: Recorder | None


class Process:
    """A process' part of a reward. What a parent opened before it forked is the parent's."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._opened: Opened | None = None
        self._gate = threading.Condition()
        self._at_work = 0
        """Batches that are judged now."""

    @contextmanager
    def judging(self, opening: Callable[[], Opened]) -> Iterator[Opened]:
        """What judges, for as long as a batch takes; opened where it is not."""
        with self._gate:
            opened = self._opened = self._opened or opening()
            self._at_work += 1
        try:
            yield opened
        finally:
            with self._gate:
                self._at_work -= 1
                self._gate.notify_all()

    def close(self) -> None:
        """Gives the reply store back when the batches under way are done, and completes the record."""
        with self._gate:
            self._gate.wait_for(lambda: not self._at_work)
            if self._opened:
                self._opened.store.close()
                if self._opened.recorder:
                    self._opened.recorder.close()
            self._opened = None


class RolloutReward:
    """The reward of rollouts under the rubrics of their items. Any number of threads have their batches judged at once,
    as far as the backend goes: a server up to its concurrency, a model in this process one after the other. It can be
    pickled, and opens its own backend and reply store in each process at the first batch there."""

    last: Cost | None = None
    """What the batch took that ended last; None before the first."""
    _own: ClassVar[tuple[str, ...]] = ("_processes", "last")
    """What belongs to this process and is not sent to another."""

    def __init__(
        self,
        items: Iterable[Fields],
        bundles: Mapping[str, Bundle],
        graphs: Mapping[str, Graph],
        settings: Reward,
        open_rater: Callable[[Replies], Rater],
        aggregation: Aggregation = "gear",
        factors: Factors | None = None,
        **options: Any,
    ) -> None:
        """items: rows with item_id, rubric_id and question at least; bundles and graphs by rubric.

        open_rater: opens who judges; called once in each process, so it must be picklable to be sent there.
        factors: rubric → (parent, child) → retention factor of this edge in place of its relation's.
        options: fields of `Options`.
        InputError, ContractError and StoreError for a setting that cannot be, an item without bundle or graph, a bundle
        that decides no single criteria, a graph too wide for exact inference, and files that cannot be written.
        """
        self._prepare(f"rubric_{aggregation}", open_rater, options | {"aggregation": aggregation})
        rules = settings if aggregation == "gear" else settings.model_copy(update={"inference": "topological"})
        self.items = prepared_items(items, bundles, graphs, rules, self.options.criteria_per_call, factors)
        self._settings = settings

    def _prepare(self, name: str, open_rater: Callable[[Replies], Rater], options: Fields) -> None:
        """Sets what every reward has, and proves that its files can be used."""
        try:
            self.options = Options(**options)
        except ValidationError as error:
            fault = error.errors()[0]
            raise InputError(f"{fault['msg']}, not {fault['input']!r}", field=str(fault["loc"][0])) from error
        self._open_rater = open_rater
        self.__name__ = name
        open_replies(str(self.options.replies)).close()  # or it cannot be used, and that is said now
        if self.options.record:
            with self.options.record.alone():
                pass  # or nothing can be written there
        self._begin()

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """The reward of each rollout, None where there is none."""
        return [rewarded.reward for rewarded in self.score_with_variance(rollouts)]

    def score_with_variance(self, rollouts: Sequence[Rollout]) -> list[VariedReward]:
        """The reward of each rollout and how far it would vary with the judge's own doubts, for a trainer that trusts
        doubtful rewards less."""
        batch = self._rewarded(rollouts, None)
        return list(map(VariedReward, batch.rewards, batch.variances)) if batch else []

    def held_out(self, step: int, quality: Qualities) -> None:
        """Writes an evaluation of the policy into the record: `rubricflow report` draws it next to false credit, with
        the alarm of reward hacking; InputError where nothing is recorded.

        quality: held-out item → how good it is, from 0 to 1, higher is better, by whoever pays for nothing.
        """
        if not self.options.record:
            raise InputError("held-out quality is kept in the record, and there is none", field="record")
        record_quality(self.options.record, step, quality)

    @property
    def threshold(self) -> float:
        """From which share on a criterion counts as supported."""
        return self._settings.threshold

    @property
    def unscored(self) -> dict[str, int]:
        """How many rollouts of this process have no reward until now, by reason."""
        return dict(self._here.watch.unscored)

    def close(self) -> None:
        """Gives the reply store back and completes the record when the batches under way are done; the next batch opens
        both again."""
        self._here.close()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """For as long as it lasts the judge is open, with its connections kept between batches."""
        with self._here.judging(self._open) as opened, kept_open(opened.rater.backend):
            yield
            if opened.recorder:
                opened.recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Record:
        return {name: value for name, value in self.__dict__.items() if name not in self._own}

    def __setstate__(self, state: Record) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._processes: dict[int, Process] = {}

    @property
    def _here(self) -> Process:
        watch = Watch(self.__name__, self.options.on_failure, self.options.most_unscored)
        return self._processes.setdefault(os.getpid(), Process(watch))

    def _open(self) -> Opened:
        store = open_replies(str(self.options.replies))
        name = secrets.token_hex(4)
        recorder = Recorder(self.options.record) if self.options.record else None
        return Opened(self._open_rater(store), store, (f"{name}-{number:06d}" for number in count()), recorder)

    def item(self, item_id: str, row: int | None = None) -> PreparedItem:
        """The item that a rollout, of this row, answers; InputError for none."""
        if item_id not in self.items:
            raise InputError(f"there is no item '{item_id}'", row=row, field="item_id")
        return self.items[item_id]

    def _rewarded(self, rollouts: Sequence[Rollout], step: int | None) -> JudgedBatch | None:
        """A batch, judged, put together, watched and recorded; None where there is nothing to judge."""
        posed = [PosedRollout(self.item(rollout.item_id), rollout.text, step) for rollout in rollouts]
        if not posed:
            return None
        batch, _ = self.judged_so_far(posed, monotonic() + self.options.deadline)
        assert batch is not None  # nothing stays unfinished
        self.last = batch.cost
        _logger.info("%s: %s", self.__name__, batch.cost)
        return batch

    def judged_so_far(
        self,
        posed: Sequence[PosedRollout],
        until: float,
        in_flight: InFlight | None = None,
        patience_s: float = 0.0,
        is_last: bool = True,
    ) -> tuple[JudgedBatch | None, dict[int, UnfinishedRollout]]:
        """The batch of those rollouts whose calls are answered before no reply has come for so many seconds, judged,
        put together, watched and recorded; None where there are none. The others by their place: their calls go on in
        `in_flight`, where the next batch with them finds the replies.

        until: time of `time.monotonic` after which no reply is waited for. is_last: nothing stays unfinished, and what
        is not answered has no reward. Without `in_flight` all calls are waited for until their time is over.
        """
        start = perf_counter()
        with self._here.judging(self._open) as opened:
            shard = next(opened.shards)
            cases = [case_of_rollout(f"{shard}-{number:04d}", rollout) for number, rollout in enumerate(posed)]
            waves: list[Wave] = []

            def through(backend: Backend) -> Backend:
                return Steady(in_flight.around(backend, patience_s, is_last) if in_flight else backend)

            def judging(cases: Sequence[Case], who: Rater) -> Graded:
                return self._graded(cases, patient(who, until, through), opened.store, waves)

            twice = chosen_share(cases, self.options.judged_twice)
            with ThreadPoolExecutor(1, thread_name_prefix="second-judging") as threads:
                second = threads.submit(second_judging, twice, opened.rater, judging) if twice else None
                graded = judging(cases, opened.rater)
                repeats = second.result() if second else None
            left = {}
            if in_flight:
                open_ = unfinished([graded, repeats] if repeats else [graded], in_flight)
                left = {place: open_[of.response_id] for place, of in enumerate(cases) if of.response_id in open_}
                if len(left) == len(cases):
                    return None, left
                posed = [rollout for place, rollout in enumerate(posed) if place not in left]
                graded = finished(graded, open_)
                repeats = finished(repeats, open_) if repeats else None
            decisions = judgments(opened.rater, graded.judged)
            local = self._local(decisions, graded, posed)
            lost = troubles(graded)  # a further call that fails leaves what the first ones brought
            if again := self._doubtful(graded, local):
                more = judging(list(again.values()), repeated(opened.rater, 2)[1])
                graded.called += more.called
                said = judgments(more.rater, more.judged)
                both = averaged(local.batch, self._local(said, more, posed).batch, np.array(list(again)))
                local = replace(local, batch=both)
                decisions = pa.concat_tables([decisions, said])
            failed = [lost.get(judged.case.response_id, UNKNOWN).reason in FAILURES for judged in graded.judged]
            worth = self.aggregated(local, self.options.aggregation)
            worth = replace(worth, **{name: np.where(failed, np.nan, getattr(worth, name)) for name in _PAID})
            variance = np.where(failed, np.nan, reward_variances(local.batch, self.options.aggregation))
            rewards = or_none(worth.reward)
            variances = or_none(variance)
            missing = [
                lost.get(judged.case.response_id, UNKNOWN) if reward is None else None
                for judged, reward in zip(graded.judged, rewards, strict=True)
            ]
            self._here.watch.note(missing)
            if opened.recorder is not None:
                paid = reward_rows(local, worth, variance, self.options.aggregation, self._settings)
                tables = self._record(posed, graded, local, paid, decisions)
                if repeats:
                    tables |= {REPEATS: {Judgments: judgments(repeats.rater, repeats.judged)}}
                opened.recorder.add(shard, tables)
        cost = cost_of(rewards, waves, perf_counter() - start)
        return JudgedBatch(graded, local, rewards, variances, missing, cost, repeats), left

    def _graded(self, cases: Sequence[Case], who: Rater, store: Replies, waves: list[Wave]) -> Graded:
        """Graded as far as time and judge go; BackendError where that has to be mended first."""
        try:
            return grade_batch(cases, who, store, waves.append)
        except StoppedError as error:
            rule = "no batch can be judged before that is mended, whatever on_failure says; go on from the last"
            rule = f"{self.__name__}: {error.reason}; {rule} checkpoint then (replies that came are kept)"
            raise BackendError(rule) from error

    def _doubtful(self, graded: Graded, local: Locals) -> dict[int, Case]:
        """What is asked again of a batch, by place: the calls that leave its rewards most in doubt."""
        calls = round(self.options.further_calls * len(graded.judged))
        if not calls:
            return {}
        weights = weights_of_doubts(local.batch, self.options.aggregation, self._settings)
        return worth_repeating(graded.judged, local.batch, weights, calls)

    def _local(self, decisions: pa.Table, graded: Graded, posed: Sequence[PosedRollout]) -> Locals:
        """What each rollout's criteria are worth on their own."""
        items = {rollout.item.row["rubric_id"]: rollout.item for rollout in posed}
        return local_scores(
            decisions,
            {judged.case.response_id: judged.case.item_id for judged in graded.judged},
            {rollout.item.row["item_id"]: rollout.item.row["rubric_id"] for rollout in posed},
            {name: item.bundle for name, item in items.items()},
            {name: item.compiled for name, item in items.items()},
            self._settings.local,
        )

    def aggregated(self, local: Locals, aggregation: Aggregation) -> Aggregated:
        """Rewards and shares of a judged batch by any aggregation."""
        return aggregate(
            local.batch,
            aggregation,
            threshold=self._settings.threshold,
            inference=self._settings.inference,
            unscored=next(iter(self.items.values())).bundle.protocol.unscored,
        )

    def _record(
        self, posed: Sequence[PosedRollout], graded: Graded, local: Locals, paid: pa.Table, decisions: pa.Table
    ) -> dict[str, Mapping[type[Row], Rows]]:
        """What the trainer got of a batch, and what a training's curves are drawn from: both rewards, and where the
        flat one pays without licence."""
        answers = [
            {
                "response_id": judged.case.response_id,
                "item_id": judged.case.item_id,
                "author_id": None,
                "text": judged.case.text,
                "split": "train",
                "groups": {} if rollout.step is None else {"step": str(rollout.step)},
            }
            for judged, rollout in zip(graded.judged, posed, strict=True)
        ]
        flat = self.aggregated(local, "flat")
        gear = self.aggregated(local, "gear")
        cases = edge_cases(local.batch, flat.marginal, self.threshold)
        both = [
            reward_rows(local, flat, reward_variances(local.batch, "flat"), "flat", self._settings),
            reward_rows(local, gear, reward_variances(local.batch, "gear"), "gear", self._settings),
        ]
        return {
            TRAINER: {Responses: answers, Judgments: decisions, Rewards: paid},
            CURVES: {Rewards: pa.concat_tables(both), EdgeCases: case_rows(local, cases, "flat")},
        }


_PAID = ("reward", "low", "high")
"""What a rollout that the judge did not get to has none of, whatever the bundle says of criteria that it answered in
vain: it is neither met nor missed."""
