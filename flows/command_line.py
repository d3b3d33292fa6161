"""What commands share: their options, the rows they print, and the words with which one names the next."""

from __future__ import annotations

import csv
import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

DEFAULT_WAREHOUSE = "data/warehouse"


def folder_or_bucket(text: str) -> str:
    """A folder; for a bucket the folder that mirrors it on this machine and is used in its place everywhere."""
    from rubricflow.tasks.core.contracts.errors import StoreError
    from rubricflow.tasks.core.store.objects import mirrored_in, url_of

    url = url_of(text)
    try:
        return str(mirrored_in(url)) if url else text
    except StoreError as error:
        raise typer.BadParameter(str(error)) from error


StudyFile = Annotated[str, typer.Argument(help="The study file (YAML).")]
WarehouseFolder = Annotated[
    str,
    typer.Option(
        "--warehouse",
        envvar="RUBRICFLOW_WAREHOUSE",
        parser=folder_or_bucket,
        metavar="FOLDER",
        help="Where runs are kept: a folder, or s3://bucket/prefix.",
    ),
]
RunId = Annotated[str | None, typer.Argument(help="Run id; the latest one if not given.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only N responses of each item, drawn by chance.")]
TokenLimit = Annotated[
    int | None,
    typer.Option(
        "--token-budget", min=1, help="Stop before the run takes more than N tokens, by all commands together."
    ),
]
DollarLimit = Annotated[
    float | None,
    typer.Option(
        "--budget-usd",
        min=0.0001,
        help="Stop before the run costs more than so many US dollars, by all commands together.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Who waits for models: local, dask or ray; as the study says if not given."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a running cluster, host:port; without it one is started on this machine."),
]
ReplyStore = Annotated[
    str | None,
    typer.Option(
        "--replies",
        metavar="PLACE",
        help="Where models' replies are kept, if not in the warehouse: a file, or postgresql://…",
    ),
]
Browser = Annotated[bool, typer.Option(help="Open the page in this machine's browser.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port.")]
PageAddress = Annotated[str, typer.Option(help="Address to serve on; any but this machine's own needs --reviewer.")]
Reviewers = Annotated[
    list[str] | None, typer.Option("--reviewer", help="Who may give scores; each gets a link of their own.")
]
RubricTo = Annotated[Path, typer.Option("--to", help="Rubric file (YAML) to write, for people to edit.")]
Criterion = Annotated[str | None, typer.Option("--criterion", help="Of a log with several the one that is labelled.")]
LogFolder = Annotated[
    Path | None, typer.Option("--study", help="The folder for the study; LOG.calibration beside it if not given.")
]


def arguments(study: str | Path, warehouse: str | Path, limit: int | None) -> str:
    """What to type behind another command about the same study."""
    words = [str(study)]
    words += ["--warehouse", str(warehouse)] if Path(warehouse) != Path(DEFAULT_WAREHOUSE) else []
    words += ["--limit", str(limit)] if limit else []
    return shlex.join(words)


def print_rows(header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table on a terminal, and CSV elsewhere; nothing in it runs as a formula, markup or control sequence."""
    if not sys.stdout.isatty():
        from rubricflow.tasks.core.text.formulas import cell

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(cell, header))
        writer.writerows(map(cell, row) for row in rows)
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*map(_safe, row))
    Console().print(table)


def _safe(value: object) -> str:
    """A value as a terminal may show it: what a student wrote is neither markup nor a control sequence."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text))


Command = Callable[..., None]


def extends(work: Callable[..., Any], without: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Gives a command the options of a flow, which it takes as **given, in front of its own; without those named."""

    def with_options(command: Command) -> Command:
        taken = inspect.signature(getattr(work, "fn", work), eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters.values()
        options = [option for name, option in taken.items() if name not in without]
        options += [option for option in own if option.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return command

    return with_options
