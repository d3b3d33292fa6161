"""A log with labels becomes a report on its judge; the calibration holds for the same judge and for no other."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rubricflow.flows.calibrate import calibrate
from rubricflow.flows.grade import grade
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Predictions
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

FIGURES = True
"""See conftest.py."""
IDEAS = ("warm air rises", "it cools above", "vapour turns into drops", "heavy drops fall")


def answers(count: int, seed: int) -> list[dict[str, Any]]:
    """Answers with the number of ideas in them, each judged with an error now and then; every tenth explanation cites
    what nobody wrote."""
    drawn, rows = random.Random(seed), []
    for number in range(count):
        said = [idea for idea in IDEAS if drawn.random() < 0.6]
        quote = "clouds of cotton" if number % 10 == 9 else said[0] if said else ""
        score = min(4, max(0, len(said) + drawn.choice((0, 0, 0, 0, 1))))
        rows.append(
            {
                "id": f"a{number}",
                "answer": ". ".join(said) or "I do not know",
                "score": score,
                "explanation": f'It says "{quote}".' if quote else "Nothing is said.",
                "true": len(said),
            }
        )
    return rows


def log_file(path: Path, rows: list[dict[str, Any]], model: str, texts: bool = True) -> Path:
    kept = ("id", "score", "explanation", *(["answer"] if texts else []))
    lines = [{**{name: row[name] for name in kept}, "judge_model": model} for row in rows]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def labels_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("id,rater,score\n" + "".join(f"{row['id']},p1,{row['true']}\n" for row in rows))
    return path


def run_of(warehouse: Path, name: str) -> Run:
    (folder,) = warehouse.glob(f"{name}-*")
    return Warehouse.open(warehouse).run(folder.name)


def mapping_of(run: Run) -> Any:
    rows: pa.Table = run.table(Calibrations, "calibrate")
    return [json.loads(content)["mapping"] for content in rows["content"].to_pylist()]


def test_a_log_is_calibrated_applied_and_refused_for_another_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse, rows = tmp_path / "warehouse", answers(80, 1)
    log = log_file(tmp_path / "rain.jsonl", rows, "judge-1")
    calibrate([log], labels=labels_file(tmp_path / "labels.csv", rows[:50]), warehouse=str(warehouse))
    run = run_of(warehouse, "rain")
    assert read_manifest(run)["identity"]["study"]["log"]["told"] == {"model": "judge-1"}
    judgments = run.table(Judgments, "judge").to_pylist()
    statuses = [quote["status"] for row in judgments for quote in row["evidence"]]
    cited = [row for row in rows if "says" in row["explanation"]]
    assert len(statuses) == len(cited)
    assert statuses.count("fabricated") == sum("cotton" in row["explanation"] for row in rows)
    assert {row["decision"] for row in judgments} <= {0, 1}
    assert run.table(Predictions, "calibrate").num_rows == 80
    assert "label next: " in capsys.readouterr().out
    # The same study is an ordinary one: grading it asks nothing anew.
    assert grade(study=str(tmp_path / "rain.calibration" / "study.yaml"), warehouse=str(warehouse))

    later = answers(30, 2)
    other = log_file(tmp_path / "other.jsonl", later, "judge-2")
    with pytest.raises(InputError, match="'judge-1' → 'judge-2'"):
        calibrate([other], earlier=tmp_path / "rain.calibration", warehouse=str(warehouse))
    # Asked to test for a shift: a judge that gives a point less is refused, one that says the same is applied.
    stricter = [{**row, "score": max(0, row["score"] - 1)} for row in answers(80, 5)]
    strict = log_file(tmp_path / "strict.jsonl", stricter, "judge-2")
    with pytest.raises(InputError, match="mean score"):
        calibrate([strict], earlier=tmp_path / "rain.calibration", accept_shift=True, warehouse=str(warehouse))
    with pytest.raises(InputError, match="too few"):
        calibrate([other], earlier=tmp_path / "rain.calibration", accept_shift=True, warehouse=str(warehouse))
    alike = log_file(tmp_path / "alike.jsonl", answers(60, 6), "judge-2")
    calibrate([alike], earlier=tmp_path / "rain.calibration", accept_shift=True, warehouse=str(warehouse))
    assert mapping_of(run_of(warehouse, "alike")) == mapping_of(run)

    same = log_file(tmp_path / "later.jsonl", later, "judge-1")
    calibrate([same], earlier=tmp_path / "rain.calibration", warehouse=str(warehouse))
    applied = run_of(warehouse, "later")
    assert mapping_of(applied) == mapping_of(run)
    assert "of this log's own 30 verdicts" in capsys.readouterr().out
    scored = set(applied.table(Predictions, "calibrate")["response_id"].to_pylist())
    assert scored == {row["id"] for row in rows[:50]} | {f"new|{row['id']}" for row in later}


def test_a_log_without_answers_is_calibrated_by_its_verdicts_alone(tmp_path: Path) -> None:
    warehouse, rows = tmp_path / "warehouse", answers(60, 3)
    log = log_file(tmp_path / "bare.jsonl", rows, "judge-1", texts=False)
    calibrate([log], labels=labels_file(tmp_path / "labels.csv", rows[:40]), warehouse=str(warehouse))
    run = run_of(warehouse, "bare")
    raw = {row["response_id"]: row["raw"] for row in run.table(Predictions, "calibrate").to_pylist()}
    assert raw == {row["id"]: row["score"] for row in rows}
    compared = run.table(Metrics, "evaluate").to_pylist()
    assert {row["rater_b"] for row in compared}.isdisjoint({"length", "text_only"})
    assert not any(row["evidence"] for row in run.table(Judgments, "judge").to_pylist())


def test_without_labels_nothing_is_calibrated(tmp_path: Path) -> None:
    log = log_file(tmp_path / "rain.jsonl", answers(5, 4), "judge-1")
    with pytest.raises(InputError, match="no labels"):
        calibrate([log], warehouse=str(tmp_path / "warehouse"))
    assert not (tmp_path / "rain.calibration").exists()
