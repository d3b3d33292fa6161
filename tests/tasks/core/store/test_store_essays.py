"""Folders of essays as tables: a row a student, whatever made the folder; and archives that mean harm."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store import essays
from rubricflow.tasks.core.store.cells import EssayCell
from rubricflow.tasks.core.store.essays import essay_files, essay_rows, essay_words
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
