"""A warehouse looked at: are runs, replies and votes what was written?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from rubricflow.flows.plan import inputs
from rubricflow.tasks.core.contracts.errors import StoreError, UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.llm.reply_store import are_there, open_replies, shown_place
from rubricflow.tasks.core.store.catalogue import DATABASE, reads_elsewhere
from rubricflow.tasks.core.store.recorded import MANIFEST, manifest_of
from rubricflow.tasks.core.store.verify import AmountAndProblems, Look, look_at_run, strays, timed
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.review.ledger import LEDGER, Ledger


def verified(folder: Path, run_id: str | None = None) -> Iterator[Look]:
    """Looks at a run, or at all of a warehouse, and at its replies and votes; each look says what is wrong.

    UserError where there is no such run or no warehouse.
    """
    if not folder.is_dir():
        raise UserError(f"there is no warehouse {folder}")
    house = Warehouse.open(folder)
    there = house.begun()
    if run_id is not None and run_id not in there:
        raise UserError(f"no run '{run_id}' in {house.place}; there are {', '.join(there) or 'none'}")
    for name in [run_id] if run_id else there:
        for look in _run(house.run(name)):
            yield look._replace(subject=f"{name}: {look.subject}")
    if not (house.mirrored or run_id):
        yield timed("files in no run", partial(strays, house))
        yield timed(DATABASE, partial(_views, house))
    if (not house.mirrored or house.replies_named) and are_there(house.replies):
        yield timed(Path(shown_place(house.replies)).name, partial(_replies, house.replies))
    if (folder / LEDGER).exists():
        yield timed(LEDGER, partial(_votes, folder / LEDGER))


def _run(run: Run) -> Iterator[Look]:
    yield from look_at_run(run)
    if run.fetched(MANIFEST).exists():
        yield timed("inputs", partial(_inputs, run))
        reports = [name for name in run.warehouse.names(run.folder) if name.endswith(".html")]
        yield Look("reports", ", ".join(reports) or "none", 0.0, ())
    else:
        yield Look("manifest", "none: the run did not finish, or is part of another", 0.0, ())


def _inputs(run: Run) -> AmountAndProblems:
    """Files that changed since are no fault of the run: that is told, as what is gone is."""
    manifest = manifest_of(run)
    before: dict[str, str] = manifest["identity"]["inputs"]
    if "study_folder" not in manifest:
        return f"{len(before)} files, in a folder that versions before did not record", []
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


def _views(house: Warehouse) -> AmountAndProblems:
    if reads_elsewhere(house):
        rule = "its views read another folder: the warehouse was moved or copied; `rubricflow sql` makes them anew"
        return "moved", [f"{house.root / DATABASE}: {rule}"]
    return "reads this folder" if (house.root / DATABASE).exists() else "none", []


def _votes(path: Path) -> AmountAndProblems:
    with Ledger(path) as ledger:
        acts, problems = ledger.look()
    return f"{acts:,} acts", [f"{path}: {problem}" for problem in problems]
