"""What a command says to people: rows, errors, and how it ends."""

from __future__ import annotations

import csv
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rubricflow.flows.ending import Stopped, end_by, own_temporary_folder, stoppable
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.text.formulas import cell


def print_rows(header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table on a terminal, and CSV elsewhere; nothing in it runs as a formula, markup or control sequence."""
    if not sys.stdout.isatty():
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(cell, header))
        writer.writerows(map(cell, row) for row in rows)
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*map(_cell, row))
    Console().print(table)


def _cell(value: object) -> str:
    """A value as a terminal may show it: what a student wrote is neither markup nor a control sequence."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text))


@contextmanager
def for_people() -> Iterator[None]:
    """A UserError ends the command with its message and exit code 2, a signal with a message and by itself."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        with stoppable(), own_temporary_folder():
            yield
    except UserError as error:
        print(f"rubricflow: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        by = stop.signal if isinstance(stop, Stopped) else signal.SIGINT
        print(f"rubricflow: stopped by {by.name}; what is finished stays, the same command goes on", file=sys.stderr)
        end_by(by)
