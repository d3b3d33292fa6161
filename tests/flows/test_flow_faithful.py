"""Rule faithfulness from a study file to its tables, with a judge that marks in shares of the scale (no model)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.command import done, refused
from builders.files import write_csv

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.tables.edit import RuleFaithfulness, RuleTests
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.judge import embedded

STUDY = """
name: rules
data:
  sources:
    - file: items.csv
      items: {item_id: id, question: question, rubric_id: rubric}
    - file: answers.csv
      responses: {response_id: id, item_id: item, text: text, split: split}
      scores: [{rater: gold, score: gold}]
rubrics: {file: rubrics.yaml}
judge: {protocol: dhs, backend: embedded}
evaluation: {target: gold, draws: 100}
"""
RUBRICS = """
rubrics:
  - rubric_id: points
    text: The cause is worth three marks.
    scale: {min: 0, max: 4}
    traits: [{id: content, name: Content, min: 0, max: 4}]
    criteria:
      - {id: P1, trait: content, text: Names the cause of heat., weight: 3}
      - {id: P2, trait: content, text: Names an example of heat., weight: 1}
  - rubric_id: levels
    scale: {min: 0, max: 4}
    traits:
      - id: quality
        name: Quality
        min: 0
        max: 4
        anchors: [{score: 0, text: nothing right}, {score: 2, text: some of it}, {score: 4, text: all of it}]
    criteria: [{id: level, trait: quality, text: How much is right., levels: [nothing, some, all]}]
  - rubric_id: unused
    text: Nobody answered in the test split.
    scale: {min: 1, max: 6}
    traits: [{id: content, name: Content, min: 1, max: 6}]
    criteria: [{id: P1, trait: content, text: Names 2 marks of a good flute.}]
"""

TRAINED = "protocol: bottleneck, backend: trained, grader: mine.safetensors"
FOREIGN = "backend: replay, foreign: {file: answers.csv, response_id: id, reply: text, reader: {json_keys: [score]}}"


def make_study(folder: Path) -> Path:
    """Ten test answers to each of two questions, marked 0, 1, … 4 and 0 again; some that are not tested."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rubrics.yaml").write_text(RUBRICS)
    (folder / "study.yaml").write_text(STUDY)
    asked = ("points", "levels", "unused")
    write_csv(folder / "items.csv", ["id", "question", "rubric"], [[name, f"What of {name}?", name] for name in asked])
    answers = [[f"{item}{n}", item, f"answer {n} of {item}", "test", n % 5] for item in asked[:2] for n in range(10)]
    answers += [["train1", "points", "not tested", "train", 2], ["bare", "points", "no human mark", "test", ""]]
    answers += [["train2", "unused", "not tested either", "train", 2]]
    write_csv(folder / "answers.csv", ["id", "item", "text", "split", "gold"], answers)
    return folder / "study.yaml"


def words(study: Path) -> tuple[object, ...]:
    return "faithful", study, "--warehouse", study.parent / "house"


def shares(questions: Sequence[Any], encoder: Any) -> list[Reply]:
    """The mark that is known of an answer, as the same share of the scale, rounded half up."""
    marks = [int(question.text.split()[1]) % 5 * question.bundle.scale.max / 4 for question in questions]
    return [Reply(text=json.dumps({"rationale": "", "score": math.floor(mark + 0.5)})) for mark in marks]


@pytest.fixture(scope="module", autouse=True)
def _judge() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "answer", shares)
        patch.setattr("rubricflow.tasks.grading.judge.rater.minilm", lambda: SimpleNamespace(made="made up"))
        yield


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, str]:
    study = make_study(tmp_path_factory.mktemp("rules"))
    result = done(*words(study))
    house = Warehouse.open(study.parent / "house")
    (name,) = house.runs()
    return study, house.run(name), result.output


def test_every_test_response_is_marked_under_every_edit_of_its_scheme(tested: tuple[Path, Run, str]) -> None:
    run = tested[1]
    rows = run.read(run.ref(RuleTests, "faithful")).to_pylist()
    found = {(row["edit"], row["response_id"]) for row in rows}
    for item, edits in (("points", ("x0.5", "x1.5", "x2.0")), ("levels", ("A1", "A2", "B1"))):
        assert {one for one in found if one[0] in edits} == {(edit, f"{item}{n}") for edit in edits for n in range(10)}
    assert len(rows) == 60
    assert all(row["predicted"] == row["gold"] for row in rows)
    for row in rows:
        if row["edit"] in ("A2", "x2.0"):
            assert row["predicted_edited"] == row["gold_edited"] == 2 * row["gold"]
            assert row["top_edited"] == 8


def test_a_judge_of_shares_follows_what_scales_with_them(tested: tuple[Path, Run, str]) -> None:
    run, output = tested[1:]
    rows = {row["edit"]: row for row in run.read(run.ref(RuleFaithfulness, "faithful")).to_pylist()}
    assert set(rows) == {"A1", "A2", "B1", "x0.5", "x1.5", "x2.0"}
    for edit in ("A2", "x2.0"):
        assert (rows[edit]["rsr"], rows[edit]["in_rubric"], rows[edit]["floor_rate"]) == (1, 1, 0.2)
        assert (rows[edit]["n"], rows[edit]["gold_change"], rows[edit]["totals"]) == (10, 2, "summed")
    # Of 0 to 6 its shares are 0, 2, 3, 5 and 6; the bands would be 3-4 and 5-6.
    assert rows["A1"]["rsr"] == pytest.approx((1 + 1 + 2 + 2) / 8)
    assert "rater_id,totals,edit,n" in output
    assert output.count("embedded:") == 6


def test_scores_on_other_scales_stay_out_of_the_run(tested: tuple[Path, Run, str]) -> None:
    run = tested[1]
    aside = run.warehouse.run(f"{run.run_id}-rules")
    assert run.stages(Gradings) == ["ingest"]
    assert len(aside.stages(Gradings)) == 8
    assert aside.ref(Attempts, "judge-levels-B1").rows == 10


def test_the_question_of_sql_is_answered(tested: tuple[Path, Run, str]) -> None:
    answer = done("sql", "rule_faithfulness", "--warehouse", tested[1].warehouse.root).stdout.splitlines()
    assert answer[0].startswith("totals,rater_id,edit,n")
    assert len(answer) == 7


def test_the_same_study_resumes_itself(tested: tuple[Path, Run, str]) -> None:
    study, run, _ = tested
    before = {path: path.stat().st_mtime_ns for path in run.warehouse.root.rglob("*.parquet")}
    done(*words(study))
    assert {path: path.stat().st_mtime_ns for path in run.warehouse.root.rglob("*.parquet")} == before


def test_what_was_judged_before_a_run_died_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(tmp_path)
    batches: list[int] = []

    def dying(questions: Sequence[Any], encoder: Any) -> list[Reply]:
        batches.append(len(questions))
        if len(batches) == 4:
            raise UserError("the power went")
        return shares(questions, encoder)

    monkeypatch.setattr(embedded, "answer", dying)
    refused(*words(study))
    assert batches == [10] * 4
    done(*words(study))
    assert batches == [10] * 9  # of the eight versions three were finished


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("protocol: dhs, backend: embedded", TRAINED, "backend 'trained' reads no mark scheme"),
        ("backend: embedded", "backend: simulated, truth: {rater: gold}", "backend 'simulated' reads no mark scheme"),
        ("backend: embedded", FOREIGN, "given under the scheme as it is"),
        ("backend: embedded", "backend: openai, engine: {model: m}, examples: {}", "speak against every edit"),
        (",test,", ",train,", "no test response has a score of 'gold'"),
        ("Names the cause of heat.", "Names the cause (3 marks).", "rubric 'points' cannot be edited"),
        ("scale: {min: 0, max: 4}", "scale: {min: 0, max: 4, step: 0.5}", "marks are whole numbers"),
    ],
)
def test_what_cannot_be_tested_is_refused_in_words(tmp_path: Path, old: str, new: str, message: str) -> None:
    study = make_study(tmp_path)
    for path in (study, tmp_path / "rubrics.yaml", tmp_path / "answers.csv"):
        path.write_text(path.read_text().replace(old, new))
    assert message in refused(*words(study))
