"""The command `fetch`: a run brought into a folder of this machine, where people review it and grades are written."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, RunId, WarehouseFolder
from rubricflow.flows.finished_runs import find_run
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.store.catalogue import MANIFEST, manifest_of, write_database
from rubricflow.tasks.core.store.files import sealed
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


def fetch(
    run: RunId = None,
    to: Annotated[str, typer.Option("--to", help="The folder: a warehouse, or a new one.")] = DEFAULT_WAREHOUSE,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Copies a finished run, and those that it was compared with, and prints what to type next. UserError where the
    run is in that folder, or there is none."""
    found = find_run(warehouse, run)
    target = Warehouse.open(to)
    if target.place == found.warehouse.place:
        raise UserError(f"{found.run_id} is in {target.place}; name another folder: --to FOLDER")
    others = manifest_of(found)["identity"].get("beside", {}).values()
    files = sum(fetched(one, target) for one in (*map(found.warehouse.run, others), found))
    write_database(target)
    print(f"{found.run_id}: {say.plural(files, 'file')} in {target.place}")
    print(f"Next: rubricflow review STUDY --warehouse {target.place}, and grades and feedback the same way")


def fetched(run: Run, target: Warehouse) -> int:
    """Copies a finished run into the warehouse of a folder; how many files that were."""
    manifest = manifest_of(run)
    other = target.run(run.run_id)
    with other.alone():
        files = run.copy_to(other)
        study = (run.warehouse.root.resolve() / manifest["study_folder"]).resolve()
        manifest["study_folder"] = os.path.relpath(study, target.root.resolve())
        target.write(other.folder / MANIFEST, sealed(manifest))
    return files
