"""The commands `sql` and `columns`: a run's tables asked in SQL, and what their columns hold."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder, print_rows
from rubricflow.flows.finished_runs import find_run, settle_scores
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import columns as described
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.store.catalogue import ask, questions, raters


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
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Prints the answer of a query over a run, or what can be asked."""
    if query is None:
        print_rows(["question", "what it asks"], questions().items())
        return
    values = {name: value for name, _, value in (pair.partition("=") for pair in parameters or [])}
    chosen = find_run(warehouse, run)
    settle_scores(chosen)
    print(f"run {chosen.run_id}, scores by {', '.join(raters(chosen)) or 'nobody'}", file=sys.stderr)
    answer = ask(chosen, query, values, other_files)
    print_rows(answer.columns, answer.fetchall())


def columns(table: Annotated[str | None, typer.Argument(help="A table; all of them if not given.")] = None) -> None:
    """Prints the columns of a table, or of all."""
    if table is not None and table not in BY_NAME:
        raise UserError(f"no table '{table}'; there are {', '.join(BY_NAME)}")
    print_rows(
        ["table", "column", "type", "null", "what it holds"],
        [
            (row.table, *column)
            for row in ([BY_NAME[table]] if table else BY_NAME.values())
            for column in described(row)
        ],
    )
