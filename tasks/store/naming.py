"""What a task run is called where people watch it: a stage that finds its work done says so."""

from __future__ import annotations

from typing import Any


def named(stage: str) -> Any:  # Prefect's type for it asks for a method that it never calls
    """Names the task run of a stage, whose parameters hold the `run`, by what the run already has of it."""

    def name(parameters: dict[str, Any]) -> str:
        return f"{stage} (resumed)" if parameters["run"].shards(stage) else stage

    return name
