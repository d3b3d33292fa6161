"""What a run leaves in Prefect's UI: artifacts under the study's name, and events that automations wait for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.llm.calls import SHARES
from rubricflow.tasks.core.monitor.runs import in_run, log_progress

Event = Literal["rubricflow.checkpoint.failed", "rubricflow.gate.missed", "rubricflow.drift.found"]
"""What automations.yaml waits for."""


def artifact_key(run_id: str, name: str) -> str:
    """The key of an artifact, `<study>-<what>` in lower case: runs of one study are its versions."""
    study = run_id.rpartition("-")[0] or run_id
    return re.sub(r"[^a-z0-9]+", "-", f"{study}-{name}".lower())


def leave_text(run_id: str, name: str, text: str) -> None:
    """Leaves Markdown; nothing where Prefect does not run this."""
    if in_run():
        create_markdown_artifact(text, key=artifact_key(run_id, name), description=run_id)


def leave_table(run_id: str, name: str, rows: Sequence[Fields]) -> None:
    """Leaves rows of values by column; nothing where Prefect does not run this."""
    if in_run():
        create_table_artifact([dict(row) for row in rows], key=artifact_key(run_id, name), description=run_id)


def announce(event: Event, run_id: str, **payload: object) -> None:
    """Tells Prefect's automations that something happened to a run; nothing where Prefect does not run this."""
    if in_run():
        study = run_id.rpartition("-")[0] or run_id
        resource = {"prefect.resource.id": f"rubricflow.run.{run_id}", "prefect.resource.name": study}
        emit_event(event, resource, payload={"run": run_id, "study": study, **payload})


def saying(run_id: str, stage: str) -> Callable[[str, float], None]:
    """Logs a line of what is being done and shows the share done, 0 to 1, in Prefect's UI; the line alone where Prefect
    does not run this."""
    bar = create_progress_artifact(0.0, key=artifact_key(run_id, f"{stage}-progress")) if in_run() else None

    def say(line: str, share: float) -> None:
        SHARES[stage] = share
        log_progress(line)
        if bar is not None:
            update_progress_artifact(cast(UUID, bar), progress=100 * share, description=line)

    return say
