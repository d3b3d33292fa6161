"""Grades and feedback of a graded study, written for people. No Prefect run: the same run gives the same files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rubricflow.flows.command_line import arguments
from rubricflow.flows.plan import plan
from rubricflow.flows.settled import settle_scores
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.store.files import hand_out
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.gradebook.book import Gradebook
from rubricflow.tasks.grading.gradebook.credit import explains, parted
from rubricflow.tasks.grading.gradebook.files import as_csv, as_workbook
from rubricflow.tasks.grading.gradebook.folder import INDEX, PAGES, write_feedback
from rubricflow.tasks.grading.gradebook.platforms import Platform, platform_sheet
from rubricflow.tasks.grading.gradebook.sheets import about_sheet, answer_sheet, student_sheet, totals
from rubricflow.tasks.grading.gradebook.tables import read_gradebook
from rubricflow.tasks.grading.judge.regraded import score_follows
from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.grading.report.task import write_page

FORMATS = (".csv", ".xlsx")


def write_grades(
    study_file: Path,
    warehouse: Path,
    limit: int | None,
    to: Path,
    wide: bool = False,
    platform: Platform | None = None,
    include_waiting: bool = False,
    overwrite: bool = False,
    language: str | None = None,
) -> list[str]:
    """Write the grades of a study; returns what to say about them.

    language: that by which students are sorted by name; in the order of the data where not given. InputError where the
    study is not graded as it is now, or the file is not one that can be written.
    """
    _refuse(to, wide, platform, include_waiting)
    run = graded_run(study_file, warehouse, limit)
    book = gradebook_of(run, language)
    content, remarks = _grades(book, to, wide, platform, include_waiting)
    is_new = not to.parent.exists()
    hand_out(warehouse, to, content, overwrite)
    made = [f"{to.parent}: a new folder"] if is_new else []
    lines = [*made, f"{to}: {book.study}", *totals(book), *remarks, *_repeated(book)]
    if book.count("waits") and not run.warehouse.mirrored:
        lines.append(f"next: rubricflow review {arguments(study_file, warehouse, limit)}, then this command again")
    return lines


def write_feedback_pages(
    study_file: Path, warehouse: Path, limit: int | None, to: Path, language: str | None = None
) -> list[str]:
    """Write a page of feedback for every student of a study; returns what to say about them. Language and InputError as
    above."""
    run = graded_run(study_file, warehouse, limit)
    book = gradebook_of(run, language)
    pages = write_feedback(book, run, to)
    report = write_page(run)
    lines = [
        f"{to / INDEX}: the list of all students, for teachers only",
        f"{to / PAGES}: {say.plural(pages, 'page')}, one a student, to give out",
        f"{report}: the report, which leads from each answer to its page",
    ]
    return [*lines, *totals(book), *_unexplained(book)]


def graded_run(study_file: Path, warehouse: Path, limit: int | None) -> Run:
    """The finished run of a study, with what people have said of its scores until now."""
    job = plan(study_file, warehouse, limit)
    if not (job.run.done("evaluate", "all") and job.run.fetched("manifest.json").exists()):
        place = job.run.warehouse.place
        rule = f"{job.study.name} is not graded in {place}, as study, data and code are now"
        raise InputError(rule, file=study_file, hint=f"rubricflow grade {arguments(study_file, place, limit)}")
    settle_scores(job.run, job.study)
    return job.run


def gradebook_of(run: Run, language: str | None = None) -> Gradebook:
    """The gradebook of a run, see `read_gradebook`. InputError where it has no answer."""
    book = read_gradebook(run, points, language)
    if not book.answers:
        raise InputError(f"{book.study} has no graded answer")
    return book


def points(bundle: Bundle, levels: Mapping[str, int | None]) -> float | None:
    """What levels come to by a rubric; None where the judge gives the score as a whole."""
    return score(bundle, levels).score if score_follows(bundle) else None


def _refuse(to: Path, wide: bool, platform: Platform | None, include_waiting: bool) -> None:
    formats = FORMATS if platform is None else (".csv",)
    if to.suffix.lower() not in formats:
        endings = "a .csv for a spreadsheet or an .xlsx" if platform is None else f"a .csv: {platform} reads no other"
        raise InputError(f"grades are written to {endings}", file=to)
    if platform is not None and wide:
        raise InputError(f"{platform}'s form has columns of its own", field="--wide", hint="leave --wide out")
    if platform is not None and include_waiting:
        rule = f"scores that nobody has checked have no place in {platform}'s form"
        raise InputError(rule, field="--include-waiting", hint="leave it out, or leave --form out")


def _grades(
    book: Gradebook, to: Path, wide: bool, platform: Platform | None, include_waiting: bool
) -> tuple[bytes, tuple[str, ...]]:
    if platform is not None:
        sheet, remarks = platform_sheet(book, platform)
        return as_csv(sheet, for_spreadsheets=False), remarks
    grades = student_sheet(book, include_waiting) if wide else answer_sheet(book, include_waiting)
    if to.suffix.lower() == ".csv":
        return as_csv(grades), ()
    return as_workbook([grades, about_sheet(book, wide)]), ()


def _unexplained(book: Gradebook) -> list[str]:
    """How many scores stand on their page without criteria, and how many part from theirs."""
    scored = [answer for answer in book.answers if answer.final_score is not None]
    explained = [answer for answer in scored if explains(book.questions[answer.item_id], answer)]
    apart, bare = sum(parted(answer) is not None for answer in explained), len(scored) - len(explained)
    lines = []
    if apart:
        lines.append(
            f"{apart:,} of {say.plural(len(scored), 'score')} that people gave differ from what the criteria make: "
            "the pages say both"
        )
    if bare:
        rule = "stand without criteria: nothing was decided of them, or they make a score more than one step away"
        lines.append(f"{bare:,} of {say.plural(len(scored), 'score')} {rule}")
    return lines


def _repeated(book: Gradebook) -> list[str]:
    """A question that a student answered twice has no place in a total until one answer is left."""
    return [
        f"{student.display_name} answered {', '.join(sorted(student.repeated))} more than once: "
        "no such score counts in a total until the data keep one answer"
        for student in book.students
        if student.repeated
    ]
