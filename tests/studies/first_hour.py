"""A class set's way from a learning platform to a gradebook, with a stopwatch: every command as a teacher types it.

    python tests/studies/first_hour.py --rubricflow .venv/bin/rubricflow --to FOLDER

A Moodle-form export of 30 answers is written as .xlsx, then: init, validate, grade, ten answers reviewed in a headless
browser, grades (.xlsx, opened by openpyxl and by LibreOffice), Moodle's import form and feedback. Pictures of the pages
in light, dark and at the width of a phone are left in FOLDER. Ends with 1 where a step fails.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import openpyxl
from playwright.sync_api import sync_playwright

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
STUDENTS = 15
REVIEWED = 10
BROWSER = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDTHS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}


def export(path: Path) -> Path:
    """A quiz's responses as Moodle exports them, with questions and right answers, saved as .xlsx."""
    parts = ("Question", "Response", "Right answer")
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
    header += [f"{part} {number}" for number in (1, 2) for part in parts]
    book = openpyxl.Workbook()
    book.active.append(header)
    for place in range(STUDENTS):
        row = [f"Family{place:02d}", f"Given{place:02d}", f"s{place:02d}@school.example", "Finished"]
        row += ["2 November 2026  9:05 AM", "2 November 2026  9:31 AM", "26 mins", "Not yet graded"]
        for question, (right, sentences) in QUESTIONS.items():
            pairs = list(itertools.permutations(sentences, 2))
            first, second = pairs[(7 * place) % len(pairs)]
            row += [question, f"{first}. {second}.", right]
        book.active.append(row)
    book.save(path)
    return path


class Stopwatch:
    """Runs a command and prints its time and its last words."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder

    def run(self, *words: str) -> str:
        start = time.monotonic()
        done = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        print(f"\n$ rubricflow {' '.join(words)}   [{time.monotonic() - start:.0f} s]")
        print(done.stdout.strip())
        if done.returncode:
            raise SystemExit(f"it ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def served(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([self.program, *words], cwd=self.folder, stdout=subprocess.DEVNULL)


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
    raise SystemExit(f"{address} did not come up")


def reviewed(browser: Any, address: str, shots: Path) -> None:
    """Ten answers: a criterion moved on the first, the score that follows taken on all, a note to one student."""
    start = time.monotonic()
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(address)
    page.fill("#name", "Ms Teacher")
    page.keyboard.press("Enter")
    for number in range(REVIEWED):
        page.locator("#take").first.wait_for()
        if number == 0:
            for key in ("j", "1"):
                page.keyboard.press(key)
            page.locator("#follows", has_text="of").first.wait_for()
            page.screenshot(path=shots / "review-moved.png", full_page=True)
            page.keyboard.press("w")
            page.keyboard.type("Say also why the air inside counts.")
            page.keyboard.press("Escape")
            page.locator("#noteState", has_text="Stored.").wait_for()
        title = page.locator("main h2").first.inner_text()
        page.keyboard.press("t")
        page.locator("#c0 [aria-checked=true]").first.wait_for()
        page.keyboard.press("s")
        page.locator("#done", has_text=f"{number + 1} of").wait_for()
        page.locator("#stored", has_text="Everything stored").wait_for()
        if page.locator("main h2").first.inner_text() == title:
            page.keyboard.press("n")
    print(f"\n{REVIEWED} answers reviewed in the browser   [{time.monotonic() - start:.0f} s]")
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


def opened(book: Path, shots: Path) -> None:
    """What openpyxl and LibreOffice read of the grades: the same cells, and no formula."""
    rows = list(openpyxl.load_workbook(book)["Grades"].values)
    if not shutil.which("soffice"):
        print("LibreOffice is not here: the sheet was opened by openpyxl alone")
        return
    command = [
        "soffice",
        "--headless",
        "--convert-to",
        "csv:Text - txt - csv (StarCalc):44,34,76",
        "--outdir",
        str(shots),
    ]
    subprocess.run([*command, str(book)], check=True, capture_output=True)
    with (shots / f"{book.stem}.csv").open(newline="", encoding="utf-8") as file:
        office = list(csv.reader(file))
    same = [[str(cell) if cell is not None else "" for cell in row] for row in rows] == office
    print(f"LibreOffice reads {len(office)} rows of {len(office[0])} columns, {'the same' if same else 'OTHERS'}")
    if not same:
        raise SystemExit("LibreOffice reads other cells than openpyxl")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rubricflow", default=str(Path(sys.executable).with_name("rubricflow")))
    parser.add_argument("--to", type=Path, required=True)
    wanted = parser.parse_args(words)
    folder = wanted.to.resolve()
    folder.mkdir(parents=True)
    start = time.monotonic()
    export(folder / "Biology quiz-responses.xlsx")
    watch = Stopwatch(str(Path(wanted.rubricflow).resolve()), folder)
    study = "quiz/study.yaml"
    watch.run("init", "Biology quiz-responses.xlsx", "--to", study, "--yes")
    watch.run("validate", study)
    watch.run("grade", study)
    port = free_port()
    server = watch.served("review", study, "--port", str(port), "--no-browser")
    address = f"http://127.0.0.1:{port}/"
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=path, args=BROWSER)
        try:
            wait_for(address)
            pictures(browser, address, "review", folder)
            reviewed(browser, address, folder)
        finally:
            server.terminate()
            server.wait()
        watch.run("grades", study, "--to", "grades.xlsx")
        opened(folder / "grades.xlsx", folder)
        watch.run("grades", study, "--to", "wide.csv", "--wide")
        watch.run("grades", study, "--to", "moodle.csv", "--form", "moodle")
        watch.run("feedback", study, "--to", "feedback")
        (student, *_) = sorted((folder / "feedback").glob("*/*.html"))
        pictures(browser, student.as_uri(), "feedback", folder)
        (report,) = (folder / "data" / "warehouse").glob("*/report.html")
        pictures(browser, report.as_uri(), "report", folder)
        browser.close()
    print(f"\nfrom the export to the gradebook: {(time.monotonic() - start) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
