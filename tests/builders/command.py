"""The command `rubricflow` in this process, and the run that it left."""

from __future__ import annotations

from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from rubricflow.flows import cli
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


def command(*words: object) -> Result:
    """What became of a command; a defect is raised."""
    return CliRunner().invoke(cli.app, [str(word) for word in words], catch_exceptions=False)


def last_run(house: Path) -> Run:
    """The run of a warehouse that finished last."""
    warehouse = Warehouse.open(house)
    return warehouse.run(warehouse.runs()[-1])
