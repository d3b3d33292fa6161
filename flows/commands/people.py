"""The commands by which people take part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import HOUSE, Limit, StudyFile, WarehouseFolder
from flows.terminal import for_people, print_rows


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
        from flows.review import review as open_page

        open_page(study, warehouse, limit, host, port, tuple(reviewer or ()), browser)


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
        from flows.review import bring, said, settled, take

        if to is not None:
            print(f"{take(study, warehouse, limit, to):,} cases in {to}")
        if read is not None:
            print(f"{bring(study, warehouse, limit, read, rater):,} acts of {rater or 'those named'} in {read}")
        if scores is not None:
            print(f"{settled(study, warehouse, limit, scores):,} settled scores in {scores}")
        if to is None and read is None and scores is None:
            print_rows(["who", "cases submitted", "votes", "last at"], said(study, warehouse))
