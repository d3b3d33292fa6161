"""Who handed in a file, by its name: what platforms make of students' and files' names, and names that only look so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.store.essays import BLACKBOARD, CANVAS, MOODLE, Handed, handed_in, natural, receipt_of

NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=20)
LETTERS = st.text(st.characters(categories=("Ll", "Lo")), min_size=1, max_size=15)
USERS = st.from_regex(r"[a-z][a-z0-9.-]{0,11}", fullmatch=True)
IDS = st.integers(1, 10**9)
FILES = st.from_regex(r"[A-Za-z0-9 _.-]{1,20}\.(?:docx|pdf|txt)", fullmatch=True)


def of(paths: list[str]) -> dict[str, Handed]:
    return {one.student: one for one in handed_in(paths)[1]}


@settings(max_examples=20)
@given(
    st.dictionaries(
        IDS, st.tuples(NAMES, st.lists(FILES, min_size=1, max_size=3, unique=True)), min_size=1, max_size=6
    ),
    st.sampled_from(["_file_/", "_file/", "_file_"]),
)
def test_moodle_names_a_student_before_the_number(students: dict[int, tuple[str, list[str]]], how: str) -> None:
    paths = [
        f"{name}_{number}_assignsubmission{how}{file}" for number, (name, files) in students.items() for file in files
    ]
    platform, handed = handed_in(paths)
    assert platform is MOODLE
    assert {one.student: (one.name, len(one.paths)) for one in handed} == {
        f"Participant {number}": (name, len(files)) for number, (name, files) in students.items()
    }
    assert sorted(path for one in handed for path in one.paths) == sorted(paths)


@settings(max_examples=20)
@given(
    st.dictionaries(
        IDS,
        st.tuples(LETTERS, st.lists(FILES, min_size=1, max_size=3, unique=True), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_canvas_names_a_student_before_two_numbers(students: dict[int, tuple[str, list[str], bool]]) -> None:
    paths = [
        f"{name}{'_LATE' * late}_{number}_{place}_{file}"
        for number, (name, files, late) in students.items()
        for place, file in enumerate(files, 100)
    ]
    platform, handed = handed_in(paths)
    assert platform is CANVAS
    assert {(one.student, one.name) for one in handed} == {
        (str(number), name) for number, (name, _, _) in students.items()
    }
    assert sorted(path for one in handed for path in (*one.paths, *one.earlier)) == sorted(paths)


@settings(max_examples=20)
@given(
    st.from_regex(r"[A-Za-z0-9 _]{1,15}", fullmatch=True),
    st.dictionaries(USERS, st.lists(FILES, min_size=1, max_size=2, unique=True), min_size=1, max_size=6),
)
def test_blackboard_names_a_student_after_the_assignment(assignment: str, students: dict[str, list[str]]) -> None:
    when = "attempt_2026-11-02-09-31-00"
    paths = [f"{assignment}_{user}_{when}_{file}" for user, files in students.items() for file in files]
    paths += [f"{assignment}_{user}_{when}.txt" for user in students]
    platform, handed = handed_in(paths)
    assert platform is BLACKBOARD
    assert [one.student for one in handed] == list(students)
    assert all(len(one.receipts) == 1 and len(one.paths) == len(students[one.student]) + 1 for one in handed)


@settings(max_examples=20)
@given(st.lists(st.one_of(NAMES, FILES, st.builds("{}/{}".format, NAMES, FILES)), min_size=1, max_size=8, unique=True))
def test_every_file_is_one_students_and_no_two_names_are_joined(paths: list[str]) -> None:
    _, handed = handed_in(paths)
    every = [path for one in handed for path in (*one.paths, *one.earlier)]
    assert sorted(every) == sorted(paths)
    assert len({one.student for one in handed}) == len(handed)


@pytest.mark.parametrize(
    ("paths", "students"),
    [
        (["anna.docx", "ben.pdf", "anna.pdf"], {"anna": ["anna.docx", "anna.pdf"], "ben": ["ben.pdf"]}),
        (["Anna/1.txt", "Anna/2.txt", "Ben/1.txt"], {"Anna": ["Anna/1.txt", "Anna/2.txt"], "Ben": ["Ben/1.txt"]}),
        (
            ["anna_2026_11_essay.docx", "ben_2026_11_essay.docx"],
            {"anna_2026_11_essay": ["anna_2026_11_essay.docx"], "ben_2026_11_essay": ["ben_2026_11_essay.docx"]},
        ),
        (
            ["berg_1_2_a.docx", "lind_2_3_b.docx", "notes.txt"],
            {"1": ["berg_1_2_a.docx"], "2": ["lind_2_3_b.docx"], "notes": ["notes.txt"]},
        ),
    ],
)
def test_other_files_are_their_folders_or_their_own(paths: list[str], students: dict[str, list[str]]) -> None:
    assert {student: list(one.paths) for student, one in of(paths).items()} == students


def test_what_was_typed_in_moodle_comes_before_what_was_attached() -> None:
    folder = "Berg_7_assignsubmission_{}_/{}"
    paths = [
        folder.format(*file)
        for file in (("file", "page 10.txt"), ("file", "page 2.txt"), ("onlinetext", "onlinetext.html"))
    ]
    assert of(paths)["Participant 7"].paths == (paths[2], paths[1], paths[0])


@pytest.mark.parametrize(
    ("files", "counting"),
    [
        (["essay.docx", "essay-1.docx"], ["essay-1.docx"]),
        (["essay-2.docx", "essay.docx", "essay-1.docx", "notes.pdf"], ["essay-2.docx", "notes.pdf"]),
        (["chapter-1.docx", "chapter-2.docx"], ["chapter-1.docx", "chapter-2.docx"]),
        (["essay.docx", "essay-1.pdf"], ["essay.docx", "essay-1.pdf"]),
    ],
)
def test_what_was_handed_in_anew_in_canvas_replaces_what_was_there(files: list[str], counting: list[str]) -> None:
    paths = [f"berg_7_{number}_{file}" for number, file in enumerate(files, 50)]
    handed = of(paths)["7"]
    assert [path.split("_", 3)[3] for path in handed.paths] == counting
    assert {*handed.paths} | {*handed.earlier} == {*paths}


def test_the_last_attempt_in_blackboard_counts() -> None:
    paths = [f"Essay_aberg_attempt_2026-11-0{day}-09-31-00_{name}" for day, name in ((9, "b.txt"), (2, "a.txt"))]
    assert of(paths)["aberg"].paths == (paths[0],)
    assert of(paths)["aberg"].earlier == (paths[1],)


RECEIPT = """Name: Anna Berg (a_berg)
Assignment: Essay 1
Date Submitted: Monday, 2 November 2026 09:31:00 o'clock CET
Current Grade: Needs Grading

Submission Field:
{}

Comments:
There are no student comments for this assignment.

Files:
\tOriginal filename: essay.docx
\tFilename: Essay 1_a_berg_attempt_2026-11-02-09-31-00_essay.docx
"""


@pytest.mark.parametrize("typed", ["Soap has two ends.\n\nNote: one likes fat.", ""])
def test_a_receipt_tells_the_student_and_what_was_typed(typed: str) -> None:
    words = typed or "There is no student submission text data for this assignment."
    assert receipt_of(RECEIPT.format(words), alone=False) == ("a_berg", "Anna Berg", typed)


def test_a_receipt_in_another_language_is_read_where_it_is_all_there_is() -> None:
    receipt = (
        "Name: Anna Berg (aberg)\nAufgabe: Essay\n\nEinreichungsfeld:\nSeife hat zwei Enden.\n\nKommentare:\nKeine\n"
    )
    assert receipt_of(receipt, alone=True) == ("aberg", "Anna Berg", "Seife hat zwei Enden.")
    assert receipt_of(receipt, alone=False)[2] == ""


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_names_have_an_order_in_which_page_2_comes_before_page_10(names: list[str]) -> None:
    ordered = sorted([*names, "page 10", "page 2"], key=natural)
    assert ordered.index("page 2") < ordered.index("page 10")
