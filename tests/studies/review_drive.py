"""Two reviewers vote on the demo's queue in a headless browser, a third settles what they disagree on, and the grader
is trained anew on the result. Prints what was stored and what it changed; `--shots FOLDER` keeps pictures of the page.

    python tests/studies/review_drive.py [--cases 30] [--shots FOLDER]
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import yaml
from playwright.sync_api import sync_playwright

from rubricflow.flows.annotate import annotate
from rubricflow.flows.bottleneck import bottleneck
from rubricflow.flows.review import board_of
from rubricflow.tasks.core.contracts.tables.bottleneck import Trials
from rubricflow.tasks.core.contracts.tables.people import Agreements, Labels
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.people.review.ledger import acts_of

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
PORT = 8791
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def marks():
    """Rater → (response, concept) → level."""
    found = {}
    with (DEMO / "concept_marks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["rater_id"], {})[row["response_id"], row["criterion_id"]] = row["level"]
    return found


def served(study, house):
    """The server as the command starts it, once it answers."""
    command = [
        sys.executable,
        "-m",
        "rubricflow.flows.cli",
        "review",
        str(study),
        "--warehouse",
        str(house),
        "--port",
        str(PORT),
    ]
    server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.DEVNULL)
    for _ in range(300):
        try:
            httpx.get(f"http://127.0.0.1:{PORT}/")
            return server
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the page did not come up")


def come(browser, name):
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"http://127.0.0.1:{PORT}/")
    page.fill("#name", name)
    page.keyboard.press("Enter")
    page.wait_for_selector(".crit.now")
    return page


def vote(page, cases, criteria, said, shot=None):
    """Votes on the cases in the order of the queue by keyboard alone."""
    title = page.locator("main h2").first
    for number, case in enumerate(cases):
        page.locator("main h2", has_text=case.response_id).first.wait_for()
        for at, name in enumerate(criteria):
            page.keyboard.press(said[case.response_id, name])
            if shot and number == 0 and at == 1:
                page.screenshot(path=shot)
        page.keyboard.press("s")
        page.locator("#stored", has_text="Everything stored").wait_for()
        page.wait_for_timeout(150)  # a first rating goes on by itself, a second one stays to be compared
        if number + 1 < len(cases) and title.inner_text() == case.response_id:
            page.keyboard.press("n")


def settle(page, shot=None):
    """Settles every conflict on the middle level, with a record; returns how many there were."""
    waiting, settled = page.locator("#conflicts"), 0
    page.keyboard.press("a")
    page.locator("#conflicts", has_text=re.compile("[0-9]")).wait_for()
    while waiting.inner_text().strip() != "To adjudicate 0":
        page.locator(".why", has_text="You settle what the others disagree on").wait_for()
        page.keyboard.press("1")
        page.locator("textarea:focus").wait_for()
        page.keyboard.type("Both read the answer again and settled on the middle level.")
        page.keyboard.press("Escape")
        if shot and not settled:
            page.screenshot(path=shot)
        page.keyboard.press("s")
        page.locator("#stored", has_text="Everything stored").wait_for()
        page.wait_for_timeout(300)
        settled += 1
        if page.locator("#outcome:focus").count():  # nothing is left of this case
            page.keyboard.press("n")
            page.wait_for_timeout(300)
        if settled > 400:
            raise SystemExit("the conflicts do not end")
    return settled


def figures(run):
    rows = run.read(run.ref(Trials, "bottleneck")).to_pylist()
    wanted = {"concept_macro_f1": "all", "concept_accuracy": "all", "task_macro_f1": "", "task_qwk": ""}
    return {
        row["metric"]: row["value"]
        for row in rows
        if row["method"] == "rec_cbm" and row["split"] == "test" and wanted.get(row["metric"]) == row["criterion_id"]
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--shots", type=Path)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="review-"))
    shutil.copytree(DEMO, folder / "demo")
    study, house = folder / "demo" / "concepts.yaml", folder / "house"
    content = yaml.safe_load(study.read_text())
    content["bottleneck"] |= {"methods": ["rec_cbm"], "seeds": [0], "grader": "grader.safetensors"}
    content["annotation"]["doubt"]["most"] = asked.cases
    study.write_text(yaml.safe_dump(content))
    annotate(str(study), str(house))
    before = bottleneck(str(study), str(house))
    board = board_of(study, house)
    cases, criteria = board.cases, [c.id for c in board.criteria["short_answer"]]
    shots = {
        name: asked.shots and str(asked.shots / f"drive-{name}.png") for name in ("first", "blind", "settle", "end")
    }
    said, browser_path = marks(), shutil.which("chromium") or shutil.which("google-chrome")
    server = served(study, house)
    started = time.monotonic()
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
            vote(come(browser, "Anna"), cases, criteria, said["key"], shots["first"])
            vote(come(browser, "Ben"), cases, criteria, said["strict"], shots["blind"])
            page = come(browser, "Cyd")
            settled = settle(page, shots["settle"])
            if shots["end"]:
                page.screenshot(path=shots["end"])
            browser.close()
    finally:
        server.terminate()
        server.wait(10)
    acts = acts_of(house, board.study)
    took = time.monotonic() - started
    print(f"{len(cases)} cases, {took:.0f} s in the browser, acts: {Counter(act.kind for act in acts)}")
    print(f"blind votes: {Counter((a.rater_id, a.blind) for a in acts if a.kind == 'vote')}; settled: {settled}")
    after = bottleneck(str(study), str(house))
    one, other = (Warehouse.open(house).run(name) for name in (before, after))
    for run in (one, other):
        labels = run.read(run.ref(Labels, "adjudicate")).to_pylist()
        worth = {name: round(value, 3) for name, value in figures(run).items()}
        print(run.run_id, Counter(row["settled_by"] for row in labels), worth)
    for row in other.read(other.ref(Agreements, "compare-settled")).to_pylist():
        if row["criterion_id"] == "all" and row["metric"] in ("krippendorff_alpha", "exact"):
            interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
            print(f"{row['raters']}: {row['metric']} {row['value']:.3f} {interval}, n {row['n']}")
    print(folder)


if __name__ == "__main__":
    main()
