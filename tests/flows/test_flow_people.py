"""From annotators to a grader that people steer: annotate, vote, adjudicate, train, grade, on a part of the demo."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from builders.command import command, done
from builders.files import read_csv, write_csv
from safetensors import safe_open

from rubricflow.flows.annotate import annotate, settle
from rubricflow.flows.bottleneck import bottleneck
from rubricflow.flows.grade import grade
from rubricflow.flows.review import board_of
from rubricflow.tasks.core.contracts.tables.bottleneck import Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.people import Agreements, Labels, Queue, Votes
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.review.ledger import LEDGER, acts_of
from rubricflow.tasks.people.review.sheet import questions_of

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
LIMIT = 6


class Chain(NamedTuple):
    """What the chain left."""

    study: Path
    house: Path
    annotated: Run
    settled: Run
    trained: Run
    graded: Run


def study_in(folder: Path) -> Path:
    """The demo's study with fewer graders, in a folder of its own."""
    shutil.copytree(DEMO, folder)
    content = yaml.safe_load((folder / "concepts.yaml").read_text())
    content["bottleneck"] |= {"methods": ["rec_cbm", "plm"], "seeds": [0], "grader": "grader.safetensors"}
    content["bottleneck"]["training"] |= {"epochs": 3}
    content["judge"]["grader"] = "grader.safetensors"
    content["evaluation"] = content.get("evaluation", {}) | {"draws": 50}
    (folder / "concepts.yaml").write_text(yaml.safe_dump(content))
    return folder / "concepts.yaml"


def fill(sheet: Path, rater: str, wrong: int = 0) -> None:
    """Votes of a demo rater into a sheet; the first `wrong` rows get another level."""
    marks = [row for row in read_csv(DEMO / "concept_marks.csv") if row["rater_id"] == rater]
    said = {(row["response_id"], row["criterion_id"]): row["level"] for row in marks}
    rows = read_csv(sheet)
    for number, row in enumerate(rows):
        level = said[row["response_id"].removeprefix("'"), row["criterion_id"].removeprefix("'")]
        row["level"] = str((int(level) + 1) % 3) if number < wrong else level
    write_csv(sheet, list(rows[0]), [list(row.values()) for row in rows])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    folder = tmp_path_factory.mktemp("people")
    study, house = study_in(folder / "demo"), folder / "house"
    given = str(study), str(house), LIMIT
    warehouse = Warehouse.open(house)
    annotated = warehouse.run(annotate(*given))
    for name, wrong in (("anna", 0), ("ben", 3)):
        sheet = folder / f"{name}.csv"
        done("votes", study, "--to", sheet, *where(house))
        fill(sheet, "key", wrong)
        back = ["votes", str(study), "--from", str(sheet), "--as", name, *where(house)]
        for _ in range(2):  # a file read twice adds nothing
            assert command(*back).exit_code == 0
    settled = warehouse.run(settle(*given))
    trained = warehouse.run(bottleneck(*given))
    return Chain(study, house, annotated, settled, trained, warehouse.run(grade(*given)))


def where(house: Path) -> list[str]:
    return ["--warehouse", str(house), "--limit", str(LIMIT)]


def rows(run: Run, row: Any, stage: str) -> list[dict[str, Any]]:
    return run.read(run.ref(row, stage)).to_pylist()


def test_doubtful_responses_are_queued_the_most_telling_first(chain: Chain) -> None:
    queued = rows(chain.annotated, Queue, "queue")
    assert [row["rank"] for row in queued] == list(range(1, len(queued) + 1))
    assert [row["priority"] for row in queued] == sorted((row["priority"] for row in queued), reverse=True)
    assert 0 < len(queued) < 8 * LIMIT
    assert {"annotators_disagree"} < {reason for row in queued for reason in row["reasons"]}


def test_two_annotators_are_compared_before_and_people_after(chain: Chain) -> None:
    before, after = rows(chain.annotated, Agreements, "compare"), rows(chain.settled, Agreements, "compare-settled")
    assert {row["raters"] for row in before} == {"first and second"}
    assert {row["raters"] for row in after} == {"anna and ben", "first and final", "second and final"}
    people = [row for row in after if row["raters"] == "anna and ben" and row["metric"] == "exact"]
    assert next(row["value"] for row in people if row["criterion_id"] == "all") < 1  # ben was made to err


def test_votes_that_agree_settle_and_those_that_differ_wait(chain: Chain) -> None:
    labels = rows(chain.settled, Labels, "adjudicate")
    by = {row["settled_by"] for row in labels}
    assert by == {"annotators", "agreed_votes", "open"}
    for row in labels:
        votes = [step["level"] for step in row["history"] if step["kind"] == "vote"]
        if row["settled_by"] == "agreed_votes":
            assert votes == [row["level"]] * 2
        assert (row["level"] is None) == (row["settled_by"] == "open")
    assert sum(len(row["history"]) == 4 and row["level"] is None for row in labels) == 3
    queued = len(rows(chain.annotated, Queue, "queue"))
    assert len(rows(chain.settled, Votes, "adjudicate")) == 2 * 5 * queued


def test_what_people_say_later_makes_another_run_and_nothing_is_asked_twice(chain: Chain) -> None:
    assert chain.annotated.run_id != chain.settled.run_id
    assert len(acts_of(chain.house, "concepts")) == 2 * 6 * len(rows(chain.annotated, Queue, "queue"))
    again = settle(str(chain.study), str(chain.house), LIMIT)
    assert again == chain.settled.run_id


def test_every_grade_is_the_sum_of_its_concepts(chain: Chain) -> None:
    traced = rows(chain.trained, Traces, "bottleneck")
    of: dict[str, list[dict[str, Any]]] = {}
    for row in traced:
        of.setdefault(row["response_id"], []).append(row)
    assert len(of) > 3
    for parts in of.values():
        assert {row["criterion_id"] for row in parts} == {
            "soundness", "coverage", "core", "precision", "development", "bias",
        }  # fmt: skip
        assert abs(sum(row["contribution"] for row in parts) - parts[0]["logit"]) < 1e-9
    error = [row["value"] for row in rows(chain.trained, Trials, "bottleneck") if row["metric"] == "contribution_error"]
    assert error[0] < 1e-5


def test_the_export_carries_its_rubric_and_grades_as_in_training(chain: Chain) -> None:
    place = chain.study.with_name("grader.safetensors")
    with safe_open(place, "np") as file:
        about = json.loads(file.metadata()["rubricflow"])
    assert [criterion["id"] for criterion in json.loads(about["bundle"])["criteria"]][:2] == ["soundness", "coverage"]
    card = place.with_suffix(".md").read_text()
    assert all(name in card for name in ("soundness", "trained", about["bundle_id"][:12]))
    (model,) = [row for row in rows(chain.trained, Models, "bottleneck") if row["path"]]
    assert (chain.house / model["path"]).read_bytes() == place.read_bytes()
    then = {row["response_id"]: row["score"] for row in rows(chain.trained, Gradings, "bottleneck")}
    now = {row["response_id"]: row for row in rows(chain.graded, Gradings, "judge")}
    asked = [name for name, row in now.items() if row["status"] == "scored"]
    assert np.mean([then[name] == now[name]["score"] for name in asked]) > 0.95  # half-precision states decide a few
    assert {row["rater_kind"] for row in now.values()} == {"trained"}


def test_the_page_reckons_with_the_trained_grader(chain: Chain) -> None:
    board = board_of(chain.study, chain.house, LIMIT)
    assert board.grader is not None
    assert len(board.grader.scores) == 5
    assert all(board.shares(case) is not None for case in board.cases)
    assert len(questions_of(board)) == 5 * len(board.cases)
    levels = rows(chain.trained, Judgments, "bottleneck")
    assert {row["rater_kind"] for row in levels} == {"trained"}


def test_reports_are_written_anew(chain: Chain) -> None:
    for run, name in ((chain.settled, "annotation.html"), (chain.trained, "bottleneck.html")):
        page = (run.folder / name).read_text()
        (run.folder / name).unlink()
        done("report", run.run_id, "--warehouse", chain.house)
        assert (run.folder / name).read_text() == page
    assert list((chain.trained.folder / "pictures").glob("*.html"))


def test_a_study_without_the_section_is_told_what_to_write(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "demo")
    for name in ("annotate", "train"):
        said = command(name, tmp_path / "demo/study.yaml", *where(tmp_path / "house"))
        assert said.exit_code == 2
    assert not (tmp_path / "house" / LEDGER).exists()


class Generous:
    """A language model that gives everybody 8."""

    name, model, batch_size, by_subject, reads_prose = "openai", "generous", 64, False, True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for index, request in enumerate(requests):
            self.asked.append("".join(message.content for message in request.messages))
            yield index, Reply(text='{"score": 8}')


def test_a_prompted_model_stands_in_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, model = study_in(tmp_path / "demo"), Generous()
    content = yaml.safe_load(study.read_text())
    prompted = {"backend": "openai", "engine": {"model": "generous"}, "shots": [0, 2]}
    content["bottleneck"] |= {"methods": ["plm"], "labels": "key", "prompted": prompted}
    study.write_text(yaml.safe_dump(content))
    monkeypatch.setattr("rubricflow.tasks.methods.bottleneck.task.open_backend", lambda *_: model)
    run = Warehouse.open(tmp_path / "house").run(bottleneck(str(study), str(tmp_path / "house"), LIMIT))
    found = {(row["method"], row["metric"]): row for row in rows(run, Trials, "bottleneck") if row["split"] == "test"}
    zero, few = (found[f"prompted_{shots}_shot", "task_accuracy"] for shots in (0, 2))
    assert zero["n"] == found["plm", "task_accuracy"]["n"] == len(model.asked) / 2
    assert zero["value"] == few["value"]
    said = [row for row in rows(run, Gradings, "ingest") if row["rater_id"] == "key"]
    split = {row["response_id"]: row["split"] for row in rows(run, Responses, "ingest")}
    tested = [row["score"] for row in said if split[row["response_id"]] == "test"]
    assert zero["value"] == pytest.approx(np.mean([7 <= score <= 8 for score in tested]))  # the fourth of five bands
    half = len(model.asked) // 2
    assert max(map(len, model.asked[:half])) < min(map(len, model.asked[half:]))  # examples take their room
