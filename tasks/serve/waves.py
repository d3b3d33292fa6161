"""Joint batches: what clients send within a few milliseconds, or while others are judged, is judged together."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tasks.serve.answered import RolloutAnswer

GATHER_S = 0.005
"""Seconds for which the first rollouts wait for others."""
AT_ONCE = 8
"""Joint batches that are judged at the same time."""
MOST_TOGETHER = 512
"""Rollouts in one joint batch, unless one request alone brings more."""
MOST_OPEN = 8_192
"""Rollouts that are taken in before clients are asked to come back later."""
_LONGEST_RETRY_S = 60
_PACE = 0.3
"""Weight of the newest batch in the running mean of the pace."""

Judge = Callable[[Sequence[Any], float], list[RolloutAnswer]]
"""Rollouts, and the time of `time.monotonic` until which replies are waited for → their answers, in order."""


class TooBusyError(Exception):
    """There is no room; retry_s: whole seconds after which there may be, at least 1."""

    def __init__(self, retry_s: int) -> None:
        super().__init__(f"try again in {retry_s} s")
        self.retry_s = retry_s


class TooLateError(Exception):
    """A request's time is over; its rollouts are still judged as far as they were begun, and their replies kept."""


class _Waiting(NamedTuple):
    rollouts: Sequence[Any]
    until: float
    future: asyncio.Future[list[RolloutAnswer]]


class Waves:
    """Takes rollouts in and has them judged in threads, several requests in one batch. One event loop uses it."""

    def __init__(self, judge: Judge, most_open: int = MOST_OPEN, at_once: int = AT_ONCE) -> None:
        self._judge, self._most_open, self._at_once = judge, most_open, at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="wave")
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pace = 0.0
        self.open = 0
        """Rollouts that are waiting or being judged."""
        self.judging = 0
        """Joint batches that are being judged."""

    async def answers(self, rollouts: Sequence[Any], until: float) -> list[RolloutAnswer]:
        """The answers to a request's rollouts, in order.

        until: its deadline, as `time.monotonic`. TooBusyError where there is no room for it, TooLateError where its
        time is over first, and what the judge raises.
        """
        self.admit(len(rollouts))
        future: asyncio.Future[list[RolloutAnswer]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(rollouts, until, future))
        self.open += len(rollouts)
        self._soon()
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await asyncio.shield(future)
        except TimeoutError as error:
            raise TooLateError from error
        finally:
            future.add_done_callback(_seen)
            self._leave_queue(future)

    def admit(self, count: int) -> None:
        """TooBusyError where so many more rollouts find no room. One request alone is always taken."""
        if self.open and self.open + count > self._most_open:
            seconds = (self.open + count - self._most_open) / self._pace if self._pace else 1.0
            raise TooBusyError(max(1, min(_LONGEST_RETRY_S, math.ceil(seconds))))

    async def finish(self) -> None:
        """Waits until all that was taken in is answered, and gives the threads back."""
        while self._waiting or self._tasks:
            self._begin()
            await asyncio.wait(set(self._tasks))
        self._threads.shutdown()

    def _soon(self) -> None:
        """Begins a joint batch in a moment, where a thread is free."""
        if self._timer is None and self.judging < self._at_once:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        while self._waiting and self.judging < self._at_once:
            together = self._next()
            self.judging += 1
            task = asyncio.get_running_loop().create_task(self._judged(together))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self) -> list[_Waiting]:
        """The requests of the next joint batch, in the order in which they came."""
        together = [self._waiting.popleft()]
        size = len(together[0].rollouts)
        while self._waiting and size + len(self._waiting[0].rollouts) <= MOST_TOGETHER:
            together.append(self._waiting.popleft())
            size += len(together[-1].rollouts)
        return together

    async def _judged(self, together: list[_Waiting]) -> None:
        rollouts = [rollout for request in together for rollout in request.rollouts]
        until = max(request.until for request in together)
        begin = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._threads, self._judge, rollouts, until)
            self._learn_pace(len(rollouts) / max(1e-3, time.monotonic() - begin))
            _hand_out(together, answers)
        except Exception as error:
            for request in together:
                if not request.future.done():
                    request.future.set_exception(error)
        finally:
            self.judging -= 1
            self.open -= len(rollouts)
            if self._waiting:
                self._begin()

    def _learn_pace(self, rollouts_per_second: float) -> None:
        pace = rollouts_per_second * max(1, self.judging)
        self._pace = _PACE * pace + (1 - _PACE) * self._pace if self._pace else pace

    def _leave_queue(self, future: asyncio.Future[list[RolloutAnswer]]) -> None:
        """A request that is over is not judged, unless that was begun."""
        for request in self._waiting:
            if request.future is future:
                self._waiting.remove(request)
                self.open -= len(request.rollouts)
                return


def _hand_out(together: Sequence[_Waiting], answers: Sequence[RolloutAnswer]) -> None:
    """Each request gets its part."""
    first = 0
    for request in together:
        last = first + len(request.rollouts)
        if not request.future.done():
            request.future.set_result(list(answers[first:last]))
        first = last


def _seen(future: asyncio.Future[list[RolloutAnswer]]) -> None:
    """Takes note of an error that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
