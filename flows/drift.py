"""The command `drift`: whether a judge, or what it judges, moved; looked at as often as one likes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder, extends
from rubricflow.flows.log_study import labels_of
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Table, count, show, show_sentences
from rubricflow.tasks.core.monitor.runs import flow, introduce
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import Log
from rubricflow.tasks.grading.trends.means import together
from rubricflow.tasks.grading.trends.moved import CHANNELS, Drift, drifted, observed
from rubricflow.tasks.grading.trends.task import drift_rows, keep_drift

MOVED = 3
"""The exit code of a command that found drift; 2 is a wrong input, as everywhere, 0 that nothing moved."""
SHOWN = 12
"""Channels of a printed table that did not move."""


@flow(name="drift", flow_run_name="{new}")
def drift(
    old: Annotated[Path, typer.Argument(help="The log from before, or a folder of logs by date.")],
    new: Annotated[Path, typer.Argument(help="The log of now, or a folder of logs by date, to which some are added.")],
    labels: Annotated[Path | None, typer.Option("--labels", help="People's labels on answers of either.")] = None,
    watch: Annotated[
        str | None, typer.Option("--watch", help="Keep what was seen under this name; the next look adds its logs.")
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> bool:
    """Prints what moved, where and by how much, and how many answers to label; returns whether anything did.

    InputError for a file that is no log, or where there is nothing to compare.
    """
    if watch is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", watch):
        raise InputError(f"{watch!r} is no name: letters, digits, - and _", field="--watch")
    before, after = dated(old), dated(new)
    if both := before.keys() & after.keys():
        after = {f"{name} (new)" if name in both else name: log for name, log in after.items()}
    introduce(watch or new.stem, flow="drift")
    verdicts = together({name: log.verdicts for name, log in (before | after).items()})
    first = next(iter(before.values()))
    people = labels_of((before | after).values(), labels, first._replace(verdicts=verdicts))
    seen = {name: observed(rows, people) for name, rows in verdicts.groupby("log", sort=False)}
    parts = {name: seen[name] for name in before}, {name: seen[name] for name in after}
    if watch is None:
        found = drifted(list(parts[0].values()), list(parts[1].values()))
        rows = drift_rows(found, list(after))
    else:
        run, found, rows = keep_drift(Warehouse.open(warehouse), watch, *parts)
        print(f"run: {run.run_id}")
    changes = first.judge.changes(next(reversed(after.values())).judge)
    show_sentences([f"The judge is another one: {'; '.join(changes)}."] if changes else [])
    show_sentences([sentence(found, rows)])
    show([table(rows)])
    return bool(found.found)


@extends(drift)
def command(**given: Any) -> None:
    """As `drift`; ends with exit code 3 where anything moved."""
    if drift(**given):
        raise typer.Exit(MOVED)


def dated(place: Path) -> dict[str, Log]:
    """Logs by name: one file, or what lies in a folder, by name, so that dates come in order."""
    if not place.exists():
        raise InputError("there is no such file or folder", file=place)
    files = sorted(path for path in place.iterdir() if not path.name.startswith(".")) if place.is_dir() else [place]
    if not files:
        raise InputError("holds no log", file=place)
    return {path.stem: read_log([path]) for path in files}


def sentence(found: Drift, rows: Sequence[Record]) -> str:
    """What came of it, in plain words."""
    kind = "the same cases, compared with themselves" if found.is_paired else "other cases"
    if not found.found:
        return f"Nothing moved beyond chance ({kind}): {say.plural(len(rows), 'figure')} were tested."
    row = next((row for row in rows if row["slice"] == "all"), rows[0])
    where = "" if row["slice"] == "all" else f" ({row['slice']} {row['value_of']})"
    what = f"{CHANNELS[row['channel']]}{where} went from {say.number(row['old'])} to {say.number(row['new'])}"
    others = f", and {len(found.found) - 1} more" if len(found.found) > 1 else ""
    return f"Something moved ({kind}): {what} since {row['since']}{others}; label {found.to_label} new answers."


def table(rows: Sequence[Record]) -> Table:
    """What moved, and below it the nearest to that."""
    moved = sum(row["moved"] for row in rows)
    lines = []
    for row in rows[: moved + SHOWN]:
        part = "all" if row["slice"] == "all" else f"{row['slice']} {row['value_of']}"
        lines.append(
            (
                CHANNELS[row["channel"]],
                part,
                "moved" if row["moved"] else "no",
                Cell(row["old"]),
                Cell(row["new"]),
                Cell(row["difference"], row["low"], row["high"], ends="interval"),
                count(row["n_old"]),
                count(row["n_new"]),
                row["since"] if row["moved"] else "",
                Cell(row["evidence"] / row["bar"], digits=2),
            )
        )
    header = ("what", "of", "moved", "before", "now", "difference", "n before", "n now", "since", "evidence / bar")
    notes = (
        "By chance alone anything reaches its bar (1) in at most 1 of 100 watches, however often one looks.",
        "Intervals are 95%, as if looked at once.",
    )
    return Table("drift", "What moved", header, lines, notes)
