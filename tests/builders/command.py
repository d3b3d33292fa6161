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


def done(*words: object) -> Result:
    """The same of a command that ends well."""
    result = command(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: object) -> str:
    """All that a command says that a user can mend: it ends with 2."""
    result = command(*words)
    assert result.exit_code == 2, result.output
    return result.output


def last_run(house: Path) -> Run:
    """The run of a warehouse that finished last."""
    warehouse = Warehouse.open(house)
    return warehouse.run(warehouse.runs()[-1])
