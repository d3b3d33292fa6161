"""From a graded study to the responses that people score next, and back."""

from __future__ import annotations

import csv
import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest
from builders.command import done, last_run
from builders.files import read_csv
from tiny_study import make_study

from rubricflow.flows.next_labels import propose_labels
from rubricflow.flows.plan import plan, record
from rubricflow.flows.review import board_of
from rubricflow.flows.stage import references
from rubricflow.flows.validate import prove
from rubricflow.flows.votes import write_settled
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.calibration import ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.people import NextLabels
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.evaluate.task import evaluate
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.grading.report.task import viewed
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger

FIGURES = True
"""See conftest.py."""
SETTLED = """
    - {file: next.csv, scored: response_id, split: split, scores: [{rater: three, score: score}]}
rubrics:"""

SETTINGS = {"split": "split: {per: set, calibration: 40}", "evaluation": "\nevaluation: {target: one"}
"""What the study file says."""


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study of 120 responses, 40 of them labelled, and the warehouse in which it was graded."""
    return graded_in(tmp_path_factory.mktemp("study"))


def graded_in(folder: Path, **changes: str) -> tuple[Path, Path]:
    """The same in a folder; changes: text of the study file in place of other text."""
    study = make_study(folder)
    for old, new in changes.items():
        study.write_text(study.read_text().replace(SETTINGS[old], new))
    answers = study.with_name("answers.csv")
    rows = list(csv.reader(answers.open(newline="")))
    with answers.open("w", newline="") as file:
        csv.writer(file).writerows(row if at < 41 else [*row[:4], "", ""] for at, row in enumerate(rows))
    house = study.parent / "house"
    job = plan(study, house)
    run, settings, base = job.run, job.study, job.base
    data = ingest.fn(run, settings, base)
    people = data.gradings, data.judgments
    locked = lock.fn(run, settings, base, data.items, data.responses, *people)
    judged = judge.fn(run, settings.judge, base, data.items, data.responses, locked.bundles)
    answered = data.items, data.responses, data.gradings, judged.gradings
    scored = calibrate.fn(run, settings, *answered, locked.bundles)
    decided = data.judgments, judged.judgments
    agreed = evaluate.fn(run, settings, *answered, scored.predictions, locked.bundles, *decided)
    record(job, [*references((data, locked, judged, scored, agreed))])
    return study, house


@pytest.mark.parametrize(
    ("split", "here"), [("split: {cross: true}", 37), ("split: {per: set, calibration: 40}", 18)], ids=["cross", "half"]
)
def test_all_commands_give_the_same_figures_of_what_a_promise_wants(tmp_path: Path, split: str, here: int) -> None:
    """37 of 40 answers have a mark and a reply; `cross` counts them all and measures on them all, too."""
    release = "\nrelease: {by: set}\nevaluation: {target: one"
    study, house = graded_in(tmp_path, split=split, evaluation=release)
    run = plan(study, house).run
    said = {
        "validate": " ".join(message for _, what, message in prove(study) if what == "release"),
        "next": " ".join(propose_labels(study, house, None, 3).told),
        "report": viewed(run).why_nothing,
        "table": run.read(run.ref(ReleaseRules, "calibrate"))["note"][0].as_py(),
    }
    for where, words in said.items():
        assert f"45 needed, {here} here" in words, where
    figures = run.read(run.ref(Metrics, "evaluate")).to_pylist()
    compared = {
        row["n"] for row in figures if (row["metric"], row["slice"], row["stage"]) == ("qwk", "all", "calibrated")
    }
    assert max(compared) == (37 if "cross" in split else 37 - here)


def test_a_study_that_was_not_graded_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tiny is not graded in .*rubricflow grade"):
        propose_labels(make_study(tmp_path), tmp_path / "house", None, 20)


def test_the_command_prints_the_table_and_says_what_there_is(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    sheet = tmp_path / "next.csv"
    said = done("next", study, "--warehouse", house, "--count", "7", "--to", sheet)
    rows = list(csv.reader(said.stdout.splitlines()))
    assert rows[0] == ["rank", "item_id", "response_id", "sampled", "why"]
    assert [row[0] for row in rows[1:]] == list("1234567")
    assert said.stderr.startswith("tiny: 39 labels of 120 graded responses")
    written = read_csv(sheet)
    number = [int(row["response_id"].removeprefix("x")) for row in written]
    assert [row["question"] for row in written] == [["What is heat?", "What is cold?"][n % 2] for n in number]
    assert [row["response"] for row in written] == [f"answer {n} " + "word " * (n * 7 % 5) for n in number]
    assert {row["score"] for row in written} == {""}
    assert [row[:4] for row in csv.reader(sheet.open(newline="", encoding="utf-8-sig"))] == [
        ["rank", "item_id", "response_id", "split"],
        *([row[0], row[1], row[2], "chosen" if row[3] == "chosen" else ""] for row in rows[1:]),
    ]


def test_the_longest_proposal_is_kept_and_leads_the_queue(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded[0], shutil.copytree(graded[1], tmp_path / "house")
    longest = propose_labels(study, house, None, 12).rows
    assert propose_labels(study, house, None, 5).rows == longest[:5]
    run = last_run(house)
    assert run.ref(NextLabels, "next").rows == 12
    board = board_of(study, house)
    assert [case.response_id for case in board.cases[:12]] == [row["response_id"] for row in longest]
    assert [case.why for case in board.cases[:12]] == [row["why"] for row in longest]


def test_what_was_chosen_comes_back_as_chosen(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    rows = propose_labels(study, house, None, 30).rows
    sampled = {row["response_id"]: row["sampled"] for row in rows}
    assert set(sampled.values()) == {"chosen", "drawn"}
    with study.with_name("next.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["response_id", "split", "score"])
        writer.writerows([name, "chosen" if how == "chosen" else "", 2] for name, how in sampled.items())
    again = study.with_name("again.yaml")
    again.write_text(study.read_text().replace("\nrubrics:", SETTLED).replace("target: one", "target: mean"))
    run = Warehouse.open(tmp_path / "house").run("again")
    responses = run.read(ingest.fn(run, load_study(again), again.parent).responses).to_pylist()
    split = {row["response_id"]: row["split"] for row in responses}
    assert {name for name, side in split.items() if side == "chosen"} == {
        name for name, how in sampled.items() if how == "chosen"
    }
    drawn = Counter(split[name] for name, how in sampled.items() if how == "drawn")
    assert drawn["calibration"] > 0
    assert drawn["test"] > 0
    assert run.ref(Responses, "ingest").rows == 120


def test_settled_scores_say_which_were_drawn(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    rows = propose_labels(study, house, None, 30).rows
    board = board_of(study, house)
    asked = {case.response_id: board.ballots(case)[0]["digest"] for case in board.cases}
    with Ledger(house / LEDGER) as ledger:
        for name, digest in asked.items():
            of = {"study": "tiny", "subject_kind": "score", "response_id": name, "criterion_id": None, "rater_id": "an"}
            ledger.add(Act(act_id=str(uuid.uuid4()), kind="vote", value="2", digest=digest, **of))
            ledger.add(Act(act_id=str(uuid.uuid4()), kind="submit", value=None, **of))
    assert write_settled(study, house, None, tmp_path / "settled.csv") == len(asked)
    found = read_csv(tmp_path / "settled.csv")
    drawn = {row["response_id"] for row in rows if row["sampled"] == "drawn"}
    assert {row["response_id"] for row in found if row["split"] == ""} == drawn
    assert {row["split"] for row in found} == {"", "chosen"}
