"""Rewards of rollouts: judged, put together and recorded as the flow `reward` does it, batch by batch, in any number
of threads and processes."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.graph import Aggregation, Graph, Reward
from tasks.contracts.reward_tables import Rewards
from tasks.contracts.table import Row
from tasks.contracts.tables import Judgments, Responses
from tasks.judge.grade import grade_batch
from tasks.judge.keep import KEEPING
from tasks.judge.rows import Case, Rater, judgments
from tasks.llm.ask import Wave
from tasks.llm.replies import ReplyStore
from tasks.reward.aggregate import aggregate
from tasks.reward.factors import Factors
from tasks.reward.local import local_scores
from tasks.reward.rows import rewards as reward_rows
from tasks.reward.wire import wire
from tasks.store.warehouse import Rows, Run
from tasks.text.units import units

CRITERIA_PER_CALL = 4
"""As many as GEAR's reward judge gets at once."""
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


class _Opened(NamedTuple):
    """What one process judges with."""

    process: int
    rater: Rater
    store: ReplyStore
    name: str
    """Unlike that of any other process: its batches are recorded under it."""
    batches: Iterator[int]
    """Their numbers."""


class RolloutReward:
    """The reward of rollouts under the rubrics of their items. One batch at a time is judged; more threads wait. It can
    be pickled, and opens its own backend and reply store in each process at the first batch there."""

    last: Cost | None = None
    """What the last batch took; None before the first."""
    _opened: _Opened | None = None
    _own: ClassVar[tuple[str, ...]] = ("_judging", "_opened", "last")
    """What belongs to this process and is not sent to another."""

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
        self._begin()

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """The reward of each rollout, None where there is none."""
        return self._rewarded(rollouts, None)[0]

    def close(self) -> None:
        """Gives the reply store back; the next batch opens it again."""
        with self._judging:
            if self._opened and self._opened.process == os.getpid():
                self._opened.store.close()
            self._opened = None

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
        self._judging = threading.Lock()

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
            reference_answer=item.get("reference_answer"),
        )


def _asked(name: str, bundle: Bundle, criteria_per_call: int | None) -> Bundle:
    """The bundle as rollouts are judged under it."""
    if bundle.protocol.name == "bottleneck":  # a trained grader decides all criteria at once
        return bundle
    if bundle.protocol.name not in KEEPING:
        rule = f"rubric '{name}': protocol '{bundle.protocol.name}' decides no single criteria"
        raise InputError(rule, field="judge.protocol", hint=f"use {', '.join(sorted(KEEPING))}")
    changed: dict[str, Any] = {"show_weights": False}
    if criteria_per_call is not None:
        if criteria_per_call < 1:
            raise InputError(f"{criteria_per_call} criteria in a call", field="criteria_per_call")
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})


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
