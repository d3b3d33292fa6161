"""Four classes on their way from a platform's file to a gradebook: every command as a teacher types it, timed.

    python tests/studies/first_hour.py --rubricflow .venv/bin/rubricflow --to FOLDER [--classes german canvas]

A German spreadsheet, quiz responses as Moodle exports them, a student analysis as Canvas does, and a .zip of essays as
Moodle's «download all submissions» makes it; each goes through init, validate, grade, answers reviewed in a headless
browser, grades (.xlsx, opened by openpyxl and by LibreOffice), the platform's import form and feedback. It ends in a
table of what a teacher meets in each class. Pictures in light, dark and at the width of a phone are left in FOLDER. A
step that fails is named in the table, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import httpx
import openpyxl
from lxml import html
from playwright.sync_api import Error, sync_playwright

QUESTIONS = {
    "Why does a boat of steel float?": (
        "It pushes away as much water as it weighs. The air inside makes it light for its size.",
        ("It pushes away as much water as it weighs", "The air in it makes it light for its size", "Steel is heavy",
         "Water carries everything that is big enough", "It is hollow and so less dense than water"),
    ),
    "How does soap help to wash off fat?": (
        "One end of soap holds on to fat and the other to water. So the water carries the fat away.",
        ("One end of it holds on to fat, the other to water", "The water then carries the fat away", "It smells good",
         "Soap makes foam, and foam is clean", "It mixes what does not mix by itself"),
    ),
}  # fmt: skip
GERMAN = {
    "Warum schwimmt ein Schiff aus Stahl?": (
        "Es verdrängt so viel Wasser, wie es wiegt. Die Luft darin macht es leicht für seine Größe.",
        ("Es verdrängt so viel Wasser, wie es wiegt", "Die Luft darin macht es für seine Größe leicht",
         "Stahl ist schwer", "Wasser trägt alles, was groß genug ist", "Es ist hohl und weniger dicht als Wasser"),
    ),
    "Wie hilft Seife gegen Fett?": (
        "Ein Ende der Seife hält Fett fest, das andere Wasser. So trägt das Wasser das Fett fort.",
        ("Ein Ende hält Fett fest, das andere Wasser", "Das Wasser trägt das Fett dann fort", "Sie riecht gut",
         "Seife schäumt, und Schaum ist sauber", "Sie mischt, was sich nicht von selbst mischt"),
    ),
}  # fmt: skip
NAMES = ("Böhm", "Braun", "Özdemir", "Ahrens", "Müller", "Zöllner", "Groß", "Çelik", "Nowak", "Weiß", "Adler", "Öztürk",
         "Lange", "Ümit", "Cramer")  # fmt: skip
STUDENTS = 15
REVIEWED = 5
BROWSER = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDTHS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}
DIGEST = re.compile(r"#[0-9a-f]{6,}\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b")
"""What a person reads as a hash."""


def said(sentences: Sequence[str], place: int) -> str:
    pairs = list(itertools.permutations(sentences, 2))
    return "{}. {}.".format(*pairs[(7 * place) % len(pairs)])


def worth(sentences: Sequence[str], answer: str, most: float) -> float:
    """The mark of a teacher for whom the first two sentences and the last one are right."""
    right = sum(sentences[at] in answer for at in (0, 1, 4))
    return min(most, right * most / 2)


def sheet(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def moodle(folder: Path) -> Path:
    """A quiz's responses as Moodle exports them, with questions and right answers, saved as .xlsx, without marks."""
    parts = ("Question", "Response", "Right answer")
    header = ["Last name", "First name", "Email address", "State", "Started on", "Completed", "Time taken"]
    header += ["Grade/10.00"]
    rows = [header + [f"{part} {number}" for number in (1, 2) for part in parts]]
    for place in range(STUDENTS):
        row = [f"Family{place:02d}", f"Given{place:02d}", f"s{place:02d}@school.example", "Finished"]
        row += ["2 November 2026  9:05 AM", "2 November 2026  9:31 AM", "26 mins", "Not yet graded"]
        for question, (right, sentences) in QUESTIONS.items():
            row += [question, said(sentences, place), right]
        rows.append(row)
    return sheet(folder / "Biology quiz-responses.xlsx", rows)


def german(folder: Path) -> Path:
    """A teacher's own list: numbers of students with leading zeros, decimal commas, half of the answers marked."""
    rows: list[list[Any]] = [
        ["Matrikelnr.", "Nachname", "Vorname", "Aufgabe", "Fragetext", "Musterlösung", "Antwort", "Punkte (max. 4)"]
    ]
    for place, name in enumerate(NAMES):
        for number, (question, (right, sentences)) in enumerate(GERMAN.items(), 1):
            answer = said(sentences, place + 3 * number)
            mark = f"{worth(sentences, answer, 4.0):.1f}".replace(".", ",") if place % 2 == 0 else None
            rows.append([f"00{4711 + 13 * place}", name, f"Ä{place}", number, question, right, answer, mark])
    return sheet(folder / "Klausur 3.xlsx", rows)


def canvas(folder: Path) -> Path:
    """A quiz's student analysis as Canvas exports it: points beside the answers of half of the class."""
    header = ["name", "id", "sis_id", "section", "section_id", "section_sis_id", "submitted", "attempt"]
    for number, question in enumerate(QUESTIONS, 1):
        header += [f"{8000 + number}: {question}", f"{2 * number}.0"]
    rows = [[*header, "n correct", "n incorrect", "score"]]
    for place in range(STUDENTS):
        row: list[Any] = [f"Given{place} Family{place}", 100 + place, f"0{place:03d}", "A", 1, "S1", "2026-11-02", 1]
        marks: list[Any] = []
        for number, (_, sentences) in enumerate(QUESTIONS.values(), 1):
            answer = said(sentences, place)
            marks.append(worth(sentences, answer, 2.0 * number) if place % 2 == 0 else "")
            row += [answer, marks[-1]]
        rows.append([*row, 0, 2, sum(filter(None, marks))])
    path = folder / "Quiz Student Analysis Report.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows(rows)
    return path


def docx(text: str) -> bytes:
    """A document of one paragraph, with no more in it than Word asks for."""
    office = "http://schemas.openxmlformats.org"
    package, document = f"{office}/package/2006", f"{office}/officeDocument/2006/relationships/officeDocument"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    words = f"<w:body><w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p></w:body>"
    parts = {
        "[Content_Types].xml": f"""<Types xmlns="{package}/content-types">
            <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
            <Override PartName="/word/document.xml" ContentType="{kind}"/></Types>""",
        "_rels/.rels": f"""<Relationships xmlns="{package}/relationships">
            <Relationship Id="r1" Type="{document}" Target="word/document.xml"/></Relationships>""",
        "word/document.xml": f'<w:document xmlns:w="{office}/wordprocessingml/2006/main">{words}</w:document>',
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + part)
    return made.getvalue()


def essays(folder: Path) -> Path:
    """Submissions as Moodle packs them, in four kinds of files; the last one is a picture without text."""
    path = folder / "Essay-submissions.zip"
    (_, sentences), *_ = QUESTIONS.values()
    with zipfile.ZipFile(path, "w") as archive:
        for place in range(STUDENTS):
            text = " ".join(said(sentences, place + step) for step in range(3))
            kind = ("docx", "txt", "html", "md")[place % 4] if place < STUDENTS - 1 else "jpg"
            body = {"docx": docx(text), "html": f"<p>{text}</p>".encode(), "jpg": b"\xff\xd8\xff\xe0"}.get(kind)
            student = f"Given{place:02d} Family{place:02d}_{1200 + place}_assignsubmission_file_"
            archive.writestr(f"{student}/essay.{kind}", text.encode() if body is None else body)
    return path


class Class(NamedTuple):
    file: Callable[[Path], Path]
    form: str | None
    """The platform that takes the grades in."""
    students: Sequence[str] | None
    """What the file calls the students, in its order."""


CLASSES = {
    "moodle": Class(moodle, "moodle", [f"s{place:02d}@school.example" for place in range(STUDENTS)]),
    "german": Class(german, None, [f"00{4711 + 13 * place}" for place in range(len(NAMES))]),
    "canvas": Class(canvas, "canvas", [str(100 + place) for place in range(STUDENTS)]),
    "essays": Class(essays, None, None),
}
RUBRIC = """\
rubrics:
- rubric_id: Q1
  scale: {min: 0, max: 2}
  traits:
  - {id: content, name: Content, min: 0, max: 2, source: derived}
  criteria:
  - {id: W, trait: content, kind: gold_point, text: It pushes away as much water as it weighs., evidence: local_quote,
     weight: 1, levels: ["no", "yes"]}
  - {id: A, trait: content, kind: gold_point, text: The air in it makes it light for its size., evidence: local_quote,
     weight: 1, levels: ["no", "yes"]}
"""


class Walk:
    """One class's way: runs commands, prints their time and what they say, and keeps what a teacher meets."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.met: dict[str, str] = {}
        self.shown = ""

    def run(self, *words: str) -> str:
        start = time.monotonic()
        done = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        print(f"\n$ rubricflow {' '.join(words)}   [{seconds:.0f} s]\n{done.stdout.strip()}", flush=True)
        self.met[f"{words[0]}, s"] = f"{seconds:.0f}"
        self.shown += done.stdout
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def read(self, name: str) -> list[dict[str, str]]:
        text = (self.folder / name).read_text("utf-8-sig")
        self.shown += text
        return list(csv.DictReader(io.StringIO(text)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_for(address: str) -> None:
    for _ in range(1200):
        try:
            httpx.get(address)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"{address} did not come up")


def reviewed(walk: Walk, browser: Any, address: str) -> None:
    """Some answers: the points of one are typed, the machine's are taken on the others, and a note is written."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(address)
    page.fill("#name", "Ms Teacher")
    page.keyboard.press("Enter")
    page.locator("#take").first.wait_for()
    before = int(page.locator("#done").inner_text().split()[0])
    for number in range(REVIEWED):
        page.locator("#take").first.wait_for()
        title = page.locator("main h2").first.inner_text()
        if number == 0:
            page.keyboard.press("w")
            page.keyboard.type("Say also why the air inside counts.")
            page.keyboard.press("Escape")
            page.locator("#noteState", has_text="Stored.").wait_for()
            page.keyboard.type("1")
            page.keyboard.press("Enter")
            page.locator("#c0 [aria-checked=true]").first.wait_for()
            walk.met["«1» sets"] = page.locator("#c0 [aria-checked=true]").first.inner_text().split("\n")[0]
            page.screenshot(path=walk.folder / "review-typed.png", full_page=True)
        else:
            page.keyboard.press("t")
            page.locator("#c0 [aria-checked=true]").first.wait_for()
        page.keyboard.press("s")
        page.locator("#done", has_text=f"{before + number + 1} of").wait_for()
        page.locator("#stored", has_text="Everything stored").wait_for()
        if page.locator("main h2").first.inner_text() == title:
            page.keyboard.press("n")
        page.screenshot(path=walk.folder / f"review-{number}.png")
    walk.shown += page.locator("body").inner_text()
    page.close()


def pictures(browser: Any, address: str, name: str, shots: Path) -> None:
    for look, (width, scheme) in WIDTHS.items():
        page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        page.goto(address)
        if page.locator("#name").count():
            page.fill("#name", f"Looker {look}")
            page.keyboard.press("Enter")
            page.locator("main h2").first.wait_for()
        page.screenshot(path=shots / f"{name}-{look}.png")
        wider = page.evaluate("document.documentElement.scrollWidth") - width
        if wider > 0:
            print(f"{name} is {wider} px wider than a {look} screen of {width} px")
        page.close()


def same_cells(book: Path, shots: Path) -> str:
    """Whether LibreOffice reads the cells that openpyxl reads: no formula, nothing lost."""
    rows = list(openpyxl.load_workbook(book)["Grades"].values)
    if not shutil.which("soffice"):
        return "not tried"
    form = "csv:Text - txt - csv (StarCalc):44,34,76"
    command = ["soffice", "--headless", "--convert-to", form, "--outdir", str(shots)]
    subprocess.run([*command, str(book)], check=True, capture_output=True)
    with (shots / f"{book.stem}.csv").open(newline="", encoding="utf-8") as file:
        office = list(csv.reader(file))
    return "equal" if [[str(cell) if cell is not None else "" for cell in row] for row in rows] == office else "OTHERS"


def before_review(walk: Walk, class_set: Class) -> None:
    rows = walk.read("grades.csv")
    order = list(dict.fromkeys(row["student"] for row in rows))
    walk.met["answers"] = str(len(rows))
    walk.met["settled before any review"] = str(sum(bool(row["score"]) for row in rows))
    walk.met["out of"] = ", ".join(dict.fromkeys(row["out_of"] for row in rows))
    walk.met["questions are called"] = ", ".join(dict.fromkeys(row["question"] for row in rows))[:40]
    if class_set.students is not None:
        walk.met["students as the file names them"] = str(len({*order} & {*class_set.students}))
        walk.met["in the file's order"] = "yes" if order == list(class_set.students) else "no"


def visible(page: Path) -> str:
    """The words of a page, without its styles."""
    tree = html.fromstring(page.read_text("utf-8"))
    for hidden in tree.xpath("//style | //script"):
        hidden.drop_tree()
    return str(tree.text_content())


def fed_back(walk: Walk) -> Path:
    """What students are told: pages whose score has no criteria, and the notes that reached somebody."""
    pages = sorted((walk.folder / "feedback").glob("students/*.html"))
    texts = [visible(page) for page in pages]
    walk.shown += "".join(texts)
    walk.met["pages of feedback"] = str(len(pages))
    walk.met["scores «without criteria»"] = str(sum(text.count("without criteria") for text in texts))
    walk.met["the note reached a student"] = (
        "yes" if any("why the air inside counts" in text for text in texts) else "no"
    )
    return pages[0]


def walked(name: str, program: str, folder: Path, browser: Any) -> dict[str, str]:
    class_set, study = CLASSES[name], "set/study.yaml"
    walk = Walk(program, folder)
    start = time.monotonic()
    try:
        file = class_set.file(folder)
        words = ["init", file.name, "--to", study, "--yes"]
        if name == "essays":
            (folder / "rubric.yaml").write_text(RUBRIC)
            words.insert(2, "rubric.yaml")
        walk.run(*words)
        validated = walk.run("validate", study)
        walk.met["marks, says validate"] = ", ".join(
            re.findall(r"you have \d+|\d+ needed|too small[^.]*", validated)[:2]
        )
        ending = walk.run("grade", study)
        walk.met["the first sentence"] = next((line for line in ending.splitlines() if " of " in line), "")[:70]
        walk.run("grades", study, "--to", "grades.csv")
        before_review(walk, class_set)
        port = free_port()
        server = subprocess.Popen(
            [program, "review", study, "--port", str(port), "--no-browser"], cwd=folder, stdout=subprocess.DEVNULL
        )
        try:
            wait_for(address := f"http://127.0.0.1:{port}/")
            pictures(browser, address, "review", folder)
            reviewed(walk, browser, address)
        finally:
            server.terminate()
            server.wait()
        walk.run("grades", study, "--to", "grades.xlsx")
        walk.met["LibreOffice reads the cells"] = same_cells(folder / "grades.xlsx", folder)
        walk.run("grades", study, "--to", "wide.csv", "--wide")
        walk.met["heads of columns"] = ", ".join(walk.read("wide.csv")[0])[:70]
        if class_set.form:
            walk.run("grades", study, "--to", "form.csv", "--form", class_set.form)
            walk.read("form.csv")
        walk.run("feedback", study, "--to", "feedback")
        pictures(browser, fed_back(walk).as_uri(), "feedback", folder)
        (report,) = (folder / "data" / "warehouse").glob("*/report.html")
        pictures(browser, report.as_uri(), "report", folder)
        walk.shown += visible(report).split("What the scores were made with")[0]
    except (RuntimeError, OSError, Error, ValueError, LookupError) as wrong:
        walk.met["FAILED"] = " ".join(str(wrong).split())[:300]
    walk.met["hashes shown"] = str(len({*DIGEST.findall(walk.shown)}))
    walk.met["from file to gradebook, s"] = f"{time.monotonic() - start:.0f}"
    return walk.met


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rubricflow", default=str(Path(sys.executable).with_name("rubricflow")))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--classes", nargs="*", choices=CLASSES, default=list(CLASSES))
    wanted = parser.parse_args(words)
    program = str(Path(wanted.rubricflow).absolute())
    met: dict[str, dict[str, str]] = {}
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=path, args=BROWSER)
        for name in wanted.classes:
            folder = wanted.to.resolve() / name
            folder.mkdir(parents=True)
            met[name] = walked(name, program, folder, browser)
        browser.close()
    print("\n| | " + " | ".join(met) + " |\n|---|" + "---|" * len(met))
    for point in dict.fromkeys(point for points in met.values() for point in points):
        print(f"| {point} | " + " | ".join(points.get(point, "") for points in met.values()) + " |")
    return int(any("FAILED" in points for points in met.values()))


if __name__ == "__main__":
    sys.exit(main())
