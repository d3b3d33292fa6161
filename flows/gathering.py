"""Single rollouts put into batches: verl asks for one at a time, and a judge is fast with many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rubricflow.flows.rollouts import Rollout

GATHER_S = 0.005
"""How long the first of several single rollouts waits for the others."""
BATCHES = 8
"""How many batches of single rollouts are judged at once."""


class Gathering:
    """Puts single rollouts that come within a few milliseconds, or while `BATCHES` others are judged, into one
    batch."""

    def __init__(self, score: Callable[[Sequence[Rollout]], list[float | None]]) -> None:
        self._score = score
        self._judging, self._gate = threading.BoundedSemaphore(BATCHES), threading.Lock()
        self._waiting: list[tuple[Rollout, Future[float | None]]] = []

    def soon(self, rollout: Rollout) -> Future[float | None]:
        """The reward that the rollout will have."""
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
                waiting, self._waiting = self._waiting, []
            waiting = [(rollout, future) for rollout, future in waiting if future.set_running_or_notify_cancel()]
            try:
                rewards = self._score([rollout for rollout, _ in waiting])
            except BaseException as error:  # each caller is told; there is nobody else in this thread
                for _, future in waiting:
                    future.set_exception(error)
                return
        for (_, future), reward in zip(waiting, rewards, strict=True):
            future.set_result(reward)
