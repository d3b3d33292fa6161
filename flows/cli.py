"""The command `rubricflow`."""

from __future__ import annotations

import csv
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.ending import Stopped, end_by, own_temporary_folder, stoppable
from tasks.contracts.errors import BackendError, UserError
from tasks.contracts.schema import columns as described
from tasks.contracts.tables.every import BY_NAME
from tasks.store.warehouse import Run, Warehouse
from tasks.text.formulas import cell

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
def annotate(
    study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None, token_budget: TokenBudget = None
) -> None:
    """Label the concepts of a study's responses by two annotators, and queue what people should look at."""
    with _for_people():
        from flows.annotate import annotate as flow

        flow(str(study), str(warehouse), limit, token_budget)


@app.command()
def review(
    study: StudyFile,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
    host: Annotated[str, typer.Option(help="Address to serve on; any but this machine's own needs --reviewer.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8765,
    reviewer: Annotated[
        list[str] | None, typer.Option("--reviewer", help="Who may review; each gets a link of their own.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in this machine's browser.")] = True,
) -> None:
    """Open the page on which people vote on what an annotated study queued, or a graded one did not release."""
    with _for_people():
        from flows.review import review as open_page

        open_page(study, warehouse, limit, host, port, tuple(reviewer or ()), browser)


@app.command()
def votes(
    study: StudyFile,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the queue to a .csv, or a .json for Label Studio.")
    ] = None,
    read: Annotated[Path | None, typer.Option("--from", help="Read votes from this .csv or .json.")] = None,
    scores: Annotated[Path | None, typer.Option("--scores", help="Write the settled scores to this .csv.")] = None,
    rater: Annotated[str | None, typer.Option("--as", help="Whose votes a .csv holds.")] = None,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Take the queue to a spreadsheet or to Label Studio, and bring votes back; without either, list what was said."""
    with _for_people():
        from flows.review import bring, said, settled, take

        if to is not None:
            print(f"{take(study, warehouse, limit, to):,} cases in {to}")
        if read is not None:
            print(f"{bring(study, warehouse, limit, read, rater):,} acts of {rater or 'those named'} in {read}")
        if scores is not None:
            print(f"{settled(study, warehouse, limit, scores):,} settled scores in {scores}")
        if to is None and read is None and scores is None:
            _print_rows(["who", "cases submitted", "votes", "last at"], said(study, warehouse))


@app.command()
def adjudicate(
    study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None, token_budget: TokenBudget = None
) -> None:
    """Settle a study's labels by what people have said until now, and compare raters before and after."""
    with _for_people():
        from flows.annotate import settle as flow

        flow(str(study), str(warehouse), limit, token_budget)


@app.command()
def train(
    study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None, token_budget: TokenBudget = None
) -> None:
    """Train the bottleneck graders of a study, compare them, and export the first."""
    with _for_people():
        try:
            from flows.bottleneck import bottleneck as flow
        except ImportError as error:
            raise BackendError("training needs the extra: pip install 'rubricflow[embedded]'") from error

        flow(str(study), str(warehouse), limit, token_budget)


@app.command()
def edit(study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None) -> None:
    """Train a language model to grade by Edit, beside the arms that a study compares it with."""
    with _for_people():
        try:
            from flows.edit import edit as flow
        except ImportError as error:
            raise BackendError("training a policy needs the extra: pip install 'rubricflow[embedded,train]'") from error

        flow(str(study), str(warehouse), limit)


@app.command()
def laboratory(
    folder: Annotated[Path, typer.Argument(help="Where to put it: a new folder.")],
    seed: Annotated[int, typer.Option(help="Another seed is another laboratory.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Of the policy's training; fewer make it worse.")] = None,
) -> None:
    """Make a small world to try `edit` in: questions with exact gold marks, and a decoder that marks hastily."""
    with _for_people():
        from flows.laboratory import laboratory as make

        print(f"rubricflow edit {make(folder, seed, steps)}")


@app.command()
def faithful(study: StudyFile, warehouse: WarehouseFolder = HOUSE, limit: Limit = None) -> None:
    """Judge a study's test responses under edits of their mark schemes: do the scores follow the rules?"""
    with _for_people():
        from flows.faithful import SHOWN, summary
        from flows.faithful import faithful as flow

        _print_rows(SHOWN, summary(warehouse, flow(str(study), str(warehouse), limit)))


@app.command()
def propose(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="Rubric file (YAML) to write, for people to edit.")],
    concepts: Annotated[int, typer.Option(min=1, max=20, help="How many concepts.")] = 8,
    levels: Annotated[int, typer.Option(min=2, max=10, help="Levels of each.")] = 3,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Have the study's first annotator propose concepts for its data, as a rubric file for people to edit."""
    with _for_people():
        from flows.propose import propose as ask_for

        for line in ask_for(study, warehouse, to, concepts, levels):
            print(line)


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
    """Ask a run in SQL. Prints a table, or CSV where the output is not a terminal.

    In CSV an apostrophe goes before what a spreadsheet would run as a formula; the tables themselves are Parquet files.
    """
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
        from flows.reports import write_pages

        print(*write_pages(_run(warehouse, run)), sep="\n")


@app.command()
def verify(
    run: Annotated[str | None, typer.Argument(help="Run id; all runs if not given.")] = None,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Look at every byte of runs, replies and votes: is it what was written? Lists all that is wrong."""
    with _for_people():
        from flows.verify import verified

        problems: dict[str, None] = {}
        for look in verified(warehouse, run):
            print(f"{look.what}: {look.told} ({look.seconds:.1f} s){' WRONG' if look.problems else ''}")
            problems |= dict.fromkeys(look.problems)
        if problems:
            raise UserError("\n  ".join([f"{len(problems)} wrong in {warehouse}:", *problems]))
        print(f"all of it is as it was written: {warehouse}")


@app.command()
def compare(a: str, b: str, warehouse: WarehouseFolder = HOUSE) -> None:
    """Compare two runs on the responses that both hold out: paired bootstrap of the difference b - a."""
    with _for_people():
        from flows.compare import compared

        _print_rows(
            ["scale", "statistic", "b - a", "low", "high", "p", "responses", "resampled", "clusters", "note"],
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


def _print_rows(header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
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
def _for_people() -> Iterator[None]:
    """A UserError ends the command with its message and exit code 2, a signal with a message and by itself."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    # On a busy machine Prefect's own server may take longer than the 20 s that it is given.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
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


if __name__ == "__main__":
    app()
