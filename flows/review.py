"""The review page and its round trips: what an annotated study queued, or a graded one did not release. No Prefect run:
people take their time."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from rubricflow.flows.annotate import annotating
from rubricflow.flows.command_line import arguments
from rubricflow.flows.following import Following
from rubricflow.flows.plan import plan
from rubricflow.flows.settled import settle_scores
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.sheets import ENDINGS
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.text.formulas import guarded
from rubricflow.tasks.core.web.server import serve
from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Ballot, Board, QueuedCase
from rubricflow.tasks.people.review.label_studio import config, project, read_export
from rubricflow.tasks.people.review.ledger import Ledger, acts_of, ledger_file
from rubricflow.tasks.people.review.reviews import with_blindness
from rubricflow.tasks.people.review.settle import outcomes, valid_acts
from rubricflow.tasks.people.review.sheet import ReviewQuestion, as_csv, read_sheet
from rubricflow.tasks.people.review.waiting import open_board, proposed, waiting_labels, waiting_scores


def review(
    study_file: Path,
    warehouse: Path,
    limit: int | None,
    host: str,
    port: int,
    reviewers: tuple[str, ...],
    open_browser: bool,
) -> None:
    """Serves the page until it is stopped; InputError where nothing is queued, or the address needs reviewers."""
    access = Access(host, port, reviewers)
    votes = ledger_file(warehouse)
    board = board_of(study_file, warehouse, limit)
    for name, link in access.links().items():
        print(f"{name}: {link}")
    if not reviewers:
        print(f"review: {access.url()} (Ctrl-C stops it; votes are in {votes})")
    follow = following(study_file, warehouse, limit)
    if follow is not None:  # what it reads texts with takes seconds to load, and nobody shall wait for it
        threading.Thread(target=follow, args=(board.cases[0].response_id, {}), daemon=True).start()
    app = create_app(board, votes, access, follow)
    serve(app, host, port, open_browser and not reviewers)


def following(study_file: Path, warehouse: Path, limit: int | None) -> Following | None:
    """How scores follow from levels in a graded study's run; None for an annotated one, which has no scores."""
    study = load_study(study_file)
    return None if study.annotation else Following(plan(study_file, warehouse, limit).run, study)


def board_of(
    study_file: Path, warehouse: Path, limit: int | None = None, scored: Collection[str] = frozenset()
) -> Board:
    """The board of a study: its queue of labels where it is annotated, of scores where it is graded only.

    scored: responses whose scores are on it though nothing waits there any more.

    InputError where that was not done yet, or nothing waits.
    """
    study = load_study(study_file)
    job = (annotating if study.annotation else plan)(study_file, warehouse, limit)
    run, doing = job.run, "annotate" if study.annotation else "grade"
    if not run.done("queue" if study.annotation else "calibrate", "all"):
        place = run.warehouse.place
        rule = f"{study.name} is not there to review in {place}, as study, data and code are now"
        raise InputError(rule, file=study_file, hint=f"rubricflow {doing} {arguments(study_file, place, limit)}")
    if study.annotation is None:
        settle_scores(run, study)
    raters: dict[str, TableRef] = {"judge": run.ref(Judgments, "judge")} if study.annotation is None else {}
    for name in study.annotation.annotators if study.annotation else ():
        raters[name] = run.ref(Judgments, f"annotate-{name}")
    waiting = waiting_labels(run) if study.annotation else waiting_scores(run, scored)
    if not waiting:
        raise InputError(f"nothing of {study.name} waits for people", file=study_file)
    return open_board(run, study, waiting, raters, _taught(Warehouse.open(warehouse), study.name))


def take(study_file: Path, warehouse: Path, limit: int | None, to: Path) -> int:
    """Write the queue for a spreadsheet (.csv), or for Label Studio (.json, with its labelling configuration beside it
    as .xml); returns how many cases it holds. Neither machines' levels nor why a case waits are in it: who votes is
    blind. InputError where nobody is asked, as people marked all of it in the data."""
    board = board_of(study_file, warehouse, limit)
    waiting = [case for case in board.cases if not case.marked]
    if not waiting:
        raise InputError(f"nothing of {board.study} waits for people: they marked it in the data", file=study_file)
    questions = asked_of(replace(board, cases=tuple(waiting)))
    if _kind(to) == ".csv":
        write_atomically(to, as_csv(questions))
    else:
        tasks = project(questions)
        write_atomically(to.with_suffix(".xml"), config(questions).encode())
        write_atomically(to, json.dumps(tasks, ensure_ascii=True, indent=1).encode())
    return len({entry.case for entry in questions})


def bring(study_file: Path, warehouse: Path, limit: int | None, read: Path, rater: str | None) -> int:
    """Read votes from such a file into the ledger; returns how many acts it holds. InputError for what is wrong with
    it, and nothing is stored then."""
    votes = ledger_file(warehouse)
    board = board_of(study_file, warehouse, limit)
    questions = asked_of(board)
    if read.suffix.lower() in ENDINGS or _kind(read) == ".csv":
        acts = read_sheet(read, board.study, questions, rater)
    else:
        acts = read_export(read, board.study, questions)
    with Ledger(votes) as ledger:
        ledger.add_all(with_blindness(acts, ledger.acts(board.study)))
    return len(acts)


def settled(study_file: Path, warehouse: Path, limit: int | None, to: Path) -> int:
    """Write what people's votes on scores come to as a CSV (response_id, score, settled_by, split), which a study can
    name as an adjudicated rater's; returns how many scores are settled. Labels are settled by `adjudicate`.

    The split is 'chosen' for all but those that `next` drew by chance: a score that was looked at for its risk does not
    stand for others. An id that a spreadsheet would run as a formula has an apostrophe before it, and is known by it
    when the file is read."""
    study = load_study(study_file).name
    acts = [act for act in acts_of(warehouse, study) if act.subject_kind == "score"]
    board = board_of(study_file, warehouse, limit, {act.response_id for act in acts})
    current = dict[tuple[str, str | None], str]()
    for case in board.cases:
        current |= {(case.response_id, ballot.criterion_id): ballot.digest for ballot in board.ballots(case)}
    marked_at = {case.response_id: case.marked_at for case in board.cases}
    counted, by_chance = valid_acts(acts, current, marked_at), drawn(warehouse, study)
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["response_id", "score", "settled_by", "split"])
    with_score = {on: outcome for on, outcome in outcomes(counted).items() if outcome.value is not None}
    for (response, _), outcome in with_score.items():
        split = "" if response in by_chance else "chosen"
        rows.writerow([guarded(response), f"{outcome.value:g}", outcome.settled_by, split])
    write_atomically(to, text.getvalue().encode())
    return len(with_score)


def drawn(warehouse: Path, study: str) -> set[str]:
    """The responses that `next` drew by chance in any finished run of a study."""
    runs = runs_of(Warehouse.open(warehouse), study)
    return {row["response_id"] for run in runs for row in proposed(run) if row["sampled"] == "drawn"}


def asked_of(board: Board) -> list[ReviewQuestion]:
    """What the page asks, for people who answer elsewhere."""
    questions = list[ReviewQuestion]()
    for rank, case in enumerate(board.cases, 1):
        needed = (ballot for ballot in board.ballots(case) if ballot.is_needed)
        questions += [_question_of(case, ballot, rank) for ballot in needed]
    return questions


def _question_of(case: QueuedCase, ballot: Ballot, rank: int) -> ReviewQuestion:
    of_concept = bool(ballot.criterion_id)
    return ReviewQuestion(
        response_id=case.response_id,
        criterion_id=ballot.criterion_id,
        rank=rank,
        question=case.question,
        response=case.text,
        reference=case.reference,
        concept=ballot.text if of_concept else "",
        levels=tuple(option.text if of_concept else option.value for option in ballot.options),
    )


def _kind(path: Path) -> str:
    if path.suffix not in (".csv", ".json"):
        raise InputError("a queue is a .csv for a spreadsheet or a .json for Label Studio", file=path)
    return path.suffix


def who_said_what(study_file: Path, warehouse: Path) -> list[tuple[str, int, int, str]]:
    """(who, cases submitted, votes, last at) of everyone who has said something of a study."""
    acts = acts_of(warehouse, load_study(study_file).name)
    cases = {(act.rater_id, act.response_id) for act in acts if act.kind == "submit"}
    submitted = Counter(rater for rater, _ in cases)
    votes = Counter(act.rater_id for act in acts if act.kind == "vote")
    last = {act.rater_id: act.stored_at.isoformat(timespec="seconds") for act in acts}
    return [(name, submitted[name], votes[name], last[name]) for name in sorted(last)]


def _taught(house: Warehouse, study: str) -> Run | None:
    """The last finished run that trained a grader of this study."""
    trained = [run for run in runs_of(house, study) if run.done("bottleneck", "people")]
    return trained[-1] if trained else None


def runs_of(house: Warehouse, study: str) -> list[Run]:
    """The finished runs of a study, oldest first."""
    return [house.run(name) for name in house.runs() if name.rpartition("-")[0] == study]
