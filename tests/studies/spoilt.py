"""What people see when a file is spoilt: ninety ways to spoil one, each beside what `validate` or `init` says.

    python tests/studies/spoilt.py [WORD ...]

Every file is made here. A case is answered where an error or a warning, or a line that says how the file was read,
names the cause; the script ends with 1 if one is silent or ends in a traceback.
"""

from __future__ import annotations

import csv
import io
import random
import sys
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import openpyxl

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "flows"))

from tiny_study import make_study

from rubricflow.flows.init import init
from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts.errors import UserError

Spoil = Callable[[Path], None]


def rows_of(folder: Path) -> list[list[str]]:
    """The answers as the study has them, the header first."""
    with (folder / "answers.csv").open(newline="") as file:
        return list(csv.reader(file))


def as_text(rows: list[list[str]], delimiter: str = ",") -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue()


def written(content: Callable[[str], bytes | str]) -> Spoil:
    """Spoil the text of the answers."""

    def spoil(folder: Path) -> None:
        changed = content((folder / "answers.csv").read_text())
        (folder / "answers.csv").write_bytes(changed if isinstance(changed, bytes) else changed.encode())

    return spoil


def cells(change: Callable[[list[list[str]]], None], delimiter: str = ",", encoding: str = "utf-8") -> Spoil:
    """Spoil the cells of the answers."""

    def spoil(folder: Path) -> None:
        rows = rows_of(folder)
        change(rows)
        (folder / "answers.csv").write_bytes(as_text(rows, delimiter).encode(encoding))

    return spoil


def put(row: int, column: int, value: str) -> Callable[[list[list[str]]], None]:
    """Set a cell; row: 0 is the header."""
    return lambda rows: rows[row].__setitem__(column, value)


def each(*changes: Callable[[list[list[str]]], None]) -> Callable[[list[list[str]]], None]:
    """One change after the other."""

    def change(rows: list[list[str]]) -> None:
        for step in changes:
            step(rows)

    return change


def study(old: str, new: str) -> Spoil:
    def spoil(folder: Path) -> None:
        text = (folder / "study.yaml").read_text()
        assert old in text
        (folder / "study.yaml").write_text(text.replace(old, new))

    return spoil


def both(*spoils: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for step in spoils:
            step(folder)

    return spoil


def file_named(name: str, content: bytes) -> Spoil:
    """A file in place of the answers."""

    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content)
        study("answers.csv", name)(folder)

    return spoil


def workbook(change: Callable[[openpyxl.Workbook], None], then: Callable[[bytes], bytes] = bytes) -> Spoil:
    """The answers as a workbook, spoilt as a workbook and then as a file."""

    def spoil(folder: Path) -> None:
        book = openpyxl.Workbook()
        for row in rows_of(folder):
            book.active.append([float(cell) if cell.isdigit() and len(cell) == 1 else cell for cell in row])
        change(book)
        content = io.BytesIO()
        book.save(content)
        file_named("answers.xlsx", then(content.getvalue()))(folder)

    return spoil


def cell(place: str, value: object) -> Callable[[openpyxl.Workbook], None]:
    return lambda book: book.active.__setitem__(place, value)


def nothing(_: object) -> None:
    """Leave it as it is."""


def merged(book: openpyxl.Workbook) -> None:
    book.active.insert_rows(1)
    book.active["A1"] = "Class 7b, physics"
    book.active.merge_cells("A1:F1")


def wide(content: bytes) -> bytes:
    """A sheet that says it is as large as a sheet can be."""
    return repacked(content, "xl/worksheets/sheet1.xml", lambda xml: _dimension(xml, b'ref="A1:XFD1048576"'))


def _dimension(xml: bytes, words: bytes) -> bytes:
    start = xml.index(b"ref=", xml.index(b"<dimension"))
    return xml[:start] + words + xml[xml.index(b"/>", start) :]


def bomb(content: bytes) -> bytes:
    """Two gigabytes of blanks within two megabytes."""
    out = io.BytesIO(content)
    with (
        zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("xl/media/a.bin", "w", force_zip64=True) as entry,
    ):
        for _ in range(2048):
            entry.write(bytes(1 << 20))
    return out.getvalue()


def repacked(content: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, change(old.read(entry)) if entry == name else old.read(entry))
    return out.getvalue()


def zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "hello")
    return out.getvalue()


OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
LOCKED = OLD + "EncryptedPackage".encode("utf-16-le") + bytes(600)
MARKS = "    - file: marks.csv\n      {}\nrubrics: {{"
SCORED = MARKS.format("scored: id\n      scores: [{rater: three, score: mark}]")


def scores_file(text: str, mapping: str = SCORED) -> Spoil:
    """A file of marks beside the answers."""

    def spoil(folder: Path) -> None:
        (folder / "marks.csv").write_text(text)
        study("rubrics: {", mapping)(folder)

    return spoil


def renamed(rows: list[list[str]]) -> None:
    for number, row in enumerate(rows[1:]):
        row[0] = f"{number:03d}"


def with_commas(rows: list[list[str]]) -> None:
    for row in rows[1:]:
        row[4] = row[4] and f"{row[4]},0"


def many(rows: list[list[str]]) -> None:
    for row in rows[1:]:
        row[4] = "good"
    rows += [[f"y{number}", "a", "more", "s", "good", "1"] for number in range(20)]


LETTERS = "Wärme ist ungeordnete Bewegung, größer oder kleiner."
LONG_TEXT = "Heat is the random motion of the particles of a body, and colder bodies have slower particles."

CASES: list[tuple[str, Spoil, str]] = [
    # --- text files
    (
        "a quotation mark that is never closed",
        written(lambda t: t.replace("answer 5", '"answer 5', 1)),
        "none closes it",
    ),
    (
        "letters after a closing quotation mark",
        written(lambda t: t.replace("answer 5", '"answer" 5', 1)),
        "well-formed",
    ),
    ("Windows-1252", cells(put(1, 2, LETTERS), encoding="cp1252"), "Windows-1252 (a guess"),
    ("UTF-16, parted by tabs", cells(put(1, 2, LETTERS), "\t", "utf-16"), "UTF-16, cells parted by tabs"),
    ("UTF-16 without its mark", cells(put(1, 2, LETTERS), encoding="utf-16-le"), "read as UTF-16"),
    ("UTF-8 mark and semicolons", cells(nothing, ";", "utf-8-sig"), "parted by semicolons"),
    (
        "UTF-8 but for one pasted line",
        written(lambda t: t.replace("answer 1", "ä", 1).encode() + b"y,a,\xe9,s,0,0\n"),
        "UTF-8 but for line",
    ),
    (
        "another encoding than the study names",
        both(
            cells(put(1, 2, LETTERS), encoding="cp1252"),
            study("file: answers.csv", "file: answers.csv\n      encoding: utf-8"),
        ),
        "is not UTF-8: line 2",
    ),
    (
        "an encoding that there is not",
        study("file: answers.csv", "file: answers.csv\n      encoding: klingon"),
        "no encoding",
    ),
    ("NUL bytes all over", written(lambda t: bytes(2000)), "answers.csv"),
    ("an image called .csv", written(lambda t: b"\x89PNG\r\n\x1a\n" + random.Random(0).randbytes(4000)), "answers.csv"),
    ("empty", written(lambda t: ""), "is empty; a header is needed"),
    ("only blank rows", written(lambda t: "\n,,,\n\n"), "is empty; a header is needed"),
    ("only a header", written(lambda t: t.split("\n")[0]), "no response is left to grade"),
    ("a name twice in the header", cells(put(0, 3, "text")), "the header repeats 'text'"),
    ("blanks around names", cells(put(0, 2, " text ")), "read as UTF-8"),
    ("a row too short", cells(lambda rows: rows[3].__delitem__(slice(2, None))), "line 4 (row 3): has 2 cells"),
    ("a row too long", cells(lambda rows: rows[3].extend(["", "more"])), "line 4 (row 3): has 8 cells"),
    ("blank rows between", cells(lambda rows: rows.insert(2, [""] * 6)), "read as UTF-8"),
    (
        "answers of two lines, then a fault",
        cells(each(put(1, 2, "one\ntwo\nthree"), put(2, 4, "x"))),
        "line 5 (row 2), column 'one'",
    ),
    ("a title above the header", written(lambda t: "Class 7b,,,,,\n" + t), "is it a title?"),
    ("forty faults at once", cells(many), "the first 20:"),
    # --- cells
    ("decimal commas", cells(with_commas), "read as UTF-8"),
    ("commas beside points", cells(each(put(1, 4, "1,0"), put(2, 4, "2.0"))), "stands beside '1,0' in row 1"),
    ("a date where a score should be", cells(put(1, 4, "03.05.2024")), "it is a date"),
    ("a score in words", cells(put(1, 4, "good")), "is not a finite number"),
    ("scores off the scale", cells(each(put(1, 4, "9"), put(2, 4, "8"))), "off the scale 0 to 4"),
    ("a score between the steps", cells(put(1, 4, "2.5")), "between the steps"),
    ("an id twice", cells(put(2, 0, "x0")), "response id 'x0' occurs twice"),
    ("an id with blanks, twice", cells(put(2, 0, " x0 ")), "response id 'x0' occurs twice"),
    ("no id", cells(put(2, 0, " ")), "line 3 (row 2), column 'id': is empty"),
    ("an unknown question", cells(put(2, 1, "c")), "item 'c' is unknown"),
    # --- several files
    ("zeros lost by a spreadsheet", both(cells(renamed), scores_file("id,mark\n7,1\n")), "there is '007'"),
    ("numbers with .0", scores_file("id,mark\nx7.0,1\n"), "response 'x7.0' is unknown"),
    ("an unknown rater as target", study("target: one", "target: three"), "'three' is no rater"),
    ("a mark twice", scores_file("id,mark\nx7,1\nx7,2\n"), "scores response 'x7' twice"),
    (
        "a column misspelt",
        study("text: text}", "text: student_text}"),
        "the study names it in data.sources: responses.text",
    ),
    ("a key of the study misspelt", study("responses:", "respones:"), "did you mean 'responses'?"),
    # --- workbooks
    ("a second sheet", workbook(lambda book: book.create_sheet("Notes")), "not read: 'Notes'"),
    (
        "a sheet that there is not",
        both(workbook(nothing), study("file: answers.xlsx", "file: answers.xlsx\n      sheet: Marks")),
        "has no sheet 'Marks'; there are 'Sheet'",
    ),
    ("an empty sheet", workbook(lambda book: book.active.delete_rows(1, 500)), "sheet 'Sheet' is empty"),
    ("a merged title above the header", workbook(merged), "is it a title?"),
    ("a formula without its value", workbook(cell("E2", "=1+1")), "formula that was never calculated"),
    ("an error of the spreadsheet", workbook(cell("E2", "#DIV/0!")), "#DIV/0!"),
    ("a date cell where a score should be", workbook(cell("E2", date(2024, 5, 3))), "it is a date"),
    ("a cell beyond the header", workbook(cell("H3", "note")), "line 3 (row 2): has 8 cells"),
    ("a sheet that says it is huge", workbook(nothing, wide), "read as sheet 'Sheet'"),
    ("two gigabytes when unpacked", workbook(nothing, bomb), "unpacks to 2,1"),
    ("cut off", workbook(nothing, lambda content: content[: len(content) // 2]), "is cut off"),
    (
        "XML cut off inside",
        workbook(nothing, lambda c: repacked(c, "xl/worksheets/sheet1.xml", lambda xml: xml[:900])),
        "is a damaged workbook",
    ),
    ("bytes changed inside", workbook(nothing, lambda c: c[:700] + bytes(80) + c[780:]), "workbook"),
    ("garbage called .xlsx", file_named("answers.xlsx", random.Random(0).randbytes(3000)), "is no Excel workbook"),
    ("nothing called .xlsx", file_named("answers.xlsx", b""), "is an empty file"),
    ("another zip called .xlsx", file_named("answers.xlsx", zipped("a.txt")), "a zip archive without a workbook"),
    ("OpenDocument called .xlsx", file_named("answers.xlsx", zipped("content.xml")), "is an OpenDocument file"),
    ("CSV called .xlsx", file_named("answers.xlsx", b"id,text\n1,a\n"), "call it .csv"),
    ("a workbook with a password", file_named("answers.xlsx", LOCKED), "is protected with a password"),
    ("the old Excel format called .xlsx", file_named("answers.xlsx", OLD), "old Excel format"),
    ("the old Excel format", file_named("answers.xls", OLD), "'.xls' files are not read"),
    ("a web page called .xls", file_named("answers.xls", b"<html><table></table></html>"), "'.xls' files are not read"),
    ("a web page called .xlsx", file_named("answers.xlsx", b"<html><table></table></html>"), "is a web page"),
    # --- what is only odd
    (
        "HTML in an answer",
        cells(put(1, 2, "<p>Heat&nbsp;is motion</p>")),
        "HTML is left in the text (`html: true` in the source takes it out): 1 (x0)",
    ),
    ("letters that were read wrongly before", cells(put(1, 2, "WÃ¤rme")), "wrong encoding: 1 (x0)"),
    (
        "the same text of two students",
        cells(each(put(1, 2, LONG_TEXT), put(3, 2, LONG_TEXT.upper()))),
        "the same text: 1 (x0 and x2)",
    ),
    ("an answer of a thousand words", cells(put(1, 2, "word " * 1000)), "ten times as long"),
    ("a text that a spreadsheet has cut", cells(put(1, 2, "x" * 32_767)), "a spreadsheet's cell is full"),
    ("an empty answer", cells(put(1, 2, "")), "there is no text: 1 (x0)"),
]


WHY, HOW = "Why does a boat of steel float on water?", "How does soap help to wash off fat?"
CLASS = [["number", "name", "answer 1 (4 pts)", "marks 1", "answer 2 (6 pts)", "marks 2", "Total"]]
CLASS += [[f"00{n}", "ABC"[n], f"so it is {n}", str(n), f"it is so {n}", str(n + 1), str(2 * n + 1)] for n in range(3)]
CLASS[0][0] = "Student No."
LONG = [["Student No.", "question", "answer", "mark"]]
LONG += [[f"00{n}", question, f"so it is {n}", str(n)] for n in range(3) for question in (WHY, HOW)]


def drafted(
    rows: list[list[str]], change: Callable[[list[list[str]]], object], then: Spoil = nothing, beside: str = ""
) -> Spoil:
    """A study that `init` drafts of a changed table, spoilt afterwards; beside: a table of questions."""

    def spoil(folder: Path) -> None:
        table = [[*row] for row in rows]
        change(table)
        (folder / "class.csv").write_text(as_text(table))
        files = [folder / "class.csv"]
        if beside:
            (folder / "q.csv").write_text(beside)
            files.append(folder / "q.csv")
        started = init(files, folder / "study.yaml", lambda _, guess: guess, overwrite=True)
        (folder / "said.txt").write_text("\n".join(started.lines))
        then(folder)

    return spoil


def text_of(name: str, old: str, new: str) -> Spoil:
    """Something else in a file that `init` wrote."""

    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, text
        (folder / name).write_text(text.replace(old, new, 1))

    return spoil


def rubric(old: str, new: str) -> Spoil:
    return text_of("rubrics.yaml", old, new)


def later(change: Callable[[list[list[str]]], object], rows: list[list[str]]) -> Spoil:
    """The table of answers, changed after `init`."""

    def spoil(folder: Path) -> None:
        table = [[*row] for row in rows]
        change(table)
        (folder / "class.csv").write_text(as_text(table))

    return spoil


DRAFTED: list[tuple[str, Spoil, str]] = [
    ("no column of answers", drafted([["a", "b"], ["1", "2"]], nothing), "no column looks like one of answers"),
    (
        "an answer without a student's number",
        drafted(CLASS, each(put(2, 0, ""), lambda rows: [row.pop(1) for row in rows])),
        "class.csv, row 2, field 'Student No.': is empty, and 'answer_id' is made of it",
    ),
    (
        "an answer whose student's number got lost later",
        drafted(CLASS, nothing, later(put(3, 0, " "), CLASS)),
        "class.csv, line 4 (row 3), column 'Student No.': is empty",
    ),
    ("a number lacks, and names tell students apart", drafted(CLASS, put(2, 0, "")), "students are told apart by name"),
    (
        "two namesakes without a number",
        drafted(CLASS, each(put(2, 1, "A"), lambda rows: [row.pop(0) for row in rows])),
        "A stands in rows 1, 2: taken for 2 students of one name",
    ),
    ("a total that does not add up", drafted(CLASS, put(2, 6, "9")), "in 1 of 3 rows: row 2: 3 and 9"),
    ("a total of other points", drafted(CLASS, put(0, 6, "Total / 12")), "add up to 10, and 'Total / 12' says 12"),
    ("a mark above the points in the header", drafted(CLASS, put(2, 3, "5")), "Q1: a mark of 5 is above its 4 points"),
    (
        "a mark off the scale that came later",
        drafted(CLASS, nothing, later(put(2, 3, "5"), CLASS)),
        "class.csv, line 3 (row 2), column 'marks 1': rater 'mark' gave response '001-Q1' 5, off the scale 0 to 4",
    ),
    ("points that are no number", drafted(CLASS, nothing, rubric("points: 4", "points: four")), "points four"),
    ("points below 0", drafted(CLASS, nothing, rubric("points: 4", "points: -4")), "have to be above 0"),
    (
        "points and a scale",
        drafted(CLASS, nothing, rubric("points: 4", "points: 4\n  scale: {min: 0, max: 4}")),
        "twice",
    ),
    (
        "a step that does not reach the points",
        drafted(CLASS, nothing, rubric("points: 4", "points: 4\n  step: 3")),
        "4 points cannot be reached in steps of 3",
    ),
    ("points misspelt", drafted(CLASS, nothing, rubric("points: 4", "poins: 4")), "no key 'poins'"),
    (
        "a rubric renamed",
        drafted(CLASS, nothing, rubric("rubric_id: Q2", "rubric_id: Q9")),
        "item 'Q2' names an unknown",
    ),
    (
        "a new question below the others",
        drafted(LONG, nothing, later(lambda rows: rows.append(["001", "And why?", "so", "1"]), LONG)),
        "item 'Q3' names an unknown rubric 'Q3'",
    ),
    (
        "an answer twice later",
        drafted(LONG, nothing, later(lambda rows: rows.append(["001", WHY, "so", "1"]), LONG)),
        "response id '001-Q1' occurs twice",
    ),
    (
        "a question in two spellings",
        drafted(LONG, put(3, 1, WHY.replace(" ", "  "))),
        "Q1: its wording has several spellings",
    ),
    (
        "a spelling of a question that came later",
        drafted(LONG, nothing, later(put(3, 1, WHY.replace(" ", "  ")), LONG)),
        "item 'Q1' is given twice with different content",
    ),
    (
        "the column of questions renamed",
        drafted(LONG, nothing, later(put(0, 1, "Frage"), LONG)),
        "class.csv, field 'question': no such column",
    ),
    (
        "a column called as one to be made",
        drafted(LONG, nothing, later(put(0, 3, "answer_id"), LONG)),
        "is to be made of other columns",
    ),
    (
        "a key that is made of no column",
        drafted(LONG, nothing, text_of("study.yaml", "[Student No., question_id]", "[]")),
        "'answer_id' is made of no column",
    ),
    (
        "a column of a question taken out of a wide file",
        drafted(CLASS, nothing, later(lambda rows: [row.__delitem__(slice(2, 6)) for row in rows], CLASS)),
        "no column is named 'answer {n} ({points} pts)'",
    ),
    (
        "a table of questions that lacks one",
        drafted(LONG, nothing, beside=f"wording,model answer\n{WHY},Air.\n"),
        "q.csv: no column holds",
    ),
]
CASES += DRAFTED


def heard(spoil: Spoil, folder: Path) -> str:
    """What `validate` says: its error, or else its lines about the files and the answers."""
    path = make_study(folder, 20)
    try:
        spoil(folder)
        said = folder / "said.txt"
        if said.exists():
            wrong = [message for kind, _, message in prove(path) if kind == "wrong"]
            return "\n".join([*reversed(said.read_text().splitlines()), *wrong])
        lines = [
            f"{kind} {what}: {words}" for kind, what, words in prove(path) if not what.startswith(("item", "rubric"))
        ]
    except UserError as error:
        return str(error).replace(f"{folder}/", "")
    shown = [line for line in lines if line.startswith("warning answers") or "read as" in line]
    return "\n".join(line for line in shown if "items.csv" not in line)


def main(words_of_cases: list[str]) -> int:
    """Print what is said of every case, or of those whose names hold one of the words; returns the number of those that
    are not answered."""
    unanswered = 0
    chosen = [case for case in CASES if not words_of_cases or any(word in case[0] for word in words_of_cases)]
    for name, spoil, cause in chosen:
        with TemporaryDirectory() as folder:
            try:
                words = heard(spoil, Path(folder))
            except Exception as error:
                words = f"TRACEBACK {type(error).__name__}: {error}"
        is_answered = cause in words and "TRACEBACK" not in words
        unanswered += not is_answered
        print(f"{'  ' if is_answered else '!!'} {name}")
        for line in words.split("\n")[:4]:
            print(f"       {line[:300]}")
    print(f"{len(chosen)} cases, {unanswered} not answered")
    return unanswered


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
