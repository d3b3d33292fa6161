"""Rewards of rollouts: judged, put together and recorded as the flow `reward` does it, batch by batch, in any number
of threads and processes."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from flows.batch import Cost, cost_of, responses, without
from flows.checks import check_aggregation, check_number, check_on_failure, check_record, checked_items, meant
from flows.failures import UNKNOWN, OnFailure, Watch, troubles
from flows.process import Opened, Process
from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import BackendError, InputError, StoppedError
from tasks.contracts.graph import Graph
from tasks.contracts.protocols import PROTOCOLS, protocols_where
from tasks.contracts.schema import Row
from tasks.contracts.settings.reward import Aggregation, Reward
from tasks.contracts.tables.data import Responses
from tasks.contracts.tables.judging import Judgments
from tasks.contracts.tables.reward import Rewards
from tasks.judge.grade import grade_batch
from tasks.judge.rows import Case, Graded, Rater, judgments
from tasks.llm.ask import Wave
from tasks.llm.kept import Replies
from tasks.llm.steady import Steady
from tasks.llm.stores import open_replies
from tasks.reward.aggregate import aggregate
from tasks.reward.exact import check_widths
from tasks.reward.factors import Factors
from tasks.reward.local import local_scores
from tasks.reward.rows import rewards as reward_rows
from tasks.reward.wire import wire
from tasks.store.shards import Rows
from tasks.store.warehouse import Run
from tasks.text.units import units

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


class Drawn(NamedTuple):
    """What the rollouts of a study are rewarded by."""

    items: list[dict[str, Any]]
    bundles: dict[str, Bundle]
    graphs: dict[str, Graph]


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
        on_failure: what happens where the judge is down or out of time, or too much is unscored; see `Watch`.
        deadline: seconds for one batch; what is not answered then is given up, and has no reward.
        most_unscored: share of the last rollouts without a reward, in (0, 1], that is still borne.
        InputError, ContractError and StoreError for a setting that cannot be, an item without bundle or graph, a bundle
        that decides no single criteria, a graph too wide for exact inference, and files that cannot be written.
        """
        check_aggregation(aggregation)
        check_on_failure(on_failure)
        check_number(deadline, "deadline", 0)
        check_number(most_unscored, "most_unscored", 0, 1)
        check_record(record)
        self._items = checked_items(items)
        used = sorted({row["rubric_id"] for row in self._items.values()})
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
        if aggregation == "gear" and settings.inference == "exact":
            check_widths(self._wired.values())
        self._rubric_of = {name: row["rubric_id"] for name, row in self._items.items()}
        self._bundle_ids = {name: bundle.bundle_id for name, bundle in self._bundles.items()}
        self._settings, self._aggregation = settings, aggregation
        self._open_rater, self._replies, self._record = open_rater, str(replies), record
        self._on_failure, self._deadline, self._most_unscored = on_failure, deadline, most_unscored
        self.__name__ = f"rubric_{aggregation}"
        open_replies(self._replies).close()  # or it cannot be used, and that is said now
        self._begin()

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """The reward of each rollout, None where there is none."""
        return self._rewarded(rollouts, None)[0]

    @property
    def unscored(self) -> dict[str, int]:
        """How many rollouts of this process have no reward until now, by reason."""
        return dict(self._here.watch.unscored)

    def close(self) -> None:
        """Gives the reply store back when the batches under way are done; the next batch opens it again."""
        self._here.close()

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
        return Opened(self._open_rater(store), store, secrets.token_hex(4), count())

    def _known(self, rollout: Rollout) -> None:
        if rollout.item_id not in self._items:
            hint = meant(rollout.item_id, self._items)
            raise InputError(f"there is no item '{rollout.item_id}'", field="item_id", hint=hint)

    def _rewarded(self, rollouts: Sequence[Rollout], step: int | None) -> tuple[list[float | None], Cost | None]:
        """Rewards and cost of a batch; no cost where there is nothing to judge."""
        for rollout in rollouts:
            self._known(rollout)
        if not rollouts:
            return [], None
        start = perf_counter()
        with self._here.judging(self._open) as (who, store, name, batches):
            shard = f"{name}-{next(batches):06d}"
            cases = [self._case(f"{shard}-{n:04d}", rollout) for n, rollout in enumerate(rollouts)]
            waves: list[Wave] = []
            graded = self._graded(cases, who, store, waves.append)
            lost = troubles(graded)
            judged = judgments(who, graded.judged)
            rows = self._aggregated(judged, {case.response_id: case.item_id for case in cases})
            rows = without(rows, [response for response, trouble in lost.items() if trouble.is_failure])
            paid = dict(zip(rows["response_id"].to_pylist(), rows["reward"].to_pylist(), strict=True))
            rewards = [paid[case.response_id] for case in cases]
            of_each = [lost.get(case.response_id, UNKNOWN) for case in cases]
            missing = [trouble if reward is None else None for trouble, reward in zip(of_each, rewards, strict=True)]
            self._here.watch.note(missing)
            if self._record is not None:
                tables: dict[type[Row], Rows] = {Responses: responses(cases, step), Judgments: judged, Rewards: rows}
                self._record.commit("trainer", shard, tables)
        cost = cost_of(rewards, waves, perf_counter() - start)
        self.last = cost
        _logger.info("%s: %s", self.__name__, cost)
        return rewards, cost

    def _graded(self, cases: Sequence[Case], who: Rater, store: Replies, on_wave: Callable[[Wave], None]) -> Graded:
        """The batch, graded as far as its time and the judge go; BackendError where that has to be mended first."""
        mender = Steady(who.mender) if who.mender else None
        until = monotonic() + self._deadline
        try:
            return grade_batch(
                cases, replace(who, backend=Steady(who.backend), mender=mender, until=until), store, on_wave
            )
        except StoppedError as error:
            rule = (
                "no batch can be judged before that is mended, whatever on_failure says; go on from the last checkpoint"
            )
            raise BackendError(f"{self.__name__}: {error.reason}; {rule} then (replies that came are kept)") from error

    def _aggregated(self, judged: pa.Table, item_of: Mapping[str, str]) -> pa.Table:
        """The rows of the table `rewards`."""
        settings = self._settings
        locals_ = local_scores(judged, item_of, self._rubric_of, self._bundles, self._wired, settings.local)
        found = aggregate(
            locals_.batch,
            self._aggregation,
            threshold=settings.threshold,
            inference=settings.inference,
            unscored=self._unscored,
        )
        return reward_rows(locals_, found, self._aggregation, settings)

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
    known = PROTOCOLS[bundle.protocol.name]
    if known.is_trained:
        return bundle
    if not known.keeps_decisions:
        rule = f"rubric '{name}': protocol '{bundle.protocol.name}' decides no single criteria"
        raise InputError(rule, field="judge.protocol", hint=f"use {protocols_where(lambda of: of.keeps_decisions)}")
    changed: dict[str, Any] = {"show_weights": False}
    if criteria_per_call is not None:
        check_number(criteria_per_call, "criteria_per_call", 0, whole=True)
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})
