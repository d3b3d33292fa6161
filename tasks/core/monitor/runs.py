"""Flows and tasks: Prefect's where a server is there to watch them, and plain calls where none is.

Without `PREFECT_API_URL` Prefect would start a server of its own for every command, which costs more than most runs and
which nobody looks into. Nothing that a run is made of needs one: shards and replies on disk are what it resumes from.
A study's credentials are variables of the environment, or secret blocks of Prefect's. A flow run by a deployment that
waits for people is suspended, so that no process waits with it, and an event that automations.yaml answers resumes it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, cast
from uuid import uuid4

import httpx
from prefect import Flow, State, Task
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext, TaskRunContext
from prefect.events import emit_event
from prefect.flow_runs import suspend_flow_run
from prefect.logging import get_run_logger
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import BackendError, StoppedError
from rubricflow.tasks.core.contracts.scoped import scoped

P = ParamSpec("P")
R = TypeVar("R")


def is_watched() -> bool:
    """Whether Prefect runs this: its settings or its profile name a server, or one of its runs is under way."""
    return bool(PREFECT_API_URL.value()) or in_run()


def in_run() -> bool:
    """Whether this is inside a flow run or task run of Prefect's."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None


class WatchedTask(Task[P, R]):
    """A task of Prefect's; without a server calling it calls its function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # no options of Prefect's
        if is_watched():
            return super().__call__(*args, **kwargs)
        return self.fn(*args, **kwargs)


class WatchedFlow(Flow[P, R]):
    """A flow of Prefect's; without a server calling it calls its function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # no options of Prefect's
        if not is_watched():
            return self.fn(*args, **kwargs)
        try:
            return super().__call__(*args, **kwargs)
        except RuntimeError as error:
            if "Failed to reach API" not in str(error):
                raise
            raise BackendError(
                f"Prefect's server {PREFECT_API_URL.value()} does not answer: start it, or unset PREFECT_API_URL to "
                "run without one"
            ) from error


def task(task_run_name: Any, pauses_s: Sequence[float] = ()) -> Callable[[Callable[P, R]], WatchedTask[P, R]]:
    """Makes a function a task. task_run_name: a text, or a function of the task's parameters.

    pauses_s: seconds after which Prefect tries it again, once each, where what stopped it may pass by itself, for
    nightly runs. Without a server the error is the person's who started it.
    """
    retries = {"retries": len(pauses_s), "retry_delay_seconds": list(pauses_s), "retry_condition_fn": is_transient}
    options: Record = retries if pauses_s else {}
    return lambda function: WatchedTask(function, task_run_name=task_run_name, **options)


def is_transient(task: object, task_run: object, state: State[Any]) -> bool:
    """Whether what stopped a task may pass by itself, as a full or restarting model server may."""
    try:
        state.result()
    except StoppedError as error:
        return error.passing
    except Exception:  # whatever it is, it will be the same the next time
        return False
    return False


def flow(name: str, flow_run_name: str = "{study}") -> Callable[[Callable[P, R]], WatchedFlow[P, R]]:
    """Makes a function a flow. flow_run_name: what a run is called until `introduce` knows better; with parameters in
    braces."""
    return lambda function: WatchedFlow(function, name=name, flow_run_name=flow_run_name)


def introduce(study: str, **tags: str) -> None:
    """Calls the flow run after its study, and tags it `study:<study>` and `<name>:<value>` for all that is given."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    labels = {f"{name}:{value}" for name, value in {"study": study, **tags}.items()}
    with get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, name=study, tags=sorted(labels | set(context.flow_run.tags)))


def completed(run_id: str, message: str) -> str:
    """What a flow returns: the run's id; in Prefect's UI the flow run's state says the message."""
    if FlowRunContext.get() is None:
        return run_id
    return cast(str, Completed(message=message, data=run_id))


CLEARED = "\r\x1b[K"
"""Takes what stands on a terminal's line from it."""
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def quiet(when: bool) -> AbstractContextManager[None]:
    """Within the block, where `when` holds, only errors are logged."""
    return scoped(_quiet, when or _quiet.get())


def log(line: str, level: int = logging.INFO) -> None:
    """A line of the run's log in Prefect, and of standard error where Prefect does not run it."""
    if _quiet.get() and level < logging.ERROR:
        return
    if in_run():
        get_run_logger().log(level, line)
    elif sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        broken = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        print(f"{CLEARED}{broken}", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def log_progress(line: str) -> None:
    """A line of the log that the next one takes the place of: in a terminal a stage has one line."""
    if in_run() or _quiet.get() or not sys.stderr.isatty():
        return log(line)
    width = shutil.get_terminal_size().columns - 1
    shown = line if len(line) <= width else f"{line[: width - 1]}…"
    print(f"{CLEARED}{shown}", end="", file=sys.stderr, flush=True)


_NAMED = "PREFECT_API_URL names the one that is asked"


def credential(name: str) -> str | None:
    """The value of an environment variable, or of a Prefect secret block for `block:NAME`; None where the variable is
    not set, BackendError where there is no such block."""
    if not name.startswith("block:"):
        return os.environ.get(name)
    block = name.removeprefix("block:")
    if not is_watched():
        raise BackendError(f"secret block '{block}' (judge.engine.key) is kept by a server of Prefect's: {_NAMED}")
    try:
        return str(cast(Secret[Any], Secret.load(block)).get())
    except ValueError:
        raise BackendError(f"Prefect has no secret block named '{block}' (judge.engine.key): {_NAMED}") from None


ANSWERED = "rubricflow.queue.answered"
"""The event; the flow run that waits is related to it."""


def wait_for_people(run_id: str, study: str, waits: str) -> str:
    """Says what waits for people and ends the flow with that; a run by a deployment is suspended until it is resumed
    and then starts from its beginning, in another process.

    A run that comes while another waits for the same study, as a nightly one does, ends. run_id: what the flow returns.
    """
    log(waits)
    context = FlowRunContext.get()
    if context and context.flow_run and context.flow_run.deployment_id and not waiting_runs({study}):
        suspend_flow_run(key=str(uuid4()))  # a key that was used before would count as resumed
    return completed(run_id, waits)


def announce_answered(studies: Set[str]) -> None:
    """Tells Prefect's automations that people have answered all that was queued of these studies, an event for every
    flow run that waits for one of them; nothing without a server."""
    if not PREFECT_API_URL.value():
        return
    try:
        found = waiting_runs(studies)
    except httpx.HTTPError as error:  # answers are stored all the same, and the next run by schedule looks at them
        return log(f"Prefect's server did not take the news that all is answered: {error}", logging.WARNING)
    for waiting in found:
        about = {"prefect.resource.id": f"rubricflow.flow-run.{waiting.id}", "prefect.resource.name": waiting.name}
        run = {"prefect.resource.id": f"prefect.flow-run.{waiting.id}", "prefect.resource.role": "flow-run"}
        emit_event(ANSWERED, about, related=[run])


def waiting_runs(studies: Set[str]) -> list[FlowRun]:
    """The suspended flow runs of these studies, by the tags that `introduce` gives."""
    tags = {f"{role}:{study}" for role in ("study", "grading") for study in studies}
    paused = FlowRunFilter.model_validate({"state": {"type": {"any_": [StateType.PAUSED]}}})
    with get_client(sync_client=True) as client:
        return [run for run in client.read_flow_runs(flow_run_filter=paused) if tags & set(run.tags)]
