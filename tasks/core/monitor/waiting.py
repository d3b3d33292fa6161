"""Flow runs that wait for people: a run by a deployment is suspended, so that no process waits with it, and an event
that automations.yaml answers resumes it."""

from __future__ import annotations

import logging
from collections.abc import Set
from uuid import uuid4

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.flow_runs import suspend_flow_run
from prefect.settings import PREFECT_API_URL

from rubricflow.tasks.core.monitor.runs import completed, log

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
