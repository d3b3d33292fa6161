"""Small files in the forms in which learning platforms export answers; what stands in them is invented."""

from __future__ import annotations

from pathlib import Path

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
    header = [
        "Last name",
        "First name",
        "Email address",
        "State",
        "Started on",
        "Completed",
        "Time taken",
        "Grade/10.00",
    ]
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
    texts = [
        "<p>Soap has <b>two</b> ends, and x &lt; y.</p><ul><li>fat</li><li>water</li></ul>",
        "<p>It foams.</p>",
        "",
    ]
    write_csv(
        path,
        header,
        [
            [
                "Participant 4711",
                "Ada Berg",
                "ada@s.example",
                handed_in,
                "15.00",
                "20.00",
                "Yes",
                day,
                texts[0],
                "-",
                "",
            ],
            ["Participant 4712", "Can Öz", "can@s.example", handed_in, "4.50", "20.00", "Yes", day, texts[1], "-", ""],
            ["Participant 4713", "Eva Lind", "eva@s.example", "No submission", "", "20.00", "Yes", "-", "", "-", ""],
        ],
    )
    return path


def canvas_quiz(folder: Path) -> Path:
    """Two questions of 4 and 2 points, and three students."""
    path = folder / CANVAS_QUIZ
    header = ["name", "id", "sis_id", "section", "section_id", "section_sis_id", "submitted", f"501: {WHY}", "4.0"]
    header += [f"502: {HOW}", "2.0", "n correct", "n incorrect", "score"]
    day = "2026-11-02 09:31:00 UTC"
    write_csv(
        path,
        header,
        [
            [
                "Ada Berg",
                "81",
                "s1",
                "7a",
                "3",
                "x",
                day,
                "It is hollow, and light.",
                "3.5",
                "Soap mixes.",
                "2.0",
                1,
                1,
                5.5,
            ],
            ["Can Öz", "82", "s2", "7b", "4", "y", day, "Steel is light.", "0.0", "It foams.", "0.0", 0, 2, 0],
            ["Eva Lind", "83", "s3", "7a", "3", "x", day, "It weighs as much.", "4.0", "", "0.0", 1, 1, 4],
        ],
    )
    return path


def blackboard_test(folder: Path) -> Path:
    """Two questions in another order for the second student, of which one is marked."""
    path = folder / BLACKBOARD_TEST
    kinds = ("Question ID", "Question", "Answer", "Possible Points", "Auto Score", "Manual Score")
    header = ["Username", "Last Name", "First Name", *(f"{kind} {n}" for n in (1, 2) for kind in kinds)]
    why, how = f"<p>{WHY}</p>", f"<p>{HOW}</p>"
    first = [
        "Question ID 1",
        why,
        "<p>It is <i>hollow</i>.</p>",
        "5",
        "",
        "3",
        "Question ID 2",
        how,
        "<p>Foam.</p>",
        "2",
        "",
        "1",
    ]
    second = ["Question ID 1", how, "<p>It mixes.</p>", "2", "", "2", "Question ID 2", why, "<p>Air.</p>", "5", "", "4"]
    write_csv(path, header, [["aberg", "Berg", "Ada", *first], ["coez", "Öz", "Can", *second]])
    return path
