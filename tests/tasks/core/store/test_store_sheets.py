"""Sheets: every cell as it stands, every row on its line, whatever delimiter, encoding or program wrote the file."""

from __future__ import annotations

import csv
import io
import random
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store import sheets
from rubricflow.tasks.core.store.cells import UnreadableCell
from rubricflow.tasks.core.store.delimited import DELIMITERS
from rubricflow.tasks.core.store.sheets import open_sheet

LETTERS = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])
SHOWN = st.text(st.one_of(LETTERS, st.sampled_from(',;\t"\n')), max_size=12)
NAMES = st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_ ]{0,8}[A-Za-z]", fullmatch=True), min_size=2, max_size=5)
GERMAN = "Die Wärme ist größer, weil die Körper schneller für die Übung strömen."


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def book(folder: Path, *rows: list[Any], name: str = "a.xlsx") -> Path:
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
    made.save(folder / name)
    return folder / name


def cells(path: Path, **named: str) -> list[tuple[Any, ...]]:
    return [row.cells for row in open_sheet(path, **named).rows()]


@settings(max_examples=20)
@given(NAMES, st.data(), st.sampled_from(",;\t"), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_any_sheet_comes_back_with_the_lines_of_its_rows(
    names: list[str], data: st.DataObject, delimiter: str, encoding: str
) -> None:
    names = [f"{name}{place}" for place, name in enumerate(names)]
    row = st.lists(SHOWN, min_size=len(names), max_size=len(names))
    rows = data.draw(st.lists(row, max_size=5))
    text = io.StringIO(newline="")
    lines = []
    for cells_of_row in [names, *rows]:
        lines.append(text.getvalue().count("\n") + 1)
        csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(cells_of_row)
    with tempfile.TemporaryDirectory() as folder:
        sheet = open_sheet(put(Path(folder), "a.csv", text.getvalue().encode(encoding)))
        read = list(sheet.rows())
    wanted = [
        (line, number, tuple(row))
        for number, (line, row) in enumerate(zip(lines[1:], rows, strict=True), 1)
        if "".join(row).strip()
    ]
    assert sheet.columns == tuple(names)
    assert [tuple(row) for row in read] == wanted


@settings(max_examples=20)
@given(st.binary(max_size=400), st.sampled_from([".csv", ".tsv", ".xlsx"]), st.booleans())
def test_no_bytes_end_in_a_traceback(content: bytes, ending: str, is_zip: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), f"a{ending}", b"PK\x03\x04" * is_zip + content)
        try:
            for row in open_sheet(path).rows(lambda error: None):
                assert row.cells
        except InputError as error:
            message = str(error)
        else:
            message = str(path)
    assert str(path) in message


@settings(max_examples=20)
@given(st.data())
def test_a_workbook_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    content = io.BytesIO()
    made = openpyxl.Workbook()
    for number in range(5):
        made.active.append([f"name {number}", f"text {number}", "=1+1"])
    made.save(content)
    parts = {}
    with zipfile.ZipFile(content) as archive:
        parts = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    name = data.draw(st.sampled_from(sorted(parts)))
    for _ in range(data.draw(st.integers(1, 4))):
        parts[name][data.draw(st.integers(0, len(parts[name]) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xlsx"
        with zipfile.ZipFile(path, "w") as archive:
            for part, changed in parts.items():
                archive.writestr(part, bytes(changed))
        try:
            list(open_sheet(path).rows(lambda error: None))
        except InputError as error:
            message = str(error)
        else:
            message = str(path)
    assert str(path) in message


@pytest.mark.parametrize("codec", ["cp1252", "mac_roman"])
def test_what_is_no_utf_8_is_guessed_and_said(tmp_path: Path, codec: str) -> None:
    sheet = open_sheet(put(tmp_path, "a.csv", f"id;text\n1;{GERMAN}\n".encode(codec)))
    assert [row.cells for row in sheet.rows()] == [("1", GERMAN)]
    assert "a guess" in sheet.words
    assert "'Wärme'" in sheet.words


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy a ještě něco dalšího."),
        ("cp1251", "Диффузия это движение частиц из области высокой концентрации в область низкой."),
    ],
)
def test_other_alphabets_are_guessed_too(tmp_path: Path, codec: str, text: str) -> None:
    assert cells(put(tmp_path, "a.csv", f"id;text\n1;{text}\n".encode(codec))) == [("1", text)]


def test_a_file_that_is_utf_8_but_for_a_line_is_not_guessed(tmp_path: Path) -> None:
    content = f"id;text\n1;{GERMAN}\n".encode() + b"2;caf\xe9\n"
    with pytest.raises(InputError, match="is UTF-8 but for line 3"):
        open_sheet(put(tmp_path, "a.csv", content))


def test_a_named_encoding_is_taken_or_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", f"id;text\n1;{GERMAN}\n".encode("cp1252"))
    assert cells(path, encoding="cp1252") == [("1", GERMAN)]
    with pytest.raises(InputError, match="is not UTF-8: line 2"):
        open_sheet(path, encoding="utf-8")
    for name in ("klingon", "base64", ""):
        with pytest.raises(InputError, match="is no encoding of text"):
            open_sheet(path, encoding=name)


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("id;text;score, of 5", ";"),
        ('id,"a;b;c;d",text', ","),
        ("id\ttext, all of it; and more", "\t"),
        ("Name, Vorname;Antwort", ";"),
        ("text", ","),
        ('"a\nb";c', ";"),
    ],
)
def test_the_header_alone_says_what_parts_cells(tmp_path: Path, header: str, delimiter: str) -> None:
    sheet = open_sheet(put(tmp_path, "a.csv", header + '\n"' + ";,\t" * 50 + '"\n'))
    assert sheet.words.endswith(f"cells parted by {DELIMITERS[delimiter]}")


def test_excels_own_line_about_the_delimiter_is_no_header(tmp_path: Path) -> None:
    sheet = open_sheet(put(tmp_path, "a.csv", "sep=;\nid;a,b\n1;x\n"))
    assert (sheet.columns, [tuple(row) for row in sheet.rows()]) == (("id", "a,b"), [(3, 1, ("1", "x"))])


def test_cells_of_a_workbook_are_what_a_spreadsheet_shows(tmp_path: Path) -> None:
    path = book(tmp_path, ["id", "text"], [1, 0.1 + 0.2], ["001", "NA"], [12.0, True], [date(2024, 5, 3), " a "])
    assert cells(path) == [("1", "0.3"), ("001", "NA"), ("12", "TRUE"), ("2024-05-03", " a ")]


def test_a_number_keeps_the_zeros_of_its_format(tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    made.active.append(["id"])
    made.active.append([7])
    made.active["A2"].number_format = "000"
    made.save(tmp_path / "a.xlsx")
    assert cells(tmp_path / "a.xlsx") == [("007",)]


def test_what_has_no_value_says_so(tmp_path: Path) -> None:
    ((first, second),) = cells(book(tmp_path, ["a", "b"], ["=1+1", "#DIV/0!"]))
    assert isinstance(first, UnreadableCell)
    assert "never calculated" in first.rule
    assert isinstance(second, UnreadableCell)
    assert "#DIV/0!" in second.rule


def test_rows_of_a_workbook_are_numbered_as_a_spreadsheet_does(tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    made.active["B3"], made.active["C3"] = "id", "text"
    made.active["B7"], made.active["C7"] = "x1", "heat"
    made.save(tmp_path / "a.xlsx")
    assert [tuple(row) for row in open_sheet(tmp_path / "a.xlsx").rows()] == [(7, 4, ("x1", "heat"))]


def test_the_sheet_named_is_read_and_the_others_are_listed(tmp_path: Path) -> None:
    made = openpyxl.Workbook()
    made.active.append(["a"])
    made.create_sheet("Marks").append(["b"])
    made.save(tmp_path / "a.xlsx")
    assert open_sheet(tmp_path / "a.xlsx").words == "sheet 'Sheet', not read: 'Marks'"
    assert open_sheet(tmp_path / "a.xlsx", sheet="Marks").columns == ("b",)
    with pytest.raises(InputError, match="has no sheet 'marks'; there are 'Sheet', 'Marks'"):
        open_sheet(tmp_path / "a.xlsx", sheet="marks")


def test_a_title_above_the_header_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="named in the first row: 1, cells in the row below it: 3"):
        open_sheet(put(tmp_path, "a.csv", "Class 7b,,\nid,item,text\n1,a,b\n"))


def test_rows_that_do_not_fit_are_reported_and_the_others_read(tmp_path: Path) -> None:
    sheet = open_sheet(put(tmp_path, "a.csv", 'id,text\n1,"a\nb"\n2\n3,c,d\n4,e,\n'))
    errors: list[InputError] = []
    assert [row.cells for row in sheet.rows(errors.append)] == [("1", "a\nb"), ("4", "e")]
    assert [(error.line, error.row) for error in errors] == [(4, 2), (5, 3)]


def test_columns_without_a_name_are_left_out_and_counted(tmp_path: Path) -> None:
    sheet = open_sheet(put(tmp_path, "a.csv", "id,,text\n1,x,a\n"))
    assert (sheet.columns, [row.cells for row in sheet.rows()]) == (("id", "text"), [("1", "a")])
    assert "columns without a name, which are not read: 1" in sheet.words


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["visible", "hidden", "veryHidden"]), min_size=1, max_size=4))
def test_the_first_sheet_that_is_shown_is_read_and_hidden_ones_are_named(states: list[str]) -> None:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for number, state in enumerate(states):
        made.create_sheet(f"s{number}").append([f"column {number}"])
        made.worksheets[-1].sheet_state = state
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xlsx"
        made.worksheets[0].sheet_state = "visible"  # openpyxl writes no workbook that shows nothing
        made.save(path)
        path.write_bytes(
            repacked(
                path.read_bytes(),
                "xl/workbook.xml",
                lambda xml: xml.replace(b'state="visible"', f'state="{states[0]}"'.encode(), 1),
            )
        )
        shown = [number for number, state in enumerate(states) if state == "visible"]
        if not shown:
            with pytest.raises(InputError, match=r"has hidden sheets alone: 's0' \(hidden\)"):
                open_sheet(path)
        else:
            sheet = open_sheet(path)
            assert sheet.columns == (f"column {shown[0]}",)
            for number, state in enumerate(states):
                assert (f"'s{number}' (hidden)" in sheet.words) == (state != "visible")
        last = len(states) - 1
        assert open_sheet(path, sheet=f"s{last}").columns == (f"column {last}",)


def repacked(content: bytes, part: str, change: Callable[[bytes], bytes]) -> bytes:
    """A workbook with one part changed, or added where it is not there."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as made:
        parts = {name: old.read(name) for name in old.namelist()}
        parts[part] = change(parts.get(part, b""))
        for name, unpacked in parts.items():
            made.writestr(name, unpacked)
    return new.getvalue()


@pytest.mark.parametrize(
    ("part", "size", "refused"),
    [
        ("xl/worksheets/sheet1.xml", 12 << 20, False),
        ("xl/worksheets/sheet1.xml", 17 << 20, True),  # of a small file
        ("xl/worksheets/sheet1.xml", 100 << 20, True),
        ("xl/sharedStrings.xml", 17 << 20, True),
        ("xl/styles.xml", 17 << 20, True),
        ("xl/media/picture.png", 17 << 20, True),
        ("customXml/item1.xml", 17 << 20, True),
    ],
)
def test_a_workbook_that_unpacks_to_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, size: int, refused: bool
) -> None:
    monkeypatch.setattr(sheets, "LARGEST", 64 << 20)
    path = book(tmp_path, ["id"], ["x"])
    path.write_bytes(repacked(path.read_bytes(), part, lambda xml: xml + b" " * size))
    tracemalloc.start()
    try:
        if refused:
            with pytest.raises(InputError, match=r"unpacks to [\d,]+ MB"):
                open_sheet(path)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        else:
            assert cells(path) == [("x",)]
    finally:
        tracemalloc.stop()


def test_pictures_in_a_workbook_are_not_counted(tmp_path: Path) -> None:
    path = book(tmp_path, ["id"], ["x"])
    path.write_bytes(repacked(path.read_bytes(), "xl/media/a.png", lambda _: random.Random(0).randbytes(17 << 20)))
    assert cells(path) == [("x",)]


def test_a_workbook_with_a_part_twice_is_refused(tmp_path: Path) -> None:
    path = book(tmp_path, ["id"], ["x"])
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("xl/worksheets/sheet1.xml", b"<worksheet/>")
    with pytest.raises(InputError, match="or a damaged one"):
        open_sheet(path)


@pytest.mark.parametrize(("row", "column"), [(2_000_000_000, "A"), (9, "ZZZ")])
def test_a_sheet_that_is_larger_than_any_spreadsheet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int, column: str
) -> None:
    monkeypatch.setattr("rubricflow.tasks.core.store.sheets.MOST_ROWS", 1000)
    monkeypatch.setattr("rubricflow.tasks.core.store.sheets.MOST_CELLS", 18_278 + 1)
    path = book(tmp_path, ["id"], ["x"])
    far = f'<row r="{row}"><c r="{column}{row}"/></row>'.encode()
    path.write_bytes(
        repacked(
            path.read_bytes(),
            "xl/worksheets/sheet1.xml",
            lambda xml: xml.replace(b"</sheetData>", far + b"</sheetData>"),
        )
    )
    with pytest.raises(InputError, match="has a sheet of more than"):
        cells(path)
