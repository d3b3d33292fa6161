"""Folders of essays as tables: a row a student, whatever made the folder; and archives that mean harm."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store import essays
from rubricflow.tasks.core.store.cells import EssayCell
from rubricflow.tasks.core.store.essays import (
    BLACKBOARD,
    CANVAS,
    MOODLE,
    Handed,
    essay_files,
    essay_rows,
    essay_words,
    handed_in,
    natural,
    receipt_of,
)
from tests.builders import exports
from tests.builders.documents import archive, docx
from tests.builders.exports import BROKEN, ESSAYS


def read(path: Path) -> dict[str, tuple[str | None, EssayCell]]:
    return {student: (name, cell) for student, name, cell, _, _ in essay_rows(path)}


def reasons(path: Path) -> list[str | None]:
    return [cell.unread for _, cell in read(path).values()]


UNREAD = ["file_without_text", "file_damaged", "file_type"]


def test_moodles_submissions_are_a_row_a_student(tmp_path: Path) -> None:
    found = read(exports.moodle_submissions(tmp_path))
    names = {f"Participant {number}": name for number, (name, _) in ESSAYS.items()}
    assert {student: name for student, (name, _) in found.items()} == names | {
        f"Participant {number}": name for number, name in BROKEN.items()
    }
    texts = [cell.text for _, cell in found.values()]
    assert [" ".join(text.split()) for text in texts] == [*(text for _, text in ESSAYS.values()), "", "", ""]
    assert [cell.unread for _, cell in found.values()] == [None, None, None, *UNREAD]
    joined = found["Participant 4713"][1].joined or ""
    assert joined.index("onlinetext.html") < joined.index("rest.pdf")
    assert "scan.pdf: page 1 of 1 is a picture" in (found["Participant 4714"][1].why or "")


def test_canvas_submissions_are_a_row_a_student(tmp_path: Path) -> None:
    path = exports.canvas_submissions(tmp_path)
    with zipfile.ZipFile(path) as source:
        assert any("_LATE_" in name for name in source.namelist())
    found = read(path)
    assert {student: cell.text for student, (_, cell) in found.items() if cell.text} == {
        number: text for number, (_, text) in ESSAYS.items()
    }
    assert found["4713"][1].replaced == "lindeva_4713_90003_essay.md"
    assert found["4711"][0] == "bergada"


def test_blackboards_submissions_are_a_row_a_student(tmp_path: Path) -> None:
    found = read(exports.blackboard_submissions(tmp_path))
    assert {student: name for student, (name, _) in found.items()} == {
        "aberg": "Ada Berg",
        "can_oz": "Can Öz",
        "elind": "Eva Lind",
    }
    assert [cell.text for _, cell in found.values()] == [text for _, text in ESSAYS.values()]
    assert "draft" in (found["can_oz"][1].replaced or "")


def test_a_plain_folder_and_a_zip_of_it_say_the_same(tmp_path: Path) -> None:
    folder = exports.essay_folder(tmp_path)
    found = read(folder)
    assert [*found] == sorted([*(name for name, _ in ESSAYS.values()), *BROKEN.values()])
    zipped = tmp_path / "essays.zip"
    zipped.write_bytes(archive({f"essays/{path.name}": path.read_bytes() for path in folder.iterdir()}))
    assert read(zipped) == found
    assert essay_words(folder).startswith("essays: 6 students, 6 files (4 .docx")


def test_one_text_in_two_files_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "Ada.docx").write_bytes(docx("Soap has two ends."))
    (tmp_path / "Ada.txt").write_text("Soap has\ntwo ends.")
    assert read(tmp_path)["Ada"][1].text == "Soap has two ends."


def test_what_can_be_read_beside_what_cannot_stays_and_waits(tmp_path: Path) -> None:
    (tmp_path / "Ada").mkdir()
    (tmp_path / "Ada" / "1.txt").write_text("See the picture.")
    (tmp_path / "Ada" / "2.png").write_bytes(b"\x89PNG")
    (tmp_path / "Ben.txt").write_text("Soap.")
    cell = read(tmp_path)["Ada"][1]
    assert (cell.text, cell.unread) == ("See the picture.", "file_type")
    assert (cell.why or "").startswith("Ada/2.png: ")


def test_links_and_devices_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    folder = tmp_path / "essays"
    folder.mkdir()
    (folder / "ada.txt").symlink_to(secret)
    (folder / "ben").symlink_to(tmp_path)
    os.mkfifo(folder / "can.txt")
    (folder / "eva.txt").write_text("Soap.")
    assert reasons(folder) == ["file_type", "file_type", "file_type", None]
    assert [path.name for path in essay_files(folder)] == ["eva.txt"]


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("ada.txt")
    link.external_attr = 0o120777 << 16
    path = tmp_path / "essays.zip"
    path.write_bytes(archive([(link, "/etc/passwd"), ("ben.txt", "Soap.")]))
    assert reasons(path) == ["file_type", None]


def damaged(content: bytes) -> bytes:
    """An archive in which the first file's bytes are others than they were."""
    place = content.index(b"Soap")
    return content[:place] + b"Rope" + content[place + 4 :]


def test_a_damaged_file_in_an_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "essays.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target:
        target.writestr("ada.txt", "Soap.")
        target.writestr("ben.txt", "Fat.")
    path.write_bytes(damaged(path.read_bytes()))
    assert reasons(path) == ["file_damaged", None]


def test_an_archive_in_the_archive_is_named_and_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "essays.zip"
    path.write_bytes(archive({"ada.zip": archive({"ada.txt": "Soap."}), "ben.txt": "Soap."}))
    assert reasons(path) == ["file_type", None]


def test_a_file_that_unpacks_to_too_much_is_never_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(essays, "LARGEST", 1 << 20)
    path = tmp_path / "essays.zip"
    path.write_bytes(archive({"ada.txt": bytes(2 << 20), "ben.txt": "Soap."}))
    monkeypatch.setattr(zipfile.ZipFile, "read", only_small(zipfile.ZipFile.read))
    assert reasons(path) == ["file_too_large", None]


def only_small(read_entry: Callable[..., bytes]) -> Callable[..., bytes]:
    def checked(archive_: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
        assert entry.file_size < 1 << 20
        return read_entry(archive_, entry)

    return checked


def encrypted() -> bytes:
    content = bytearray(archive({"ada.txt": "Soap."}))
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(mark) + place] |= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"no archive", "is no .zip"),
        (archive({"a.txt": "Soap."})[:60], "is no .zip"),
        (archive({}), "holds no file"),
        (archive({".DS_Store": "", "__MACOSX/a.txt": "x"}), "holds no file"),
        (archive({"../../ada.txt": "x", "ben.txt": "x"}), "leads out of it"),
        (archive({"/etc/passwd": "x"}), "leads out of it"),
        (archive({"C:\\ada.txt": "x"}), "leads out of it"),
        (archive({"a\\..\\..\\ada.txt": "x"}), "leads out of it"),
        (encrypted(), "asks for a password"),
        (archive({f"{n}.txt": "" for n in range(5001)}), "holds 5,001 files"),
    ],
)
def test_an_archive_that_means_harm_is_refused_as_a_whole(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "essays.zip"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rule) as stop:
        read(path)
    assert stop.value.file == path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "essays.zip"
    path.write_bytes(archive([("ada.txt", "Soap."), ("ada.txt", "Fat.")]))
    with pytest.raises(InputError, match="two files of one name"):
        read(path)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(essays, "LARGEST_ALL", 1 << 20)
    path = tmp_path / "essays.zip"
    path.write_bytes(archive({f"{n}.txt": bytes(400_000) for n in range(4)}))
    with pytest.raises(InputError, match="unpacks to"):
        read(path)


def test_hostile_names_are_ids_of_their_own_that_print(tmp_path: Path) -> None:
    names = ["a\nb", "\x1b[31mred", "=1+1", "<script>", "'; DROP TABLE--", "\u202etxt", "ü" * 80]
    for name in names:
        (tmp_path / f"{name}.txt").write_text("Soap.")
    (tmp_path / "other.jpg").write_bytes(b"x")
    found = {row[0]: row for row in essay_rows(tmp_path)}
    assert len(found) == len(names) + 1
    assert all(student.isprintable() and files.isprintable() for student, _, _, files, _ in found.values())


def test_a_mac_writes_utf_8_and_does_not_say_so(tmp_path: Path) -> None:
    path = tmp_path / "essays.zip"
    path.write_bytes(archive({"GuXXl.txt": "Soap."}).replace(b"GuXXl", "Gu\u0308l".encode()))
    assert list(read(path)) == ["Gül"]


# Who handed in a file, by its name: what platforms make of students' and files' names, and names that only look so.


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
