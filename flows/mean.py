"""The command `mean`: true means of a judge's scores, by people's labels on some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pandas as pd
import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder
from rubricflow.flows.finished_runs import find_run, read_finished
from rubricflow.flows.log_study import labels_of
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.data import Split
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Table, count, show, show_sentences
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import LABELS, VERDICTS, JudgeFacts, Log
from rubricflow.tasks.grading.trends.means import together
from rubricflow.tasks.grading.trends.task import keep_means


def mean(
    logs: Annotated[
        list[str], typer.Argument(help="Logs of a judge, or finished runs by their ids; two are compared.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option("--labels", help="People's labels: id, score, and probability where they were not drawn alike."),
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Prints the means and differences, and keeps them in the warehouse's table `means`.

    InputError where no answer has a label, or two logs of one name.
    """
    found = {}
    for name in logs:
        is_file = Path(name).exists()
        log = read_log([Path(name)]) if is_file else run_as_log(find_run(warehouse, name))
        key = Path(name).stem if is_file else name
        if key in found:
            raise InputError(f"two logs are called {key!r}", file=name, hint="rename one: names tell them apart")
        found[key] = log
    verdicts = together({name: log.verdicts for name, log in found.items()})
    first = next(iter(found.values()))
    whole = first._replace(verdicts=verdicts, scales={k: v for log in found.values() for k, v in log.scales.items()})
    people = labels_of(found.values(), labels, whole)
    if people.empty:
        raise InputError("no answer has a label of a person", field="--labels", hint="give a table of id, score")
    run, rows = keep_means(Warehouse.open(warehouse), verdicts, people)
    if not rows:
        raise InputError("no answer with a score has a label", file=labels)
    show_sentences([sentence(rows), assumption(people)])
    show([table(rows)])
    print(f"run: {run.run_id}")


def run_as_log(run: Run) -> Log:
    """A finished run's own scores, before calibration, which labels have seen, with people's as labels."""
    finished = read_finished(run)
    frame = score_frame(finished.scores, finished.study.evaluation.target, get_args(Split)).frame
    groups = [name for name in frame.columns if name.startswith("group:")]
    rows = pd.DataFrame(dict.fromkeys(VERDICTS), index=frame.index, dtype=object).assign(
        answer_id=frame["response_id"],
        case_id=frame["item_id"],
        group=frame[groups[0]] if groups else frame["item_id"],
        criterion="",
        sample=0,
        score=frame["raw"].astype(float),
        status=np.where(frame["raw"].notna(), "scored", "unscored"),
    )
    marked = frame[frame["target"].notna()]
    labels = pd.DataFrame(
        {
            "answer_id": marked["response_id"],
            "criterion": "",
            "rater": "people",
            "score": marked["target"],
            "split": None,
        }
    )
    return Log((run.run_id,), rows, labels[[*LABELS]], JudgeFacts("rubricflow", None, {}), {}, ())


def sentence(rows: list[Record]) -> str:
    """What came of it: the clearest difference of whole arms, or the only mean."""
    whole = [row for row in rows if row["slice"] == "all"]
    gaps = [row for row in whole if row["less"]]
    clear = [row for row in gaps if row["low"] is not None and row["low"] * row["high"] > 0]
    row = max(clear or gaps or whole[:1], key=lambda row: abs(row["value"]))
    ends = "" if row["low"] is None else f" [{say.number(row['low'])}, {say.number(row['high'])}]"
    n = f"by {say.plural(row['labels'], 'label')} on {say.plural(row['answers'], 'answer')}"
    if not gaps and len(whole) > 1:
        put = ", ".join(f"{row['arm']} at {say.number(row['by_judge'])}" for row in whole)
        return (
            f"The same answers are judged: their mean is {say.number(row['value'])}{ends} {n}, which is put by {put}."
        )
    if not gaps:
        more = (
            "" if row["to_halve"] is None else f"; {say.plural(row['to_halve'], 'more label')} would halve the interval"
        )
        return f"The mean of {row['arm']} is {say.number(row['value'])}{ends} {n}{more}."
    if row["low"] is None or row["low"] <= 0 <= row["high"]:
        return (
            f"Which of {row['less']} and {row['arm']} is better cannot be told: {say.signed(row['value'])}{ends} {n}."
        )
    word = "higher" if row["value"] > 0 else "lower"
    return f"{row['arm']} is {word} than {row['less']}: {say.signed(row['value'])}{ends} {n}."


def assumption(labels: pd.DataFrame) -> str:
    """What the intervals rest on."""
    left = int((labels["split"] == "chosen").sum())
    chosen = f" {say.plural(left, 'label')} chosen to teach are left out." if left else ""
    if "probability" in labels and labels["probability"].notna().any():
        return f"Labels count by the probability with which they were drawn, as the file says.{chosen}"
    return (
        f"Intervals hold if the labelled answers were drawn by chance; a column `probability` says otherwise.{chosen}"
    )


def table(rows: list[Record]) -> Table:
    lines = []
    for row in rows:
        cells = [
            Cell(row[value], row[low], row[high], digits=3, ends="interval")
            for value, low, high in (
                ("value", "low", "high"),
                ("by_labels", "labels_low", "labels_high"),
                ("by_judge", "judge_low", "judge_high"),
            )
        ]
        part = "all" if row["slice"] == "all" else f"{row['slice']} {row['value_of']}"
        arm = row["arm"] + (f" less {row['less']}" if row["less"] else "")
        halve = "–" if row["to_halve"] is None else say.count(row["to_halve"])
        lines.append((arm, part, *cells, count(row["labels"]), count(row["answers"]), halve))
    header = (
        "mean of",
        "of",
        "corrected",
        "labels alone",
        "judge alone, biased",
        "labels",
        "answers",
        "more labels to halve",
    )
    return Table("means", "Means with 95% intervals", header, lines)
