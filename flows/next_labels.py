"""The command `next`: which responses of a graded study people should score next. No Prefect run: the same run gives
the same answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, StudyFile, WarehouseFolder, print_rows
from rubricflow.flows.plan import graded_plan
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.people import NextLabels
from rubricflow.tasks.core.display.verdict import needs_of, too_small_words
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.ordered import read_marked
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.formulas import csv_text, guarded, readable
from rubricflow.tasks.grading.calibrate.next_labels import (
    agreement,
    held_out,
    labels,
    next_labels,
    promise,
    read_agreement,
    read_items,
    read_predictions,
    read_promises,
)

SHEET = ("rank", "item_id", "response_id", "split", "question", "response", "score")
"""The columns of the file that people write scores into."""
_SHOWN = ("rank", "item_id", "response_id", "sampled", "why")


def propose_next(
    study: StudyFile,
    count: Annotated[int, typer.Option("--count", min=1, help="How many.")] = 20,
    to: Annotated[Path | None, typer.Option("--to", help="Write them to a .csv to write scores into.")] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
) -> None:
    """Prints what the labels support now and the responses to score; writes them for a spreadsheet, where wanted."""
    proposed = propose_labels(study, warehouse, limit, count)
    print(*proposed.told, sep="\n", file=sys.stderr)
    print_rows(_SHOWN, ([row[name] for name in _SHOWN] for row in proposed.rows))
    if to is not None:
        write_sheet(proposed.run, proposed.rows, to)
        print(f"{len(proposed.rows)} in {to}", file=sys.stderr)


class ProposedLabels(NamedTuple):
    told: list[str]
    """What the labels support now, in words."""
    rows: list[Record]
    """Of table `next_labels`, as many as were asked for."""
    run: Run


def propose_labels(study_file: str | Path, warehouse: str | Path, limit: int | None, count: int) -> ProposedLabels:
    """The next `count` responses to score, fewer where there are no more; they lead the queue of the run from then on.

    InputError where the study was not graded yet, as it is now.
    """
    job = graded_plan(study_file, warehouse, limit)
    run, study = job.run, job.study
    items = read_items(run, study)
    predictions = read_predictions(run)
    rows = next_labels(items, predictions, study, count)
    # A shorter proposal is a longer one's beginning: the longest stays.
    if not run.done("next", "all") or run.ref(NextLabels, "next").rows < len(rows):
        run.commit("next", "all", {NextLabels: rows})
    risks = held_out(items, predictions, study.release.tolerance)
    marked = read_marked(run, run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"), study.evaluation.target)
    needs = needs_of(study.release, marked)
    lines = [
        f"{study.name}: {labels(items)}",
        agreement(read_agreement(run)),
        promise(read_promises(run), risks, study.release, needs),
        too_small_words(needs),
        "" if rows else "no graded response is left without a label: there is nothing to ask",
    ]
    return ProposedLabels(list(filter(None, lines)), rows, run)


def write_sheet(run: Run, rows: list[Record], to: Path) -> None:
    """A CSV with question and response to write scores into, in UTF-8 with the byte order mark that spreadsheets want,
    which a study can name as it is: `scored: response_id`, `split: split` and a rater's `score`. It says nothing of
    what the machine gave; no cell of it runs as a formula."""
    wanted = pa.array((row["response_id"] for row in rows), pa.string())
    answers = run.table(Responses, "ingest", ["response_id", "text"], ds.field("response_id").isin(wanted))
    items = run.table(Items, "ingest", ["item_id", "question"])
    texts = dict(zip(answers["response_id"].to_pylist(), answers["text"].to_pylist(), strict=True))
    questions = dict(zip(items["item_id"].to_pylist(), items["question"].to_pylist(), strict=True))
    lines = list[tuple[object, ...]]([SHEET])
    for row in rows:
        split = "chosen" if row["sampled"] == "chosen" else ""
        item, response = row["item_id"], row["response_id"]
        words = (readable(questions[item]), readable(texts[response]))
        lines.append((row["rank"], guarded(item), guarded(response), split, *words, ""))
    write_atomically(to, csv_text(lines).encode("utf-8-sig", "replace"))
