"""The command `rubricflow`."""

from __future__ import annotations

import typer

from flows.commands import look, people, run, start
from flows.commands.options import with_replies

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
app = typer.Typer(
    help="Grade open-ended text with rubrics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command()(with_replies(command))

if __name__ == "__main__":
    app()
