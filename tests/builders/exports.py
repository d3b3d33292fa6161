"""Small files in the forms in which learning platforms export answers; what stands in them is invented."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.builders.documents import archive, column, docx, odt, pdf
from tests.builders.files import write_csv

MOODLE_QUIZ = "moodle_quiz.csv"
MOODLE_ASSIGNMENT = "moodle_assignment.csv"
CANVAS_QUIZ = "canvas_quiz.csv"
BLACKBOARD_TEST = "blackboard_test.csv"

WHY = "Why does a boat of steel float?"
HOW = "How does soap help to wash off fat?"
FLOATS = "It pushes away as much water as it weighs. The air inside makes it light for its size."
SOAP = "One end of soap holds on to fat and the other to water."


def moodle_quiz(folder: Path, questions: bool = True) -> Path:
    """Two questions, three students, the last one with nothing handed in to the second, and the line of averages."""
    path = folder / MOODLE_QUIZ
    header = ["Last name", "First name", "Email address", "State", "Started on", "Completed", "Time taken"]
    header += ["Grade/10.00"]
    when = ["Finished", "2 November 2026  9:05 AM", "2 November 2026  9:31 AM", "26 mins", "Not yet graded"]
    written = [("Berg", "Ada", "ada@school.example", "It is hollow.", "Soap mixes both."),
               ("Öz", "Can", "can@school.example", "Steel is light if x < 3 & dry.", "It foams."),
               ("Lind", "Eva", "eva@school.example", "It weighs as much as the water.", "-")]  # fmt: skip
    rows = []
    for last, first, mail, one, two in written:
        answers = [WHY, one, FLOATS, HOW, two, SOAP] if questions else [one, two]
        rows.append([last, first, mail, *when, *answers])
    columns = [f"{what} {n}" for n in (1, 2) for what in ("Question", "Response", "Right answer")]
    columns = columns if questions else ["Response 1", "Response 2"]
    average = ["Overall average", "", "", "", "", "", "", "-", *[""] * len(columns)]
    write_csv(path, [*header, *columns], [*rows, average])
    return path


def moodle_assignment(folder: Path) -> Path:
    """Three students, of which two have a grade of 20."""
    path = folder / MOODLE_ASSIGNMENT
    header = ["Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade", "Grade can be changed"]
    header += ["Last modified (submission)", "Online text", "Last modified (grade)", "Feedback comments"]
    handed_in, day = "Submitted for grading", "Monday, 2 November 2026, 9:05 AM"
    text = "<p>Soap has <b>two</b> ends, and x &lt; y.</p><ul><li>fat</li><li>water</li></ul>"
    rows = [
        ("Participant 4711", "Ada Berg", "ada@s.example", handed_in, "15.00", "20.00", "Yes", day, text),
        ("Participant 4712", "Can Öz", "can@s.example", handed_in, "4.50", "20.00", "Yes", day, "<p>It foams.</p>"),
        ("Participant 4713", "Eva Lind", "eva@s.example", "No submission", "", "20.00", "Yes", "-", ""),
    ]
    write_csv(path, header, [[*row, "-", ""] for row in rows])
    return path


def canvas_quiz(folder: Path) -> Path:
    """Two questions of 4 and 2 points, and three students."""
    path = folder / CANVAS_QUIZ
    header = ["name", "id", "sis_id", "section", "section_id", "section_sis_id", "submitted", f"501: {WHY}", "4.0"]
    header += [f"502: {HOW}", "2.0", "n correct", "n incorrect", "score"]
    day = "2026-11-02 09:31:00 UTC"
    ada = ["Ada Berg", "81", "s1", "7a", "3", "x", day, "It is hollow, and light.", "3.5", "Soap mixes.", "2.0"]
    rows = [
        [*ada, 1, 1, 5.5],
        ["Can Öz", "82", "s2", "7b", "4", "y", day, "Steel is light.", "0.0", "It foams.", "0.0", 0, 2, 0],
        ["Eva Lind", "83", "s3", "7a", "3", "x", day, "It weighs as much.", "4.0", "", "0.0", 1, 1, 4],
    ]
    write_csv(path, header, rows)
    return path


def blackboard_test(folder: Path) -> Path:
    """Two questions in another order for the second student, of which one is marked."""
    path = folder / BLACKBOARD_TEST
    kinds = ("Question ID", "Question", "Answer", "Possible Points", "Auto Score", "Manual Score")
    header = ["Username", "Last Name", "First Name", *(f"{kind} {n}" for n in (1, 2) for kind in kinds)]
    why, how = f"<p>{WHY}</p>", f"<p>{HOW}</p>"
    first = ["Question ID 1", why, "<p>It is <i>hollow</i>.</p>", "5", "", "3"]
    first += ["Question ID 2", how, "<p>Foam.</p>", "2", "", "1"]
    second = ["Question ID 1", how, "<p>It mixes.</p>", "2", "", "2", "Question ID 2", why, "<p>Air.</p>", "5", "", "4"]
    write_csv(path, header, [["aberg", "Berg", "Ada", *first], ["coez", "Öz", "Can", *second]])
    return path


ESSAYS: Mapping[str, tuple[str, str]] = {
    "4711": ("Ada Berg", "One end of soap holds on to fat. The other end holds on to water."),
    "4712": ("Can Öz", "Soap has two ends, and one of them likes fat; the water carries it away."),
    "4713": ("Eva Lind", "Soap foams. The foam takes the dirt with it, as far as I can see."),
}
"""Moodle's or Canvas's number of a student → name and essay."""
BROKEN = {"4714": "Finn Frey", "4715": "Gül Gök", "4716": "Ida Igel"}
"""Those who handed in a scan, a damaged document and a photograph."""


def moodle_submissions(folder: Path) -> Path:
    """Six students: a .docx, an .odt and, typed and attached, HTML and a PDF; a scan, a damaged .docx and a picture."""
    path = folder / "Soap-12-submissions.zip"
    (ada, first), (can, second), (eva, third) = ESSAYS.values()
    typed, attached = third.split(". ", 1)
    files = {
        f"{ada}_4711_assignsubmission_file_/essay.docx": docx(first),
        f"{can}_4712_assignsubmission_file_/Aufsatz.odt": odt(second),
        f"{eva}_4713_assignsubmission_file_/rest.pdf": pdf(column(attached, 30)),
        f"{eva}_4713_assignsubmission_onlinetext_/onlinetext.html": f"<p><b>{typed}</b>.</p>",
    }
    path.write_bytes(archive(files | _broken("{}_{}_assignsubmission_file_/{}")))
    return path


def canvas_submissions(folder: Path) -> Path:
    """The same six students, one late, one with a version handed in anew."""
    path = folder / "submissions.zip"
    first, second, third = (text for _, text in ESSAYS.values())
    files = {
        "bergada_4711_90001_essay.docx": docx(first),
        "özcan_LATE_4712_90002_essay.txt": second.encode(),
        "lindeva_4713_90003_essay.md": b"A draft that does not count.",
        "lindeva_4713_90004_essay-1.md": third.encode(),
    }
    path.write_bytes(archive(files | _broken("{0}_{1}_90009_{2}")))
    return path


def blackboard_submissions(folder: Path) -> Path:
    """The three students of ESSAYS: two with files, one of them at the second attempt, and one who typed the essay."""
    path = folder / "gradebook_Soap.zip"
    first, second, third = (text for _, text in ESSAYS.values())
    when = ("attempt_2026-11-02-09-31-00", "attempt_2026-11-03-10-00-00")
    nothing = "There is no student submission text data for this assignment."
    receipts = {("aberg", when[0]): nothing, ("can_oz", when[0]): nothing, ("can_oz", when[1]): nothing}
    receipts |= {("elind", when[0]): f"{third}\n"}
    names = {"aberg": "Ada Berg", "can_oz": "Can Öz", "elind": "Eva Lind"}
    files: dict[str, bytes | str] = {
        f"Essay 1_aberg_{when[0]}_essay.docx": docx(first),
        f"Essay 1_can_oz_{when[0]}_draft.docx": docx("A draft that does not count."),
        f"Essay 1_can_oz_{when[1]}_essay.docx": docx(second),
    }
    for (user, attempt), typed in receipts.items():
        files[f"Essay 1_{user}_{attempt}.txt"] = (
            f"Name: {names[user]} ({user})\nAssignment: Essay 1\nDate Submitted: Monday\n"
            "Current Grade: Needs Grading\n\n"
            f"Submission Field:\n{typed}\n\nComments:\nThere are no student comments for this assignment.\n\n"
            "Files:\n\tNo files were attached to this submission.\n"
        )
    path.write_bytes(archive(files))
    return path


def essay_folder(folder: Path) -> Path:
    """A plain folder of the same six, named by the students, with what a Mac leaves in it."""
    path = folder / "essays"
    path.mkdir()
    for name, text in ESSAYS.values():
        (path / f"{name}.docx").write_bytes(docx(text))
    for file, content in _broken("{0}{2}").items():
        (path / file.replace("scan", "").replace("essay", "").replace("photo", "")).write_bytes(content)
    (path / ".DS_Store").write_bytes(b"\0")
    return path


def _broken(form: str) -> dict[str, bytes]:
    scan, damaged, photo = (
        form.format(name, number, file)
        for (number, name), file in zip(BROKEN.items(), ("scan.pdf", "essay.docx", "photo.jpg"), strict=True)
    )
    return {scan: pdf([], picture=[0]), damaged: docx("Soap")[:300], photo: b"\xff\xd8\xff\xe0"}
