"""The command `rubricflow`."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks.contracts.errors import UserError
from tasks.contracts.table import columns as described
from tasks.contracts.tables import BY_NAME
from tasks.store.warehouse import Run, Warehouse

app = typer.Typer(
    help="Grade open-ended text with rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StudyFile = Annotated[Path, typer.Argument(help="The study file (YAML).")]
WarehouseFolder = Annotated[Path, typer.Option("--warehouse", help="Where runs are kept.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N responses of each item.")]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", min=1, help="Stop before more than N tokens are asked for.")
]
HOUSE = Path("data/warehouse")


@app.command()
def grade(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    token_budget: TokenBudget = None,
) -> None:
    """Grade a study: ingest, lock, judge, calibrate, evaluate. A killed run continues where it stopped."""
    with _for_people():
        if dry_run:
            from flows.rehearse import planned_calls

            _print_rows(
                ["item", "responses", "settled without a call", "calls", "prompt tokens, roughly"],
                planned_calls(study, limit),
            )
            return
        from flows.grade import grade as flow

        flow(str(study), str(warehouse), limit, token_budget)


@app.command()
def graph(study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None) -> None:
    """Build and draw the graphs of a study's rubrics: which criterion licenses which. No response is looked at."""
    with _for_people():
        from flows.graph import graph as flow

        flow(str(study), str(warehouse), limit)


@app.command()
def reward(
    study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None, token_budget: TokenBudget = None
) -> None:
    """Reward a study's responses with and without the dependencies of the criteria, and say what leaks."""
    with _for_people():
        from flows.reward import reward as flow

        flow(str(study), str(warehouse), limit, token_budget)


@app.command()
def experiment(
    file: Annotated[Path, typer.Argument(help="The experiment file (YAML).")],
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Run every arm of an experiment and print its tables. Arms that finished are passed over."""
    with _for_people():
        from flows.experiment import experiment as flow

        flow(str(file), str(warehouse), limit)


@app.command()
def validate(study: StudyFile, limit: Limit = None) -> None:
    """Prove data, rubrics, verifier and prompts of a study without asking any model."""
    with _for_people():
        from flows.rehearse import prove

        problems = 0
        for kind, what, message in prove(study, limit):
            problems += kind == "wrong"
            print(f"{kind:8} {what}: {message}")
        if problems:
            raise UserError(f"{study}: {problems} problem{'s' if problems > 1 else ''}")


@app.command()
def sql(
    query: Annotated[
        str | None, typer.Argument(help="SQL, or the name of a question; without it, the questions are listed.")
    ] = None,
    parameters: Annotated[list[str] | None, typer.Argument(help="name=value for a question's $name.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Run id; the latest one if not given.")] = None,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Ask a run in SQL. Prints a table, or CSV where the output is not a terminal."""
    with _for_people():
        from tasks.store.catalogue import ask, questions

        if query is None:
            _print_rows(["question", "what it asks"], questions().items())
            return
        given = {name: value for name, _, value in (pair.partition("=") for pair in parameters or [])}
        answer = ask(_run(warehouse, run), query, given)
        _print_rows(answer.columns, answer.fetchall())


@app.command()
def columns(table: Annotated[str | None, typer.Argument(help="A table; all of them if not given.")] = None) -> None:
    """List the tables' columns: type, whether null is allowed, what they hold."""
    with _for_people():
        if table is not None and table not in BY_NAME:
            raise UserError(f"no table '{table}'; there are {', '.join(BY_NAME)}")
        chosen = [BY_NAME[table]] if table else BY_NAME.values()
        _print_rows(
            ["table", "column", "type", "null", "what it holds"],
            [(row.table, *column) for row in chosen for column in described(row)],
        )


@app.command()
def report(
    run: Annotated[str | None, typer.Argument(help="Run id; the latest one if not given.")] = None,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Write a finished run's reports (HTML to look at) anew and say where they are."""
    with _for_people():
        from tasks.evaluate.task import write_pages

        print(*write_pages(_run(warehouse, run)), sep="\n")


@app.command()
def compare(a: str, b: str, warehouse: WarehouseFolder = HOUSE) -> None:
    """Compare two runs on the responses that both hold out: paired bootstrap of the difference b - a."""
    with _for_people():
        from flows.compare import compared

        _print_rows(
            ["scale", "statistic", "b - a", "low", "high", "p", "responses", "resampled"],
            compared(_run(warehouse, a), _run(warehouse, b)),
        )


def _run(warehouse: Path, run_id: str | None) -> Run:
    """The run of this id, also one that did not finish; without an id the last that finished."""
    # Asking about runs makes no warehouse where there is none.
    house = Warehouse.open(warehouse) if warehouse.is_dir() else None
    finished = house.runs() if house else []
    if house and run_id in {marks.parent.name for marks in warehouse.glob("*/_done")}:
        return house.run(str(run_id))
    if house and finished and not run_id:
        return house.run(finished[-1])
    what = f"run {run_id!r}" if run_id else "finished run"
    raise UserError(f"no {what} in {warehouse}; finished are: {', '.join(finished) or 'none'}")


def _print_rows(header: list[str], rows: Iterable[Iterable[object]]) -> None:
    if not sys.stdout.isatty():
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
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
def _for_people() -> Iterator[None]:
    """A UserError ends the command with its message and exit code 2."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        yield
    except UserError as error:
        print(f"rubricflow: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
