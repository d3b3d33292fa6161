"""The command `calibrate`: how far the judge of another tool's log can be trusted, by some labels of people."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Criterion, LogFolder, WarehouseFolder
from rubricflow.flows.grade import grade
from rubricflow.flows.log_study import applied, labelled_log, study_place, write_study
from rubricflow.flows.next_labels import propose_labels
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.grading.logs.record import Log
from rubricflow.tasks.grading.logs.study import NEW, scored, study_of, written

_NEXT, _SHOWN = 20, 5


def calibrate(
    logs: Annotated[
        list[Path], typer.Argument(help="The log: a file, several, or their folder; forms are told by content.")
    ],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="People's labels: a table of id, (criterion), (rater), score.")
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--with", help="In place of labels: the folder of an earlier calibration of the same judge."),
    ] = None,
    criterion: Criterion = None,
    accept_shift: Annotated[
        bool,
        typer.Option(
            "--accept-shift", help="With another judge than the calibration's: apply it where no drift is found."
        ),
    ] = False,
    study: LogFolder = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="Write the scores: a .csv, or a .json in the form that inspect_ai, Langfuse or Phoenix take."
        ),
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Writes the log as a study, grades it without any model, and says which answers to label next."""
    if labels is not None and earlier is not None:
        raise InputError("give --labels, which calibrate, or --with, which applies an earlier calibration; not both")
    log, people = labelled_log(logs, labels, criterion)
    _say(log)
    if earlier is None and people.empty:
        rule = "there are no labels of people to calibrate by"
        raise InputError(
            rule, field="--labels", hint="give a table of id, score, or an earlier calibration: --with FOLDER"
        )
    folder, name = study_place(logs, study)
    made = study_of(log, people, name)
    if earlier is not None:
        made = applied(made, log, earlier, accept_shift)
    print(*made.remarks, sep="\n", end="\n" if made.remarks else "")
    file = write_study(made, folder, log)
    print(f"study: {file}")
    grade(study=str(file), warehouse=warehouse)
    proposed = propose_labels(file, warehouse, None, _NEXT)
    columns = ["response_id", "score", "low", "high", "risk", "route", "route_reason"]
    rows = scored(log, proposed.run.table(Predictions, "calibrate", columns).to_pandas())
    if earlier is not None:  # the run holds the answers that taught it, too
        print(f"of this log's own {len(rows):,} verdicts {rows['relied_on'].sum():,} can be relied on without a person")
    if to is not None:
        write_atomically(to, written(log, rows, to, datetime.now(UTC).isoformat()).encode())
        print(f"scores: {to}")
    if proposed.rows:
        names = [row["response_id"].removeprefix(NEW) for row in proposed.rows]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        options = {"--labels": labels, "--criterion": criterion, "--study": study}
        if str(warehouse) != DEFAULT_WAREHOUSE:
            options["--warehouse"] = warehouse
        chosen = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
        command = shlex.join(["rubricflow", "label", *map(str, logs), *chosen])
        print(f"label next: {', '.join(names[:_SHOWN])}{more}; on a page, with the labels that there are:\n  {command}")


def _say(log: Log) -> None:
    """What was read, before anything is made of it."""
    rows = log.verdicts
    version = f" {log.judge.version}" if log.judge.version else ""
    criteria = rows["criterion"].nunique()
    print(
        f"{log.judge.tool}{version}: {len(rows):,} verdicts on {rows['answer_id'].nunique():,} answers"
        + (f" by {criteria} criteria" if criteria > 1 else "")
    )
    states = rows["status"].value_counts()
    for state in ("refused", "failed", "unscored"):
        if state in states:
            print(f"{state}: {states[state]:,}")
    print(*log.remarks, sep="\n", end="\n" if log.remarks else "")
