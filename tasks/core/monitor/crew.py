"""The workers of a cluster while a flow shares work out to them: piece by piece, and what is said where they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from prefect.futures import PrefectFuture

from rubricflow.tasks.core.contracts.errors import BackendError, UserError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.monitor.runs import WatchedTask, log

# Workers that are all gone: what is said while none is left, and when a run stops waiting for them.

SAID_AFTER_S = 10.0
"""For how long a cluster may be without workers before it is said: a restarted one comes back within seconds."""
STOPPED_AFTER_S = 300.0
"""For how long it may be without them before the run stops."""


class Absence:
    """How long a cluster has been without workers. Threads may share it."""

    def __init__(
        self, cluster: str, how: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """cluster: as it is called in sentences. how: commands that start workers. clock: seconds."""
        self._cluster, self._how, self._say, self._clock = cluster, how, say, clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._is_said = False

    def look(self, workers: int) -> None:
        """Take in how many workers there are now. Says once that there are none, and once that some are back;
        BackendError when there were none for `STOPPED_AFTER_S`."""
        with self._lock:
            if workers:
                self._end()
                return
            if self._since is None:
                self._since = self._clock()
            seconds = self._clock() - self._since
            if seconds >= STOPPED_AFTER_S:
                raise BackendError(
                    f"{self._cluster} had no workers for {STOPPED_AFTER_S / 60:.0f} minutes: start some ({self._how}), "
                    "then the same command goes on; what is finished stays"
                )
            if seconds >= SAID_AFTER_S and not self._is_said:
                self._is_said = True
                self._say(
                    f"{self._cluster} has no workers left: the run waits up to {STOPPED_AFTER_S / 60:.0f} minutes for "
                    f"new ones and goes on with them; start some ({self._how})"
                )

    def _end(self) -> None:
        if self._is_said:
            self._say(f"{self._cluster} has workers again; the run goes on")
        self._since, self._is_said = None, False


Result = TypeVar("Result")
LOOK_EVERY_S = 5.0
"""How often it is looked whether there are workers, while pieces are waited for."""
_START = {
    "dask": "dask scheduler, and dask worker {address} on each machine",
    "ray": "ray start --head, and ray start --address={address} on the other machines",
}
_START_WORKERS = {"dask": "dask worker {address}", "ray": "ray start --address={address}"}
_POISONED = frozenset({"KilledWorker", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "RayActorError"})
"""What the engines call the end of a task that ended the processes which took it."""
_GONE = frozenset({"CommClosedError", "CancelledError", "FutureCancelledError", "RaySystemError"})
"""What they call the loss of their scheduler or head."""


class PoisonError(BackendError):
    """Pieces of work that ended every worker that took them."""


class Crew:
    """The workers of an engine, as long as the flow runs that shares work out to them."""

    def __init__(self, placement: Placement, slots: int, slots_now: Callable[[], int]) -> None:
        """slots: pieces that they take at once; slots_now: how many the workers that live now could take."""
        self._placement, self.slots, self._slots_now = placement, slots, slots_now
        workers = _START_WORKERS[placement.engine].format(address=placement.address or "HOST:PORT")
        self._absence = Absence(f"the {placement.engine} cluster{named(placement)}", workers, log)

    def each(
        self,
        task: WatchedTask[..., Result],
        pieces: Mapping[str, tuple[Any, ...]],
        at_once: int,
        done: Callable[[str, Result], None],
    ) -> None:
        """Calls the task with every piece, at most so many at once; `done` gets name and result of each, one by one.

        pieces: name → arguments, small ones. An error ends it when the pieces under way are over, without beginning
        others; a piece that ends its workers, when all the others are done: PoisonError names it. BackendError where
        the engine is gone, or had no workers for minutes.
        """
        gate, stop, poisoned = threading.Lock(), threading.Event(), dict[str, BaseException]()

        def work(name: str) -> None:
            if stop.is_set():
                return
            try:
                result = self._result_of(task.submit(*pieces[name]))
            except UserError:
                stop.set()
                raise
            except BaseException as error:
                if type(error).__name__ in _POISONED:
                    poisoned[name] = error
                    return
                stop.set()
                raise self._explained(error) from error
            with gate:
                done(name, result)

        with ThreadPoolExecutor(at_once, thread_name_prefix="pieces") as lanes:
            _ended([lanes.submit(copy_context().run, work, name) for name in pieces])
        if poisoned:
            raise PoisonError(_poison_words(poisoned))

    def _result_of(self, future: PrefectFuture[Result]) -> Result:
        """The piece's result; while it is waited for, it is looked whether anybody is there to work on it."""
        while True:
            started = time.monotonic()
            try:
                return future.result(timeout=LOOK_EVERY_S)
            except TimeoutError:
                if time.monotonic() - started < LOOK_EVERY_S / 2:  # it is the piece's own
                    raise
            self._absence.look(self._slots_now())

    def _explained(self, error: BaseException) -> BaseException:
        """The error in words where the engine itself is gone; itself otherwise."""
        lost = type(error).__name__ in _GONE or "Failed to connect to GCS" in str(error)
        if not lost:
            return error
        return BackendError(
            f"the {self._placement.engine} cluster{named(self._placement)} is gone: {error}; "
            f"start it again ({how(self._placement)}), then the same command goes on with what is not finished"
        )


def _ended(lanes: list[Future[None]]) -> None:
    """Waits for all of them; the first error is raised then."""
    errors = [error for lane in lanes if (error := lane.exception()) is not None]
    if errors:
        raise errors[0]


def _poison_words(poisoned: Mapping[str, BaseException]) -> str:
    names = ", ".join(sorted(poisoned))
    return (
        f"{names}: every worker that took this ended; the others are done and stay. Its worker's own log says why (no "
        f"memory left, a library that crashed): {next(iter(poisoned.values()))}"
    )


def named(placement: Placement) -> str:
    """Which cluster it is, after the word."""
    return f" at {placement.address}" if placement.address else " of this command"


def how(placement: Placement) -> str:
    """The commands that start the cluster and workers of it."""
    return _START[placement.engine].format(address=placement.address or "HOST:PORT")
