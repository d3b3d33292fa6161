"""The command `votes`: the queue written for a spreadsheet or for Label Studio, votes read back, and settled."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, StudyFile, WarehouseFolder, print_rows
from rubricflow.flows.review import announce_if_answered, board_of, reviewed_run, runs_of
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.people import SettledScores
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.sheets import ENDINGS
from rubricflow.tasks.core.text.formulas import csv_text, guarded
from rubricflow.tasks.people.review.label_studio import config, project, read_export
from rubricflow.tasks.people.review.ledger import Ledger, acts_of, ledger_file
from rubricflow.tasks.people.review.reviews import with_blindness
from rubricflow.tasks.people.review.sheet import as_csv, questions_of, read_sheet
from rubricflow.tasks.people.review.waiting import proposed

BY_VOTES = ("one_vote", "agreed_votes", "majority", "discussion")
"""What settles a score, of `SettledScores.settled_by`, by votes."""


def votes(
    study: StudyFile,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the queue to a .csv, or a .json for Label Studio.")
    ] = None,
    read: Annotated[Path | None, typer.Option("--from", help="Read votes from this .csv or .json.")] = None,
    scores: Annotated[Path | None, typer.Option("--scores", help="Write the settled scores to this .csv.")] = None,
    rater: Annotated[str | None, typer.Option("--as", help="Whose votes a .csv holds.")] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
) -> None:
    """Writes, reads and settles what is named, in this order, and prints how much; where nothing is, who has voted."""
    file, folder = Path(study), Path(warehouse)
    if to is not None:
        print(f"{export_votes(file, folder, limit, to):,} cases in {to}")
    if read is not None:
        print(f"{import_votes(file, folder, limit, read, rater):,} acts of {rater or 'those named'} in {read}")
    if scores is not None:
        print(f"{write_settled(file, folder, limit, scores):,} settled scores in {scores}")
    if to is None and read is None and scores is None:
        acts = acts_of(folder, load_study(file).name)
        submitted = Counter(rater for rater, _ in {(a.rater_id, a.response_id) for a in acts if a.kind == "submit"})
        cast = Counter(act.rater_id for act in acts if act.kind == "vote")
        last = {act.rater_id: act.stored_at.isoformat(timespec="seconds") for act in acts}
        rows = ([name, submitted[name], cast[name], last[name]] for name in sorted(last))
        print_rows(["who", "cases submitted", "votes", "last at"], rows)


def export_votes(study_file: Path, warehouse: Path, limit: int | None, to: Path) -> int:
    """Write the queue for a spreadsheet (.csv), or for Label Studio (.json, with its labelling configuration as .xml
    next to it); returns how many cases it holds. Neither machines' levels nor why a case waits are in it: who votes is
    blind. InputError where nobody is asked, as people marked all of it in the data."""
    board = board_of(study_file, warehouse, limit)
    waiting = tuple(case for case in board.cases if not case.marked)
    if not waiting:
        why = ": they marked it in the data" if board.cases else ""
        raise InputError(f"nothing of {board.study} waits for people{why}", file=study_file)
    questions = questions_of(replace(board, cases=waiting))
    if _kind(to) == ".csv":
        write_atomically(to, as_csv(questions))
    else:
        tasks = project(questions)
        write_atomically(to.with_suffix(".xml"), config(questions).encode())
        write_atomically(to, json.dumps(tasks, ensure_ascii=True, indent=1).encode())
    return len(waiting)


def import_votes(study_file: Path, warehouse: Path, limit: int | None, read: Path, rater: str | None) -> int:
    """Read votes from such a file into the ledger; returns how many acts it holds. InputError for what is wrong with
    it, and nothing is stored then."""
    ledger_path = ledger_file(warehouse)
    board = board_of(study_file, warehouse, limit)
    questions = questions_of(board)
    if read.suffix.lower() in ENDINGS or _kind(read) == ".csv":
        acts = read_sheet(read, board.study, questions, rater)
    else:
        acts = read_export(read, board.study, questions)
    with Ledger(ledger_path) as ledger:
        ledger.add_all(with_blindness(acts, ledger.acts(board.study)))
    announce_if_answered(board, warehouse)
    return len(acts)


def _kind(path: Path) -> str:
    if path.suffix not in (".csv", ".json"):
        raise InputError("a queue is a .csv for a spreadsheet or a .json for Label Studio", file=path)
    return path.suffix


def write_settled(study_file: Path, warehouse: Path, limit: int | None, to: Path) -> int:
    """Write what people's votes on scores come to as a CSV (response_id, score, settled_by, split), which a study can
    name as an adjudicated rater's; returns how many scores are settled. Labels are settled by `adjudicate`.

    The split is 'chosen' for all but those that `next` drew by chance: a score that was looked at for its risk does not
    stand for others. An id that a spreadsheet would run as a formula has an apostrophe before it, and is known by it
    when the file is read."""
    study, run = reviewed_run(study_file, warehouse, limit)
    said = run.table(SettledScores, "settle").to_pylist() if run.done("settle", "all") else []
    settled = [row for row in said if row["score"] is not None and row["settled_by"] in BY_VOTES]
    by_chance = drawn_by_chance(warehouse, study.name)
    rows = [("response_id", "score", "settled_by", "split")]
    for row in settled:
        split = "" if row["response_id"] in by_chance else "chosen"
        rows.append((guarded(row["response_id"]), f"{row['score']:g}", row["settled_by"], split))
    write_atomically(to, csv_text(rows).encode())
    return len(settled)


def drawn_by_chance(warehouse: Path, study: str) -> set[str]:
    """The responses that `next` drew by chance in any finished run of a study."""
    return {
        row["response_id"] for run in runs_of(warehouse, study) for row in proposed(run) if row["sampled"] == "drawn"
    }
