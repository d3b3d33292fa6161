"""Work shared out to the workers of a cluster by Prefect's own task runners for Dask and Ray, piece by piece.

Prefect's runners report to a server: the one that `PREFECT_API_URL` names or, where all workers are on this machine, a
temporary one of Prefect's. What a worker has finished is known by its done-mark on disk and by no state of Prefect's.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from prefect import Flow
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.task_runners import TaskRunner

from rubricflow.tasks.core.contracts.backends import install, is_missing
from rubricflow.tasks.core.contracts.errors import BackendError, UserError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.monitor.runs import WatchedTask, log

Result = TypeVar("Result")
CONNECT_S = 10.0
"""For how long an address is tried."""
SERVER_S = 120
"""For how long Prefect's temporary server may take to start."""
_OWN_RAY = "local"
"""The address for which Ray starts a cluster; without one it would join whatever cluster this machine is in."""
_ORPHANS = Path(__file__).with_name("orphans.py")


def on_engine(placement: Placement, name: str, work: Callable[[Crew], Result]) -> Result:
    """What `work` makes of a crew, within a flow of this name that is run by the engine's task runner.

    BackendError for an extra that is not installed, an address without a cluster, a cluster without workers, and
    workers on other machines without a server of Prefect's that they could report to.
    """
    require_cluster(placement)
    begun = []

    def shared_out() -> Result:
        begun.append(True)
        runner: Any = cast(FlowRunContext, FlowRunContext.get()).task_runner  # a copy of the one that the flow got
        slots_now = partial(_slots_now, placement, runner)
        slots = slots_now()
        if slots < 1:
            raise BackendError(
                f"the {placement.engine} cluster{named(placement)} has no workers: start some ({how(placement)})"
            )
        workers = placement.workers or slots
        # Ray's autoscaler brings nodes for what waits; with Dask it would only wait.
        return work(Crew(placement, workers if placement.engine == "ray" else min(slots, workers), slots_now))

    with _server(placement), scoped(_shared, shared_out):
        try:
            flow: Any = Flow(_share, name=name, task_runner=_runner(placement), validate_parameters=False)
            return cast(Result, flow())
        except Exception as error:
            if begun:
                raise
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise BackendError(
                f"the {placement.engine} cluster{named(placement)} did not start: {reason}; the same command tries "
                "again, and --engine local needs none"
            ) from error


def require_cluster(placement: Placement) -> None:
    """BackendError where the engine's extra is not installed, there is no cluster at the address, or workers elsewhere
    would have no server to report to."""
    if is_missing(placement.engine):
        raise BackendError(f"engine: {placement.engine} needs the extra: {install(placement.engine)}")
    if placement.host is None:
        return
    try:
        socket.create_connection(placement.host, CONNECT_S).close()
    except OSError as error:
        raise BackendError(
            f"no {placement.engine} cluster answers{named(placement)} ({error.strerror or error}): start it "
            f"({how(placement)}), mend run.address or --address, or leave it out to start one on this machine"
        ) from error
    if placement.is_elsewhere and not PREFECT_API_URL.value():
        raise BackendError(
            "workers on other machines report to a server of Prefect's, and PREFECT_API_URL names none: run `prefect "
            "server start --host 0.0.0.0` on a machine that all reach, and set PREFECT_API_URL=http://THAT-MACHINE:4200/api"
            " here and on the workers"
        )


_shared: ContextVar[Callable[[], Any]] = ContextVar("shared")


def _share() -> Any:
    """What a flow does in this process. Each piece takes its flow along to a worker, and with it this name alone, not
    what is shared out, with the locks and the lists of pieces that it may hold."""
    return _shared.get()()


def own_workers(placement: Placement) -> int:
    """Workers of a cluster that a command starts on this machine."""
    return placement.workers or os.cpu_count() or 1


def _runner(placement: Placement) -> TaskRunner[Any]:
    """The engine's task runner, of a running cluster or of one that starts with the flow."""
    workers = own_workers(placement)
    if placement.engine == "dask":
        from prefect_dask.task_runners import DaskTaskRunner

        logging.getLogger("distributed").setLevel(logging.WARNING)  # else it logs every worker that comes and goes
        if placement.address:
            return cast(TaskRunner[Any], DaskTaskRunner(address=placement.address))
        one_thread = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
        return cast(TaskRunner[Any], DaskTaskRunner(cluster_kwargs={"n_workers": workers, **one_thread}))
    from prefect_ray.task_runners import RayTaskRunner

    os.environ.setdefault("RAY_worker_niceness", "0")  # else its workers stand back behind all else on this machine
    here = {"num_cpus": workers, "include_dashboard": False}
    runner: TaskRunner[Any] = RayTaskRunner(placement.address or _OWN_RAY, {} if placement.address else here)
    return runner


@contextmanager
def _server(placement: Placement) -> Iterator[None]:
    """A server that workers report to."""
    if PREFECT_API_URL.value():
        yield
        return
    from prefect.server.api.server import SubprocessASGIServer  # seconds, which no other run pays for

    class TemporaryServer(SubprocessASGIServer):
        """Prefect's server, which ends with this process even where that is killed."""

        def _run_uvicorn_command(self) -> subprocess.Popen[Any]:
            process = super()._run_uvicorn_command()
            watcher = [sys.executable, "-I", "-S", str(_ORPHANS), str(os.getpid()), str(process.pid)]
            subprocess.Popen(watcher, stdin=subprocess.DEVNULL)
            return process

    server = TemporaryServer()
    try:
        server.start(SERVER_S)
    except RuntimeError as error:
        raise BackendError(
            f"engine: {placement.engine} needs a server of Prefect's, and a temporary one does not start: run `prefect "
            f"server start` and set PREFECT_API_URL=http://127.0.0.1:4200/api ({str(error).splitlines()[0]})"
        ) from error
    try:
        with temporary_settings({PREFECT_API_URL: server.api_url, PREFECT_LOGGING_TO_API_ENABLED: False}):
            yield
    finally:
        server.stop()


def closing_worker() -> Callable[[], bool]:
    """Whether the worker of Dask in whose thread this is called is being closed, as SIGTERM does; never elsewhere."""
    try:
        worker = sys.modules["distributed"].get_worker()
    except (KeyError, ValueError):
        return lambda: False
    return lambda: bool(worker.status.name == "closing")


def _slots_now(placement: Placement, runner: Any) -> int:
    """Pieces that the workers which live now take at once."""
    if placement.engine == "dask":
        return int(sum(runner.client.nthreads().values()))
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


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
        """Take in how many workers there are now. Logs once that there are none, and once that some are back;
        BackendError when there were none for `STOPPED_AFTER_S`."""
        with self._lock:
            if workers:
                if self._is_said:
                    self._say(f"{self._cluster} has workers again; the run goes on")
                self._since, self._is_said = None, False
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
        self._placement, self.slots, self._slots_now, self._is_gone = placement, slots, slots_now, False
        workers = _START_WORKERS[placement.engine].format(address=placement.address or "HOST:PORT")
        self._absence = Absence(f"the {placement.engine} cluster{named(placement)}", workers, log)

    def each(
        self,
        task: WatchedTask[..., Result],
        pieces: Iterator[tuple[str, tuple[Any, ...]]],
        workers: int,
        done: Callable[[str, Result], None],
        closed: Callable[[int], None] = lambda lane: None,
    ) -> None:
        """Calls the task with every piece and its lane, by at most so many workers; `done` gets name and result of each
        in turn, `closed` a lane that has no more.

        pieces: name and arguments, small ones, each taken when a lane is free for it. An error ends it when the
        pieces under way are over, without beginning others; a piece that ends its workers, when all the others are
        done: PoisonError names it. BackendError where the engine is gone, or had no workers for minutes.
        """
        gate = threading.Lock()
        stop = threading.Event()
        poisoned = {}

        def work(lane: int) -> None:
            while not stop.is_set():
                with gate:
                    name, arguments = next(pieces, ("", None))
                if arguments is None:
                    return closed(lane)
                do(name, (*arguments, lane))

        def do(name: str, arguments: tuple[Any, ...]) -> None:
            try:
                result = self._result_of(task.submit(*arguments))
            except BaseException as error:
                kind = type(error).__name__
                if kind in _POISONED:
                    poisoned[name] = error
                    return
                stop.set()
                if isinstance(error, UserError) or not (kind in _GONE or "Failed to connect to GCS" in str(error)):
                    raise
                raise BackendError(self._gone(str(error))) from error
            with gate:
                done(name, result)

        with looking(self._look, LOOK_EVERY_S), ThreadPoolExecutor(workers, thread_name_prefix="pieces") as lanes:
            ended = [lanes.submit(copy_context().run, work, lane) for lane in range(workers)]
        errors = [error for lane in ended if (error := lane.exception()) is not None]
        if errors:
            raise errors[0]
        if poisoned:
            names = ", ".join(sorted(poisoned))
            why = next(iter(poisoned.values()))
            raise PoisonError(
                f"{names}: every worker that took this ended; the others are done and stay. Its worker's own log says "
                f"why (no memory left, a library that crashed): {why}"
            )

    def _look(self) -> None:
        """Says once that nobody listens at the head's address: Ray ends this process a minute later without a word."""
        try:
            require_cluster(self._placement)
        except BackendError as error:
            if isinstance(error.__cause__, ConnectionRefusedError) and not self._is_gone:
                self._is_gone = True
                log(self._gone(str(error.__cause__)), logging.ERROR)

    def _gone(self, why: str) -> str:
        return (
            f"the {self._placement.engine} cluster{named(self._placement)} is gone: {why}; start it again "
            f"({how(self._placement)}), then the same command goes on with what is not finished"
        )

    def _result_of(self, future: PrefectFuture[Result]) -> Result:
        """The piece's result; BackendError where there have been no workers for it for minutes."""
        while True:
            started = time.monotonic()
            try:
                return future.result(timeout=LOOK_EVERY_S)
            except TimeoutError:
                if time.monotonic() - started < LOOK_EVERY_S / 2:  # it is the piece's own
                    raise
            self._absence.look(self._slots_now())


def named(placement: Placement) -> str:
    """Which cluster it is, after the word."""
    return f" at {placement.address}" if placement.address else " of this command"


def how(placement: Placement) -> str:
    """The commands that start the cluster and workers of it."""
    return _START[placement.engine].format(address=placement.address or "HOST:PORT")
