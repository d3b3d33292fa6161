"""The commands by which people take part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rubricflow.flows.command_line import HOUSE
from rubricflow.flows.commands.options import Limit, StudyFile, WarehouseFolder
from rubricflow.flows.terminal import for_people, print_rows


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
    with for_people():
        from rubricflow.flows.review import review as open_page

        open_page(study, warehouse, limit, host, port, tuple(reviewer or ()), browser)


def next(
    study: StudyFile,
    count: Annotated[int, typer.Option("--count", min=1, help="How many.")] = 20,
    to: Annotated[Path | None, typer.Option("--to", help="Write them to a .csv to write scores into.")] = None,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Propose which responses of a graded study people should score next, and say what the labels support until now.

    Some are chosen because they teach the mapping most, the others drawn by chance: only those count for the promise.
    """
    with for_people():
        from rubricflow.flows.next_labels import propose_labels, write_sheet

        proposed = propose_labels(study, warehouse, limit, count)
        for line in proposed.told:
            print(line, file=sys.stderr)
        columns = ["rank", "item_id", "response_id", "sampled", "why"]
        print_rows(columns, ([row[name] for name in columns] for row in proposed.rows))
        if to is not None:
            write_sheet(proposed.run, proposed.rows, to)
            print(f"{len(proposed.rows)} in {to}", file=sys.stderr)


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
    with for_people():
        from rubricflow.flows.review import bring, settled, take, who_said_what

        if to is not None:
            print(f"{take(study, warehouse, limit, to):,} cases in {to}")
        if read is not None:
            print(f"{bring(study, warehouse, limit, read, rater):,} acts of {rater or 'those named'} in {read}")
        if scores is not None:
            print(f"{settled(study, warehouse, limit, scores):,} settled scores in {scores}")
        if to is None and read is None and scores is None:
            print_rows(["who", "cases submitted", "votes", "last at"], who_said_what(study, warehouse))


ByName = Annotated[
    str | None,
    typer.Option(
        "--by-name",
        metavar="LANGUAGE",
        help="Sort students by last name as a language does (de, fr, sv); without it they come as in the data.",
    ),
]


def grades(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="The file to write: a .csv, or an .xlsx for a spreadsheet.")],
    wide: Annotated[bool, typer.Option("--wide", help="One row a student instead of one row an answer.")] = False,
    form: Annotated[
        Literal["moodle", "canvas"] | None, typer.Option("--form", help="As the learning platform takes grades in.")
    ] = None,
    include_waiting: Annotated[
        bool,
        typer.Option("--include-waiting", help="Also show, in columns of their own, scores that nobody has checked."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write over a file that is there and was changed.")
    ] = False,
    by_name: ByName = None,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Write the grades of a graded study, with what people decided; what waits for a person has no grade."""
    with for_people():
        from rubricflow.flows.gradebook import write_grades

        for line in write_grades(study, warehouse, limit, to, wide, form, include_waiting, overwrite, by_name):
            print(line)


def feedback(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="The folder to write: a new one, or one of an earlier time.")],
    by_name: ByName = None,
    warehouse: WarehouseFolder = HOUSE,
    limit: Limit = None,
) -> None:
    """Write a page of feedback for every student of a graded study, and a list of them all for the teacher."""
    with for_people():
        from rubricflow.flows.gradebook import write_feedback_pages

        for line in write_feedback_pages(study, warehouse, limit, to, by_name):
            print(line)
