"""What a task run is called where people watch it, and a file that is named for an id."""

from __future__ import annotations

import re
from typing import Any

from tasks.store.digest import digest_of


def named(stage: str) -> Any:  # Prefect's type for it asks for a method that it never calls
    """Names the task run of a stage, whose parameters hold the `run`, by what the run already has of it.

    A task that writes under several names is told its `stage`.
    """

    def name(parameters: dict[str, Any]) -> str:
        written = parameters.get("stage") or stage
        return f"{written} (resumed)" if parameters["run"].shards(written) else written

    return name


def file_name(name: str) -> str:
    """An id as a file may be called; with a digest, because two ids may then read the same."""
    readable = re.sub(r"[^\w.-]", "_", name)[:60]
    return f"{readable}-{digest_of(name)[:8]}"
