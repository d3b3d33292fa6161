"""What several commands ask for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(help="The study file (YAML).")]


def _place(text: str) -> Path:
    """A folder; for a bucket the folder that mirrors it on this machine, which stands for it everywhere."""
    from rubricflow.tasks.core.contracts.errors import StoreError
    from rubricflow.tasks.core.store.objects import mirrored_in, url_of

    url = url_of(text)
    try:
        return mirrored_in(url) if url else Path(text)
    except StoreError as error:
        raise typer.BadParameter(str(error)) from error


WarehouseFolder = Annotated[
    Path,
    typer.Option(
        "--warehouse",
        envvar="RUBRICFLOW_WAREHOUSE",
        parser=_place,
        metavar="FOLDER",
        help="Where runs are kept: a folder, or s3://bucket/prefix.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only N responses of each item, drawn by chance.")]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", min=1, help="Stop before more than N tokens are asked for.")
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Who waits for models: local, dask or ray; as the study says if not given."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a running cluster, host:port; without it one is started on this machine."),
]
Kept = Annotated[
    str | None,
    typer.Option(
        "--replies",
        metavar="PLACE",
        help="Where models' replies are kept, if not in the warehouse: a file, or postgresql://user@host/name.",
    ),
]
Command = Callable[..., None]


def with_replies(command: Command) -> Command:
    """A command on a warehouse with an option for where replies are kept; other commands as they are."""
    signature = inspect.signature(command, eval_str=True)
    if "warehouse" not in signature.parameters:
        return command
    more = inspect.Parameter("kept_in", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Kept)

    @functools.wraps(command)
    def asking(kept_in: str | None = None, **options: object) -> None:
        if kept_in is not None:
            os.environ["RUBRICFLOW_REPLIES"] = kept_in
        command(**options)

    asking.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])  # type: ignore[attr-defined]
    return asking
