"""The command `verify`: are runs, replies and votes of a warehouse what was written?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder
from rubricflow.flows.plan import inputs
from rubricflow.tasks.core.contracts.errors import StoreError, UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.llm.reply_store import are_there, open_replies, shown_place
from rubricflow.tasks.core.store.catalogue import DATABASE, MANIFEST, manifest_of, reads_elsewhere
from rubricflow.tasks.core.store.manifest import AmountAndProblems, Look, look_at_run, strays, timed
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.review.ledger import LEDGER, Ledger

_DAY_S = 86_400.0
"""A file without a mark may be one that is being written; after so long nobody will mark it."""


def verify(
    run: Annotated[str | None, typer.Argument(help="Run id; all runs if not given.")] = None,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="First remove what killed writers left: files without a mark, older than a day."),
    ] = False,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Prints a line for each look; UserError with all that is wrong, or where there is no such run or warehouse."""
    folder = Path(warehouse)
    if not folder.is_dir():
        raise UserError(f"there is no warehouse {folder}")
    opened = Warehouse.open(folder)
    if sweep:
        swept = sum(opened.run(name).sweep(_DAY_S) for name in opened.begun() if run in (None, name))
        print(f"swept: {swept:,} files that no done-mark names")
    problems: dict[str, None] = {}
    for look in look_at(opened, run):
        print(f"{look.subject}: {look.amount} ({look.seconds:.1f} s){' WRONG' if look.problems else ''}")
        problems |= dict.fromkeys(look.problems)
    if problems:
        raise UserError("\n  ".join([f"{len(problems)} wrong in {opened.place}:", *problems]))
    print(f"all of it is as it was written: {opened.place}")


def look_at(warehouse: Warehouse, run_id: str | None) -> Iterator[Look]:
    """Looks at a run, or at all of a warehouse, and at its replies and votes. UserError where there is no such run."""
    there = warehouse.begun()
    if run_id is not None and run_id not in there:
        raise UserError(f"no run '{run_id}' in {warehouse.place}; there are {', '.join(there) or 'none'}")
    for name in [run_id] if run_id else there:
        run = warehouse.run(name)
        for look in look_at_run(run):
            yield look._replace(subject=f"{name}: {look.subject}")
        if run.fetched(MANIFEST).exists():
            yield timed(f"{name}: inputs", partial(_inputs, run))
            reports = [file for file in warehouse.names(run.folder) if file.endswith(".html")]
            yield Look(f"{name}: reports", ", ".join(reports) or "none", 0.0, ())
        else:
            yield Look(f"{name}: manifest", "none: the run did not finish, or is part of another", 0.0, ())
    if not (warehouse.mirrored or run_id):
        yield timed("files in no run", partial(strays, warehouse))
        yield timed(DATABASE, partial(_views, warehouse))
    if warehouse.keeps_replies and are_there(warehouse.replies):
        yield timed(Path(shown_place(warehouse.replies)).name, partial(_replies, warehouse.replies))
    votes = warehouse.root / LEDGER
    if votes.exists():
        yield timed(LEDGER, partial(_votes, votes))


def _inputs(run: Run) -> AmountAndProblems:
    """Files that changed since, or are gone, are listed: they are no fault of the run."""
    manifest = manifest_of(run)
    before: dict[str, str] = manifest["identity"]["inputs"]
    try:
        study = Study.model_validate(manifest["identity"]["study"])
    except ValidationError as error:
        raise StoreError(f"{run.place}/{MANIFEST}: its study is of another version") from error
    now = inputs(study, run.warehouse.root / manifest["study_folder"])
    gone = sorted(name for name in before if name not in now)
    other = sorted(name for name in before if now.get(name, before[name]) != before[name])
    notes = [f"{len(before) - len(gone) - len(other)} of {len(before)} as they were"]
    notes += [f"gone: {', '.join(gone)}"] if gone else []
    notes += [f"changed since: {', '.join(other)}"] if other else []
    return "; ".join(notes), []


def _replies(place: str | Path) -> AmountAndProblems:
    with open_replies(place, read_only=True) as store:
        looked = store.look()
    notes = f"{looked.rows:,} replies"
    notes += f", {looked.unsealed:,} of them stored by a version that did not seal them" if looked.unsealed else ""
    return notes, [f"{shown_place(place)}: {problem}" for problem in looked.problems]


def _views(warehouse: Warehouse) -> AmountAndProblems:
    if reads_elsewhere(warehouse):
        rule = "its views read another folder: the warehouse was moved or copied; `rubricflow sql` makes them anew"
        return "moved", [f"{warehouse.root / DATABASE}: {rule}"]
    return "reads this folder" if (warehouse.root / DATABASE).exists() else "none", []


def _votes(path: Path) -> AmountAndProblems:
    with Ledger(path) as ledger:
        acts, problems = ledger.look()
    return f"{acts:,} acts", [f"{path}: {problem}" for problem in problems]
