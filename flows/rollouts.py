"""Rewards of rollouts: judged, put together and recorded as the flow `reward` does it, batch by batch, in any number
of threads and processes."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar, NamedTuple, Self, get_args

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.flows.batch import (
    Cost,
    JudgedBatch,
    PosedRollout,
    PreparedItem,
    UnfinishedRollout,
    finished,
    prepared_items,
    unfinished,
    unscored_rule,
)
from rubricflow.flows.checks import check_aggregation, check_name, check_number, check_record, check_share, meant
from rubricflow.flows.failures import UNKNOWN, OnFailure, Watch, troubles
from rubricflow.flows.judged_again import chosen_share, judged_again, second_judging, worth_repeating
from rubricflow.flows.recorder import CURVES, REPEATS, TRAINER, Recorder
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, StoppedError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, EdgeCases, Rewards
from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.backend import Backend, Steady, kept_open
from rubricflow.tasks.core.llm.calls import InFlight
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Case, Graded, Rater, judgments
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate, weights_of_doubts
from rubricflow.tasks.rewards.reward.factors import Factors
from rubricflow.tasks.rewards.reward.leakage import edge_cases
from rubricflow.tasks.rewards.reward.local import Locals, local_scores
from rubricflow.tasks.rewards.reward.rows import cases as case_rows
from rubricflow.tasks.rewards.reward.rows import rewards as reward_rows

CRITERIA_PER_CALL = 4
"""As many as GEAR's reward judge gets at once."""
DEADLINE_S = 300.0
"""Seconds for a batch: long for a busy judge, and a fraction of what a hung call may take with its retries."""
MOST_UNSCORED = 0.2
"""Share of rollouts without a reward that says that the judge, and not a rollout here and there, is at fault."""
_logger = logging.getLogger(__name__)


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
        items: Iterable[Mapping[str, Any]],
        bundles: Mapping[str, Bundle],
        graphs: Mapping[str, Graph],
        settings: Reward,
        open_rater: Callable[[Replies], Rater],
        aggregation: Aggregation = "gear",
        *,
        criteria_per_call: int | None = CRITERIA_PER_CALL,
        replies: str | Path = ":memory:",
        record: Run | None = None,
        factors: Factors | None = None,
        on_failure: OnFailure = "stop",
        deadline: float = DEADLINE_S,
        most_unscored: float = MOST_UNSCORED,
        judged_twice: float = 0.0,
        further_calls: float = 0.0,
    ) -> None:
        """All that does not need the judge is checked here.

        items: rows of the table `items`, of which item_id, rubric_id, question and context are used.
        bundles, graphs: rubric → its bundle and its graph.
        open_rater: the reply store → who judges; called once in each process, so it must be picklable to be sent there.
        criteria_per_call: rollouts are judged pointwise with so many criteria in a call; None: as the bundles say. The
            judge never sees the weights.
        replies: file of the reply store.
        record: a run into which every batch is written: its rollouts, judgments and rewards, under stage `trainer`;
            complete when the reward is closed, see `flows.recorder`.
        factors: rubric → (parent, child) → retention factor of this edge in place of its relation's.
        on_failure: what happens where the judge is down or out of time, or too much is unscored; see `Watch`.
        deadline: seconds for one batch; what is not answered then is given up, and has no reward.
        most_unscored: share of the last rollouts without a reward, in (0, 1], that is still borne.
        judged_twice: share of the rollouts, in [0, 1], that are judged a second time at the same time, to see how far
            the judge agrees with itself; no reward depends on it.
        further_calls: further calls for a rollout in the mean, from 0 on. A batch's go to the calls whose criteria
            leave its rewards most in doubt; what they are worth is the mean of both replies. Pays only where the judge
            draws its replies, that is at a temperature above 0.
        InputError, ContractError and StoreError for a setting that cannot be, an item without bundle or graph, a bundle
        that decides no single criteria, a graph too wide for exact inference, and files that cannot be written.
        """
        check_aggregation(aggregation)
        check_name(on_failure, get_args(OnFailure), "on_failure")
        check_number(deadline, "deadline")
        check_number(most_unscored, "most_unscored", high=1)
        check_share(judged_twice, "judged_twice")
        check_record(record)
        if further_calls != 0:
            check_number(further_calls, "further_calls")
        rules = settings if aggregation == "gear" else settings.model_copy(update={"inference": "topological"})
        self.items = prepared_items(items, bundles, graphs, rules, criteria_per_call, factors)
        self._unscored = unscored_rule(self.items.values())
        self._settings, self.aggregation = settings, aggregation
        self._open_rater, self._replies, self._record = open_rater, str(replies), record
        self._on_failure, self.deadline, self._most_unscored = on_failure, deadline, most_unscored
        self._judged_twice, self._further_calls = judged_twice, further_calls
        self.__name__ = f"rubric_{aggregation}"
        open_replies(self._replies).close()  # or it cannot be used, and that is said now
        self._begin()

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """The reward of each rollout, None where there is none."""
        return [rewarded.reward for rewarded in self.score_with_variance(rollouts)]

    def score_with_variance(self, rollouts: Sequence[Rollout]) -> list[VariedReward]:
        """The reward of each rollout and how far it would vary with the judge's own doubts, for a trainer that trusts
        doubtful rewards less."""
        batch = self._rewarded(rollouts, None)
        return list(map(VariedReward, batch.rewards, batch.variances)) if batch else []

    @property
    def record(self) -> Run | None:
        """The run that every batch is written into."""
        return self._record

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

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        """What this process has for itself."""
        self._processes: dict[int, Process] = {}

    @property
    def _here(self) -> Process:
        watch = Watch(self.__name__, self._on_failure, self._most_unscored)
        return self._processes.setdefault(os.getpid(), Process(watch))

    def _open(self) -> Opened:
        store = open_replies(self._replies)
        name = secrets.token_hex(4)
        recorder = Recorder(self._record) if self._record is not None else None
        return Opened(self._open_rater(store), store, (f"{name}-{number:06d}" for number in count()), recorder)

    def _known(self, rollout: Rollout) -> PreparedItem:
        """The item that a rollout answers."""
        item = self.items.get(rollout.item_id)
        if item is None:
            hint = meant(rollout.item_id, self.items)
            raise InputError(f"there is no item '{rollout.item_id}'", field="item_id", hint=hint)
        return item

    def _rewarded(self, rollouts: Sequence[Rollout], step: int | None) -> JudgedBatch | None:
        """A batch, judged, put together, watched and recorded; None where there is nothing to judge."""
        posed = [PosedRollout(self._known(rollout), rollout.text, step) for rollout in rollouts]
        if not posed:
            return None
        batch, _ = self.judged_so_far(posed, monotonic() + self.deadline, None, 0.0, is_last=True)
        assert batch is not None  # nothing stays unfinished
        self.last = batch.cost
        _logger.info("%s: %s", self.__name__, batch.cost)
        return batch

    def judged_so_far(
        self,
        posed: Sequence[PosedRollout],
        until: float,
        in_flight: InFlight | None,
        patience_s: float,
        *,
        is_last: bool,
    ) -> tuple[JudgedBatch | None, dict[int, UnfinishedRollout]]:
        """The batch of those rollouts whose calls are answered before no reply has come for so many seconds, judged,
        put together, watched and recorded; None where there are none. The others by their place: their calls go on in
        `in_flight`, where the next batch with them finds the replies.

        until: time of `time.monotonic` after which no reply is waited for. is_last: nothing stays unfinished, and what
        is not answered has no reward. Without `in_flight` all calls are waited for until their time is over.
        """
        start = perf_counter()
        with self._here.judging(self._open) as (who, store, shards, recorder):
            shard = next(shards)
            cases = [_case(f"{shard}-{number:04d}", rollout) for number, rollout in enumerate(posed)]
            waves: list[Wave] = []

            def through(backend: Backend) -> Backend:
                return in_flight.around(backend, patience_s, is_last) if in_flight else backend

            judging = partial(self._graded, store=store, on_wave=waves.append, until=until, through=through)
            with second_judging(chosen_share(cases, self._judged_twice), who, judging) as again:
                graded = judging(cases, who)
            repeats = again.result()
            open_ = unfinished([graded, repeats] if repeats else [graded], in_flight) if in_flight else {}
            left = {place: open_[case.response_id] for place, case in enumerate(cases) if case.response_id in open_}
            if len(left) == len(cases):
                return None, left
            if left:
                posed = [rollout for place, rollout in enumerate(posed) if place not in left]
                cases = [case for place, case in enumerate(cases) if place not in left]
                graded, repeats = finished(graded, open_), finished(repeats, open_) if repeats else None
            decisions = judgments(who, graded.judged)
            local = self._local(decisions, cases, posed)
            if self._further_calls:
                weights = weights_of_doubts(local.batch, self.aggregation, self._settings)
                calls = round(self._further_calls * len(posed))
                doubtful = worth_repeating(graded.judged, local.batch, weights, calls)
                asking = partial(judging, who=repeated(who, 2)[1])
                local, more = judged_again(graded, local, doubtful, asking, partial(self._local, posed=posed))
                decisions = pa.concat_tables([decisions, *more])
            lost = troubles(graded)
            rows = self._reward_rows(local, [response for response, trouble in lost.items() if trouble.is_failure])
            paid = {row["response_id"]: row for row in rows.select(["response_id", *VARIED]).to_pylist()}
            rewards, variances = ([paid[case.response_id][column] for case in cases] for column in VARIED)
            missing = [
                lost.get(case.response_id, UNKNOWN) if reward is None else None
                for case, reward in zip(cases, rewards, strict=True)
            ]
            self._here.watch.note(missing)
            if recorder is not None:
                answers = [
                    {
                        "response_id": case.response_id,
                        "item_id": case.item_id,
                        "author_id": None,
                        "text": case.text,
                        "split": "train",
                        "groups": {} if rollout.step is None else {"step": str(rollout.step)},
                    }
                    for case, rollout in zip(cases, posed, strict=True)
                ]
                trained_on: dict[type[Row], Rows] = {Responses: answers, Judgments: decisions, Rewards: rows}
                tables: dict[str, Mapping[type[Row], Rows]] = {TRAINER: trained_on, CURVES: self._compared(local)}
                if repeats:
                    tables[REPEATS] = {Judgments: judgments(repeats.rater, repeats.judged)}
                recorder.add(shard, tables)
        cost = Cost(
            rollouts=len(rewards),
            unscored=sum(reward is None for reward in rewards),
            calls=sum(wave.asked for wave in waves),
            prompt_tokens=sum(wave.prompt_tokens for wave in waves),
            completion_tokens=sum(wave.completion_tokens for wave in waves),
            seconds=perf_counter() - start,
        )
        return JudgedBatch(graded, local, rewards, variances, missing, cost, repeats), left

    def _graded(
        self,
        cases: Sequence[Case],
        who: Rater,
        store: Replies,
        on_wave: Callable[[Wave], None],
        until: float,
        through: Callable[[Backend], Backend],
    ) -> Graded:
        """The batch, graded as far as its time and the judge go; BackendError where that has to be mended first."""
        mender = Steady(through(who.mender)) if who.mender else None
        patient = replace(who, backend=Steady(through(who.backend)), mender=mender, until=until)
        try:
            return grade_batch(cases, patient, store, on_wave)
        except StoppedError as error:
            rule = (
                "no batch can be judged before that is mended, whatever on_failure says; go on from the last checkpoint"
            )
            raise BackendError(f"{self.__name__}: {error.reason}; {rule} then (replies that came are kept)") from error

    def _local(self, decisions: pa.Table, cases: Sequence[Case], posed: Sequence[PosedRollout]) -> Locals:
        """What each rollout's criteria are worth on their own."""
        items = [rollout.item for rollout in posed]
        return local_scores(
            decisions,
            {case.response_id: case.item_id for case in cases},
            {item.row["item_id"]: item.row["rubric_id"] for item in items},
            {item.row["rubric_id"]: item.bundle for item in items},
            {item.row["rubric_id"]: item.compiled for item in items},
            self._settings.local,
        )

    def aggregated(self, local: Locals, aggregation: Aggregation) -> Aggregated:
        """Rewards and shares of a judged batch by any aggregation."""
        return aggregate(
            local.batch,
            aggregation,
            threshold=self._settings.threshold,
            inference=self._settings.inference,
            unscored=self._unscored,
        )

    def _compared(self, local: Locals) -> dict[type[Row], Rows]:
        """What a training's curves are drawn from: both rewards, and where the flat one pays without licence."""
        both = {name: self.aggregated(local, name) for name in COMPARED}
        cases = edge_cases(local.batch, both["flat"].marginal, self.threshold)
        rewards = [part for name, worth in both.items() for part in reward_rows(local, worth, name, self._settings)]
        return {Rewards: pa.concat_tables(rewards), EdgeCases: pa.concat_tables(case_rows(local, cases, "flat"))}

    def _reward_rows(self, local: Locals, failed: Sequence[str]) -> pa.Table:
        """The rows of the table `rewards`, with no reward for the responses that failed: what the judge did not get to
        is neither met nor missed, whatever the bundle says of criteria that it answered in vain."""
        worth = self.aggregated(local, self.aggregation)
        rows = pa.concat_tables(reward_rows(local, worth, self.aggregation, self._settings))
        gone = pc.is_in(rows["response_id"], pa.array(failed, pa.string()))
        for name in ("reward", "low", "high", "reward_variance"):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.field(at), pc.if_else(gone, None, rows[name]))
        return rows


VARIED = ("reward", "reward_variance")
COMPARED: tuple[Aggregation, ...] = ("flat", "gear")


def _case(name: str, rollout: PosedRollout) -> Case:
    item = rollout.item
    text = rollout.text.encode("utf-8", "replace").decode()  # half a surrogate pair fits into no table
    return Case(
        response_id=name,
        item_id=item.row["item_id"],
        text=text,
        units=tuple(units(text)),
        question=item.row["question"],
        context=item.row.get("context"),
        bundle=item.bundle,
        bundle_id=item.bundle_id,
        reference_answer=item.row.get("reference_answer"),
    )
