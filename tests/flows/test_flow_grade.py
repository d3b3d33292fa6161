"""The main job from a study file to its tables, with recorded replies of a foreign judge (no model, no network)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from builders.command import command, done, last_run, refused
from builders.plain_checks import great_expectations
from tiny_study import make_study

from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.store.warehouse import Run


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """The tiny study, graded by the command."""
    folder = tmp_path_factory.mktemp("tiny")
    study = make_study(folder)
    words = ["grade", str(study), "--warehouse", str(folder / "house")]
    with great_expectations():
        result = command(*words)
    assert result.exit_code == 0, result.output
    return study, last_run(folder / "house")


def rows(run: Run, table: type, stage: str) -> dict[str, dict]:
    return {row["response_id"]: row for row in run.read(run.ref(table, stage)).to_pylist()}


def test_every_response_gets_a_prediction_row_with_a_score_or_a_reason(graded: tuple[Path, Run]) -> None:
    predictions = rows(graded[1], Predictions, "calibrate")
    assert set(predictions) == set(rows(graded[1], Responses, "ingest"))
    assert predictions["x3"]["score"] is not None  # without a human score
    unread = [(predictions[name]["score"], predictions[name]["unscored_reason"]) for name in ("x7", "x8")]
    assert unread == [(None, "no_reply"), (None, "unreadable_reply")]


def test_a_foreign_scale_is_rescaled_to_the_bundles(graded: tuple[Path, Run]) -> None:
    grading = rows(graded[1], Gradings, "judge")["x1"]
    assert grading["score"] == 2.0  # quality 2, stated as 3 of 1..5
    assert dict(grading["signals"])["recorded"] == 2.0


def test_the_manifest_names_inputs_and_grade_digest(graded: tuple[Path, Run]) -> None:
    _, run = graded
    manifest = json.loads((run.folder / "manifest.json").read_bytes())
    assert set(manifest["identity"]["inputs"]) == {"items.csv", "answers.csv", "rubrics.yaml", "replies.csv"}
    assert len(manifest["grade_digest"]) == 64


def test_the_same_study_resumes_itself_without_the_judge(
    graded: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, run = graded
    before = run.ref(Attempts, "judge")

    def forbidden(*_: object) -> None:
        raise AssertionError("a finished run asked for its judge")

    monkeypatch.setattr("rubricflow.tasks.grading.judge.shard_judge.rater", forbidden)
    house = str(run.warehouse.root)
    done("grade", study, "--warehouse", house)
    assert run.warehouse.runs() == [run.run_id]
    assert run.ref(Attempts, "judge") == before


def test_evaluation_settings_make_another_run_with_the_same_grade_digest(graded: tuple[Path, Run]) -> None:
    study, run = graded
    other = study.with_name("other.yaml")
    other.write_text(study.read_text().replace("draws: 50", "draws: 100"))
    done("grade", other, "--warehouse", run.warehouse.root)
    manifests = [
        json.loads((run.warehouse.root / name / "manifest.json").read_bytes()) for name in run.warehouse.runs()
    ]
    assert len({m["run_id"] for m in manifests}) == 2
    assert len({m["grade_digest"] for m in manifests}) == 1


def test_sql_answers_a_named_question(graded: tuple[Path, Run]) -> None:
    _, run = graded
    where = ["--run", run.run_id, "--warehouse", str(run.warehouse.root)]
    result = command("sql", "lineage", "response_id=x1", *where)
    (row,) = csv.DictReader(result.stdout.splitlines())
    assert row["response_id"] == "x1"
    assert row["role"] == "grade"


def test_sql_says_what_is_wrong_with_a_query(graded: tuple[Path, Run]) -> None:
    _, run = graded
    assert "nowhere" in refused("sql", "SELECT nothing FROM nowhere", "--warehouse", run.warehouse.root)


def test_a_run_compared_with_itself_differs_in_nothing(graded: tuple[Path, Run]) -> None:
    _, run = graded
    house = ["--warehouse", str(run.warehouse.root)]
    result = command("compare", run.run_id, run.run_id, *house)
    found = {row["statistic"]: row for row in csv.DictReader(result.stdout.splitlines())}
    assert float(found["qwk"]["b - a"]) == 0.0
    assert float(found["qwk"]["p"]) == 1.0
    page = (run.folder / f"compared-with-{run.run_id}.html").read_text()
    assert "Both runs give the same score to all 118 answers" in page
    assert "Both runs give the same score" in result.stderr


def test_a_study_of_recorded_replies_is_proved_with_its_replies(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    result = command("validate", study)
    assert "recorded replies: 119 replies" in result.output
    (tmp_path / "replies.csv").unlink()
    assert "replies.csv: no such file" in refused("validate", study)


def test_without_any_human_score_the_raw_scores_stand(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    lines = study.read_text().splitlines()
    study.write_text("\n".join(line for line in lines if "scores:" not in line and "evaluation:" not in line))
    done("grade", study, "--warehouse", tmp_path / "house")
    predictions = rows(last_run(tmp_path / "house"), Predictions, "calibrate")
    assert predictions["x1"]["score"] == predictions["x1"]["raw"] == 2.0
