"""What several commands ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(help="The study file (YAML).")]
WarehouseFolder = Annotated[Path, typer.Option("--warehouse", help="Where runs are kept.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N responses of each item.")]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", min=1, help="Stop before more than N tokens are asked for.")
]
HOUSE = Path("data/warehouse")
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Who judges the shards: local, dask or ray; as the study says if not given."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a running cluster, host:port; without it one is started on this machine."),
]
