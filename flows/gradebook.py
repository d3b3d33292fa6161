"""The commands `grades` and `feedback`: what a graded study hands out. No Prefect run: the same run gives the same
files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, StudyFile, WarehouseFolder, arguments
from rubricflow.flows.finished_runs import settle_scores
from rubricflow.flows.plan import graded_plan
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.store.files import hand_out
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.gradebook.book import Gradebook, explains, parted
from rubricflow.tasks.grading.gradebook.folder import INDEX, PAGES, write_feedback
from rubricflow.tasks.grading.gradebook.sheets import (
    Platform,
    about_sheet,
    answer_sheet,
    as_csv,
    as_workbook,
    platform_sheet,
    student_sheet,
    totals,
)
from rubricflow.tasks.grading.gradebook.tables import read_gradebook
from rubricflow.tasks.grading.judge.score import score, score_follows
from rubricflow.tasks.grading.report.task import write_page

FORMATS = (".csv", ".xlsx")
ByName = Annotated[
    str | None,
    typer.Option(
        "--by-name",
        metavar="LANGUAGE",
        help="Sort students by last name as a language does (de, fr, sv); without it they come as in the data.",
    ),
]


def grades(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="The file to write: a .csv, or an .xlsx for a spreadsheet.")],
    wide: Annotated[bool, typer.Option("--wide", help="One row a student instead of one row an answer.")] = False,
    form: Annotated[Platform | None, typer.Option("--form", help="As the learning platform takes grades in.")] = None,
    include_waiting: Annotated[
        bool,
        typer.Option("--include-waiting", help="Also show, in columns of their own, scores that nobody has checked."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write over a file that is there and was changed.")
    ] = False,
    by_name: ByName = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
) -> None:
    """Writes the grades of a study and prints what to know about them.

    InputError where the study is not graded as it is now, or the file is not one that can be written.
    """
    if to.suffix.lower() not in (FORMATS if form is None else (".csv",)):
        endings = "a .csv for a spreadsheet or an .xlsx" if form is None else f"a .csv: {form} reads no other"
        raise InputError(f"grades are written to {endings}", file=to)
    if form is not None and wide:
        raise InputError(f"{form}'s form has columns of its own", field="--wide", hint="leave --wide out")
    if form is not None and include_waiting:
        rule = f"scores that nobody has checked have no place in {form}'s form"
        raise InputError(rule, field="--include-waiting", hint="leave it out, or leave --form out")
    run = graded_run(study, warehouse, limit)
    book = gradebook_of(run, by_name)
    remarks: tuple[str, ...] = ()
    if form is not None:
        sheet, remarks = platform_sheet(book, form)
        content = as_csv(sheet, for_spreadsheets=False)
    else:
        sheet = student_sheet(book, include_waiting) if wide else answer_sheet(book, include_waiting)
        content = as_csv(sheet) if to.suffix.lower() == ".csv" else as_workbook([sheet, about_sheet(book, wide)])
    is_new = not to.parent.exists()
    hand_out(Path(warehouse), to, content, overwrite)
    if is_new:
        print(f"{to.parent}: a new folder")
    print(f"{to}: {say.visible(book.study)}", book.verdict.words, *totals(book), *remarks, *_repeated(book), sep="\n")
    if book.count("waits") and not run.warehouse.mirrored:
        print(f"next: rubricflow review {arguments(study, warehouse, limit)}, then this command again")


def feedback(
    study: StudyFile,
    to: Annotated[Path, typer.Option("--to", help="The folder to write: a new one, or one of an earlier time.")],
    by_name: ByName = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
) -> None:
    """Writes a page of feedback for every student of a study and prints what to know about them; InputError where the
    study is not graded as it is now."""
    run = graded_run(study, warehouse, limit)
    book = gradebook_of(run, by_name)
    pages = write_feedback(book, run, to)
    report = write_page(run)
    print(f"{to / INDEX}: the list of all students, for teachers only")
    print(f"{to / PAGES}: {say.plural(pages, 'page')}, one a student, to give out")
    print(f"{report}: the report, which leads from each answer to its page")
    warning = [f"warning: {book.quotes.warning}"] if book.quotes.warning else []
    print(book.verdict.words, *totals(book), *_unexplained(book), *warning, sep="\n")


def graded_run(study_file: str, warehouse: str, limit: int | None) -> Run:
    """The finished run of a study, with what people have said of its scores until now."""
    job = graded_plan(study_file, warehouse, limit)
    settle_scores(job.run, job.study)
    return job.run


def gradebook_of(run: Run, language: str | None) -> Gradebook:
    """The gradebook of a run, see `read_gradebook`. InputError where it has no answer."""
    book = read_gradebook(run, points, language)
    if not book.answers:
        raise InputError(f"{book.study} has no graded answer")
    return book


def points(bundle: Bundle, levels: Mapping[str, int | None]) -> float | None:
    """What levels come to by a rubric; None where the judge gives the score as a whole."""
    return score(bundle, levels).score if score_follows(bundle) else None


def _unexplained(book: Gradebook) -> list[str]:
    """How many scores stand on their page without criteria, and how many part from theirs."""
    scored = [answer for answer in book.answers if answer.final_score is not None]
    explained = [answer for answer in scored if explains(book.questions[answer.item_id], answer)]
    apart = sum(parted(answer) is not None for answer in explained)
    bare = len(scored) - len(explained)
    lines = []
    if apart:
        lines.append(
            f"{apart:,} of {say.plural(len(scored), 'score')} that people gave differ from what the criteria make: "
            "the pages say both"
        )
    if bare:
        rule = "stand without criteria: nothing was decided of them, or the judge's score is more than one step away"
        lines.append(f"{bare:,} of {say.plural(len(scored), 'score')} {rule}")
    return lines


def _repeated(book: Gradebook) -> list[str]:
    """A question that a student answered twice has no place in a total until one answer is left."""
    return [
        f"{say.visible(student.display_name)} answered {say.visible(', '.join(sorted(student.repeated)))} "
        "more than once: "
        "no such score counts in a total until the data keep one answer"
        for student in book.students
        if student.repeated
    ]
