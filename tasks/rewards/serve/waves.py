"""Joint batches: what clients send within a few milliseconds, or while others are judged, is judged together."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypedDict

from rubricflow.tasks.rewards.serve.answered import Qualities, RolloutAnswer, TrainingRecord
from rubricflow.tasks.rewards.serve.sent import SentRollout


class PromptRow(TypedDict):
    """A row of a trainer's data set."""

    item_id: str
    prompt: Any
    """A text, or a chat."""


class Service(Protocol):
    """Poses and judges rollouts. Threads may call it at once."""

    @property
    def name(self) -> str:
        """The study, or the rubric list."""

    @property
    def aggregation(self) -> str:
        """How the reward is put together."""

    @property
    def deadline_s(self) -> float:
        """Seconds that a request may take unless it says less."""

    def pose(self, rollouts: Sequence[SentRollout], step: int | None) -> Sequence[Any]:
        """The rollouts with what they are judged by; InputError names the row of one that cannot be."""

    def judge(self, posed: Sequence[Any], until: float, is_last: bool) -> Sequence[RolloutAnswer | Unfinished]:
        """Their answers, in order; see `waves.Judge`. UserError where none can be judged: the judge or the disk has to
        be mended."""

    def prompts(self) -> list[PromptRow]:
        """The prompts of the items, for a trainer's data set."""

    def recorded(self) -> TrainingRecord:
        """What earlier servers recorded of the same training."""

    def record_quality(self, step: int, quality: Qualities) -> None:
        """Keep an evaluation of the policy on held-out items, where there is a record."""


GATHER_S = 0.005
"""Seconds for which the first rollouts wait for others."""
CONCURRENCY = 8
"""Joint batches that are judged at the same time."""
MOST_TOGETHER = 512
"""Rollouts in one joint batch, unless one request alone brings more."""
MOST_OPEN = 8_192
"""Rollouts that are taken in before clients are asked to come back later."""
MARGIN_S = 2.0
"""Seconds before its deadline at which a request is due, or less:"""
_MARGIN = 0.1
"""This share of the time that it has."""
_FINISH_S = 1.0
_LONGEST_RETRY_S = 60
_PACE = 0.3
"""Weight of the newest batch in the running mean of the pace."""


class Unfinished(NamedTuple):
    """A rollout whose judging waits for something."""

    rollout: Any
    """As it is to be judged then."""
    awaited: Sequence[Future[Any]]
    """What has to be there first."""


Judge = Callable[[Sequence[Any], float, bool], Sequence[RolloutAnswer | Unfinished]]
"""Rollouts, the time of `time.monotonic` until which replies are waited for, and whether nobody asks again: then none
stays unfinished → their answers, in order. It may take its time, but does not wait for what hangs."""


class TooBusyError(Exception):
    """There is no room; retry_s: whole seconds after which there may be, at least 1."""

    def __init__(self, retry_s: int) -> None:
        super().__init__(f"try again in {retry_s} s")
        self.retry_s = retry_s


class _Asked:
    """One request on its way."""

    def __init__(self, rollouts: Sequence[Any], until: float) -> None:
        present = time.monotonic()
        self.rollouts = list(rollouts)
        self.due = until - min(MARGIN_S, _MARGIN * max(0.0, until - present))
        """When what is not judged yet is judged for the last time, as far as it goes."""
        self.answers: list[RolloutAnswer | None] = [None] * len(rollouts)
        self.unanswered = len(rollouts)
        self.stalled: set[int] = set()
        """Places of the rollouts that wait for something, and are in no queue."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, place: int, answer: RolloutAnswer) -> None:
        """The answer of one rollout; the first one stands."""
        if self.answers[place] is None:
            self.answers[place] = answer
            self.unanswered -= 1
        if not self.unanswered and not self.done.done():
            self.done.set_result(None)

    @property
    def is_due(self) -> bool:
        """Whether it is judged for the last time."""
        return self.due <= time.monotonic()


_Waiting = tuple[_Asked, Sequence[int]]
"""A request, and the places of its rollouts that wait for a joint batch."""


class Waves:
    """Takes rollouts in and has them judged in threads, several requests in one batch. One event loop uses it.

    Each rollout has its answer when it is judged, whatever hangs next to it: what is unfinished leaves its batch, and
    joins another one when it can go on, or when its request is due.
    """

    def __init__(self, judge: Judge, most_open: int = MOST_OPEN, concurrency: int = CONCURRENCY) -> None:
        self._judge = judge
        self._most_open = most_open
        self._concurrency = concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="wave")
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[_Asked] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pace = 0.0
        self.open = 0
        """Rollouts that are waiting or being judged."""
        self.judging = 0
        """Joint batches that are being judged."""

    async def answers(self, rollouts: Sequence[Any], until: float) -> list[RolloutAnswer | None]:
        """The answers to a request's rollouts, in order; None for each whose time is over.

        until: its deadline, as `time.monotonic`. TooBusyError where there is no room for it, and what the judge raises.
        """
        self.admit(len(rollouts))
        asked = _Asked(rollouts, until)
        loop = asyncio.get_running_loop()
        self._asked.add(asked)
        self.open += len(rollouts)
        self._queue(asked, range(len(rollouts)))

        def fall_due() -> None:
            for place in sorted(asked.stalled):
                self._go_on(asked, place)

        due = loop.call_later(max(0.0, asked.due - time.monotonic()), fall_due)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await asked.done
        except TimeoutError:
            pass
        finally:
            due.cancel()
            asked.done.cancel()
            self._asked.discard(asked)
            if asked.unanswered:
                self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not asked)
            self.open -= len(rollouts)
        return asked.answers

    def admit(self, count: int) -> None:
        """TooBusyError where so many more rollouts find no room. One request alone is always taken."""
        if self.open and self.open + count > self._most_open:
            seconds = (self.open + count - self._most_open) / self._pace if self._pace else 1.0
            raise TooBusyError(max(1, min(_LONGEST_RETRY_S, math.ceil(seconds))))

    async def finish(self) -> None:
        """Waits until all that was taken in is answered, and gives the threads back."""
        while self._asked or self._tasks:
            await asyncio.wait([*(asked.done for asked in self._asked), *self._tasks], timeout=_FINISH_S)
        self._threads.shutdown()

    def _queue(self, asked: _Asked, places: Sequence[int]) -> None:
        """For the next joint batch, which begins in a moment where a thread is free."""
        self._waiting.append((asked, places))
        if self._timer is None and self.judging < self._concurrency:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._begin)

    def _begin(self) -> None:
        """Begins joint batches, each of requests in the order in which they came; all of them are due, or none."""
        self._timer = None
        while self._waiting and self.judging < self._concurrency:
            together = [self._waiting.popleft()]
            is_last = together[0][0].is_due
            size = len(together[0][1])
            while self._waiting and size + len(self._waiting[0][1]) <= MOST_TOGETHER:
                if self._waiting[0][0].is_due != is_last:
                    break
                together.append(self._waiting.popleft())
                size += len(together[-1][1])
            self.judging += 1
            task = asyncio.get_running_loop().create_task(self._judged(together))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _judged(self, together: list[_Waiting]) -> None:
        pairs = [(asked, place) for asked, places in together for place in places]
        rollouts = [asked.rollouts[place] for asked, place in pairs]
        until = max(asked.due for asked, _ in together)
        is_last = all(asked.is_due for asked, _ in together)
        begin = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._threads, self._judge, rollouts, until, is_last)
            for (asked, place), result in zip(pairs, results, strict=True):
                if isinstance(result, Unfinished):
                    self._stall(asked, place, result)
                else:
                    asked.take(place, result)
            if answered := sum(not isinstance(result, Unfinished) for result in results):
                pace = answered / max(1e-3, time.monotonic() - begin) * max(1, self.judging)
                self._pace = _PACE * pace + (1 - _PACE) * self._pace if self._pace else pace
        except Exception as error:
            for asked, _ in together:
                if not asked.done.done():
                    asked.done.set_exception(error)
        finally:
            self.judging -= 1
            if self._waiting:
                self._begin()

    def _stall(self, asked: _Asked, place: int, unfinished: Unfinished) -> None:
        """A rollout joins another batch when all is there that it waits for, or when it is due."""
        asked.rollouts[place] = unfinished.rollout
        missing = [awaited for awaited in unfinished.awaited if not awaited.done()]
        asked.stalled.add(place)
        if not missing or asked.is_due:
            self._go_on(asked, place)
            return
        loop = asyncio.get_running_loop()
        left = len(missing)

        def one_less() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._go_on(asked, place)

        def tell(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the server has stopped meanwhile
                loop.call_soon_threadsafe(one_less)

        for awaited in missing:
            awaited.add_done_callback(tell)

    def _go_on(self, asked: _Asked, place: int) -> None:
        if place in asked.stalled and asked in self._asked:
            asked.stalled.discard(place)
            self._queue(asked, [place])
