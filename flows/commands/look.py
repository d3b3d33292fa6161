"""The commands that look at what runs have made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.command_line import HOUSE
from rubricflow.flows.commands.options import WarehouseFolder
from rubricflow.flows.terminal import for_people, print_rows
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import columns as described
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


def sql(
    query: Annotated[
        str | None,
        typer.Argument(help="SQL, or the name of a table or a question; without it, the questions are listed."),
    ] = None,
    parameters: Annotated[list[str] | None, typer.Argument(help="name=value for a question's $name.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Run id; the latest one if not given.")] = None,
    other_files: Annotated[
        bool, typer.Option("--other-files", help="Let the SQL read and write other files and change settings.")
    ] = False,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Ask a run in SQL. Prints a table, or CSV where the output is not a terminal.

    Only SELECT is run, and it reads the run's tables and no other file.
    In CSV an apostrophe goes before what a spreadsheet would run as a formula; the tables themselves are Parquet files.
    All finished runs together are in the warehouse's warehouse.duckdb, for any client of DuckDB.
    """
    with for_people():
        from rubricflow.flows.settled import settle_scores
        from rubricflow.tasks.core.store.catalogue import ask, questions, raters

        if query is None:
            print_rows(["question", "what it asks"], questions().items())
            return
        statement = {name: value for name, _, value in (pair.partition("=") for pair in parameters or [])}
        chosen = _run(warehouse, run)
        settle_scores(chosen)
        print(f"run {chosen.run_id}, scores by {', '.join(raters(chosen)) or 'nobody'}", file=sys.stderr)
        answer = ask(chosen, query, statement, other_files)
        print_rows(answer.columns, answer.fetchall())


def columns(table: Annotated[str | None, typer.Argument(help="A table; all of them if not given.")] = None) -> None:
    """List the tables' columns: type, whether null is allowed, what they hold."""
    with for_people():
        if table is not None and table not in BY_NAME:
            raise UserError(f"no table '{table}'; there are {', '.join(BY_NAME)}")
        chosen = [BY_NAME[table]] if table else BY_NAME.values()
        print_rows(
            ["table", "column", "type", "null", "what it holds"],
            [(row.table, *column) for row in chosen for column in described(row)],
        )


def report(
    run: Annotated[str | None, typer.Argument(help="Run id; the latest one if not given.")] = None,
    warehouse: WarehouseFolder = HOUSE,
    serve: Annotated[bool, typer.Option("--serve", help="Show them in a browser until Ctrl-C.")] = False,
    host: Annotated[str, typer.Option(help="Address to serve on; any but this machine's own asks for a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8766,
    browser: Annotated[bool, typer.Option(help="Open the report in this machine's browser.")] = True,
) -> None:
    """Write a finished run's reports (HTML to look at) anew and say where they are, or show them."""
    with for_people():
        from rubricflow.flows.reports import write_pages
        from rubricflow.flows.settled import settle_scores

        chosen = _run(warehouse, run)
        settle_scores(chosen)
        pages = write_pages(chosen)
        print(*pages, sep="\n")
        if serve:
            from rubricflow.flows.site import serve_pages

            for folder in ("data_docs", "graphs", "pictures"):
                chosen.warehouse.fetch_folder(chosen.folder / folder)
            serve_pages(chosen.folder, pages[0].name, host, port, browser)


def verify(
    run: Annotated[str | None, typer.Argument(help="Run id; all runs if not given.")] = None,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Look at every byte of runs, replies and votes: is it what was written? Lists all that is wrong."""
    with for_people():
        from rubricflow.flows.verify import verified

        place = Warehouse.open(warehouse).place if warehouse.is_dir() else warehouse
        problems: dict[str, None] = {}
        for look in verified(warehouse, run):
            print(f"{look.subject}: {look.amount} ({look.seconds:.1f} s){' WRONG' if look.problems else ''}")
            problems |= dict.fromkeys(look.problems)
        if problems:
            raise UserError("\n  ".join([f"{len(problems)} wrong in {place}:", *problems]))
        print(f"all of it is as it was written: {place}")


def replies(
    to: Annotated[Path, typer.Option("--to", help="The file to write, such as replies.parquet.")],
    run: Annotated[str | None, typer.Argument(help="Run id; the latest one if not given.")] = None,
    name: Annotated[str | None, typer.Option(help="The model's name, where a server calls it otherwise.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of the weights that a server served: their digest is recorded.")
    ] = None,
    warehouse: WarehouseFolder = HOUSE,
) -> None:
    """Record what models said to a finished run in one file, which `backend: replay` with `replies: FILE` reads."""
    with for_people():
        from rubricflow.flows.replies import recorded

        header = recorded(_run(warehouse, run), to, name, weights)
        size = f"{to.stat().st_size / 1024:,.0f} KiB"
        print(f"{to}: {header.replies:,} {header.in_words}, {header.errors:,} errors, {size}")


def compare(a: str, b: str, warehouse: WarehouseFolder = HOUSE) -> None:
    """Compare two runs on a page: agreement with people and with each other, and the answers that changed most.

    Prints the paired bootstrap of the difference b - a in agreement, on the responses that both hold out.
    """
    with for_people():
        from rubricflow.flows.compare import compared

        differences, sentence, page = compared(_run(warehouse, a), _run(warehouse, b))
        print(f"{sentence}.", file=sys.stderr)
        if differences:
            header = ("scale", "statistic", "b - a", "low", "high", "p", "responses", "resampled", "clusters", "note")
            print_rows(header, differences)
        print(f"report: {page}", file=sys.stderr)


def _run(warehouse: Path, run_id: str | None) -> Run:
    """The run of this id, also one that did not finish; without an id the last that finished and is no experiment's
    arm."""
    from rubricflow.tasks.core.store.catalogue import follow_move

    # Asking about runs makes no warehouse where there is none.
    house = Warehouse.open(warehouse) if warehouse.is_dir() else None
    if house:
        follow_move(house)
    finished = house.runs() if house else []
    if house and run_id in house.begun():
        return house.run(str(run_id))
    own_run = [name for name in finished if name not in house.arms()] if house else []
    if house and own_run and not run_id:
        return house.run(own_run[-1])
    label = f"run {run_id!r}" if run_id else "finished run"
    raise UserError(
        f"no {label} in {house.place if house else warehouse}; finished are: {', '.join(finished) or 'none'}"
    )
