"""The command `rubricflow`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from rubricflow.flows.commands import look, people, run, start
from rubricflow.flows.commands.options import with_replies

COMMANDS = (
    start.init,
    run.grade,
    run.graph,
    run.reward,
    run.serve,
    run.annotate,
    people.review,
    people.next,
    people.votes,
    people.grades,
    people.feedback,
    run.adjudicate,
    run.train,
    run.edit,
    run.laboratory,
    run.faithful,
    run.propose,
    run.experiment,
    run.validate,
    run.plan,
    look.sql,
    look.columns,
    look.report,
    look.verify,
    look.compare,
    look.replies,
)
"""In the order in which the help lists them."""
DOORS = """Grade open-ended text with rubrics. Three ways in:

  grade a class       rubricflow init answers.xlsx --to week3
  train with rewards  rubricflow reward data/demo/reward.yaml
  study methods       rubricflow experiment data/experiments/gradeagentops.yaml

rubricflow --help lists all commands, rubricflow COMMAND --help says what one does, and
rubricflow --install-completion lets the shell complete them."""
app = typer.Typer(pretty_exceptions_enable=False)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"rubricflow {version('rubricflow')}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help="Grade open-ended text with rubrics.")
def doors(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version, and end.")
    ] = False,
) -> None:
    """Where one begins, if no command is named."""
    if context.invoked_subcommand is None:
        print(DOORS)


for command in COMMANDS:
    app.command()(with_replies(command))

if __name__ == "__main__":
    app()
