"""Shards of judging shared out to workers: what is sent, and what is said of it while they work."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.contracts.backends import speaks
from tasks.contracts.settings.judge import Judge
from tasks.judge.assignment import Assignment, SentAssignment, ShardCounts
from tasks.judge.cut import Shard, cut, cut_stage
from tasks.llm.calls import in_words, pace
from tasks.llm.stores import is_database
from tasks.store.manifest import code_digest
from tasks.store.warehouse import Run, Warehouse
from tasks.store.workers import from_anywhere

_STEPS = 16
"""Steps in which a worker draws its equal part of a token budget."""


def at_once(plan: Judge, room: int, shards: int) -> int:
    """How many shards are judged side by side: as many as there is room for, and not more than the server takes
    calls."""
    calls = plan.engine.concurrency if plan.engine else room
    return max(1, min(room, shards, calls))


def sent_off(assignment: Assignment, shards: Sequence[Shard], workers: int, token_budget: int | None) -> SentAssignment:
    """The assignment as workers get it: its shards are cut, and the budget is in the ledger's purse."""
    run = _absolute(assignment.run)
    inputs = cut_stage(assignment.responses, bool(assignment.plan.consistency_memory))
    cut(run, assignment.responses, inputs, shards)
    ledger = ledger_place(assignment.plan, run.warehouse)
    purse = None
    if token_budget is not None and ledger is not None:
        purse = f"{run.run_id} {assignment.stage} {secrets.token_hex(8)}"
    _make_ledger(ledger, purse, token_budget or 0)
    return SentAssignment(
        assignment=replace(assignment, run=run, base=assignment.base.resolve()),
        inputs=inputs,
        workers=workers,
        ledger=ledger,
        purse=purse,
        step=max(1, (token_budget or 0) // (_STEPS * workers)),
        code=code_digest(),
    )


def ledger_place(plan: Judge, warehouse: Warehouse) -> Path | str | None:
    """Where workers count together: in the database of the replies, else in a file beside them. None where there is
    none, and nobody is asked."""
    if warehouse.mirrored and not speaks(plan):
        return None
    place = warehouse.replies
    return str(place) if is_database(place) else Path(place).absolute().with_name("ledger.sqlite")


def _make_ledger(place: Path | str | None, purse: str | None, tokens: int) -> None:
    """Makes the ledger, with a purse that holds the budget where there is one."""
    if place is None:
        return
    from tasks.llm.ledger import CallLedger  # and so SQLAlchemy, which no run of one process needs

    ledger = CallLedger(place)
    ledger.make()
    if purse is not None:
        ledger.fill(purse, tokens)
    ledger.close()


def _absolute(run: Run) -> Run:
    """The same run and its replies, found from any working directory."""
    run = from_anywhere(run)
    named = run.warehouse.replies_named
    if not named or is_database(named):
        return run
    return replace(run.warehouse, replies_named=str(Path(named).absolute())).run(run.run_id)


class ShardProgress:
    """Counts finished shards and says a line for each."""

    def __init__(
        self,
        stage: str,
        shards: Sequence[Shard],
        samples: int,
        say: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """shards: those to judge; samples: repetitions of each response. say: takes the line and the share that is
        done. clock: seconds."""
        self._stage, self._say, self._clock = stage, say, clock
        self._total = samples * sum(shard.responses for shard in shards)
        self._shards, self._begun = len(shards), clock()
        self.shards_ended, self._counts = 0, ShardCounts()

    def ended(self, counts: ShardCounts) -> None:
        """A shard is judged."""
        self.shards_ended, self._counts = self.shards_ended + 1, self._counts.plus(counts)
        self._say(self._line(), self.shards_ended / self._shards)

    def _line(self) -> str:
        counts, seconds = self._counts, self._clock() - self._begun
        seconds_left = seconds / self.shards_ended * (self._shards - self.shards_ended)
        rate = f", {pace(counts.responses / seconds)}/s" if counts.responses and seconds > 0 else ""
        time_left = f", about {in_words(seconds_left)} left" if seconds_left else ""
        tokens = f", {counts.tokens:,} tokens" if counts.tokens else ""
        requests = f", {counts.requests:,} requests to the store" if counts.requests else ""
        judged = f"{counts.responses:,}/{self._total:,} responses"
        shards = f"{self.shards_ended:,}/{self._shards:,} shards"
        calls = f"{counts.calls:,} calls, {counts.reused:,} replies reused, {counts.unscored:,} unscored"
        return f"{self._stage}: {shards}, {judged}{rate}, {calls}{tokens}{requests}{time_left}"
