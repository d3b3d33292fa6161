"""What the data recorded of another machine changes nothing about people or the judge, over rubrics with sub-points."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.evaluate.task import evaluate
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock

CRITERIA = [
    {"id": "A", "text": "Names what plants take in", "weight": 3},
    {"id": "A1", "text": "Plants need light", "weight": 2, "parent": "A"},
    {"id": "A2", "text": "Plants need water", "weight": 1, "parent": "A"},
    {"id": "B", "text": "Plants grow in the dark", "weight": -1},
]
WORDS = ("Plants need light.", "Plants need water.", "Plants grow in the dark.", "Plants are green.")
KEY = {"rater": "key", "score": "score"}
MACHINE = {"rater": "machine", "kind": "replayed", "score": "machine"}
MARKS = {"response_id": "id", "rater_id": "rater", "criterion_id": "point", "level": "level", "rater_kind": "kind"}
POINTS = (("A1", 2), ("A2", 1), ("B", -1))


def written(folder: Path, recorded: bool) -> Study:
    """Sixteen responses with scores and marks of a person and, if recorded, of a machine: on a scale of its own."""
    item = {"id": "i", "question": "What do plants need?", "criteria": CRITERIA}
    (folder / "items.jsonl").write_text(json.dumps(item))
    responses, marks = [["id", "item", "text", "score", "machine"]], [["id", "rater", "point", "level", "kind"]]
    for n in range(16):
        met = [bool(n >> at & 1) for at in range(4)]
        text = " ".join(word for word, said in zip(WORDS, met, strict=True) if said) or "I do not know."
        score = max(0, sum(points for (_, points), said in zip(POINTS, met, strict=False) if said))
        responses.append([f"r{n:02d}", "i", text, score, -34 * n])
        for (point, _), said in zip(POINTS, met, strict=False):
            marks.append([f"r{n:02d}", "key", point, int(said), ""])
            marks += [[f"r{n:02d}", "machine", point, int(not said), "replayed"]] * recorded
    for name, rows in (("responses.csv", responses), ("marks.csv", marks)):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    sources: list[dict[str, Any]] = [
        {"file": "items.jsonl", "items": {"item_id": "id", "question": "question", "criteria": "criteria"}},
        {"file": "responses.csv", "responses": {"response_id": "id", "item_id": "item", "text": "text"},
         "scores": [KEY, MACHINE] if recorded else [KEY]},
        {"file": "marks.csv", "marks": MARKS},
    ]  # fmt: skip
    derive = {"origin": "criteria", "scale": {"min": 0, "max": 3}, "evidence": "none", "levels": ["no", "yes"]}
    plan = {"protocol": "pointwise", "criteria_per_call": 2}
    study = {"name": "s", "data": {"sources": sources}, "rubrics": {"derive": derive}, "judge": plan}
    return Study.model_validate(study | {"evaluation": {"draws": 50}, "calibration": {"minimum": 4}})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same study without and with what the machine recorded, from ingest to evaluate."""
    made, tmp_path = [], tmp_path_factory.mktemp("recorded")
    for name, recorded in (("plain", False), ("recorded", True)):
        (tmp_path / name).mkdir()
        study, run = written(tmp_path / name, recorded), Warehouse.open(tmp_path / "house").run(name)
        data = ingest.fn(run, study, tmp_path / name)
        people = data.gradings, data.judgments
        locked = lock.fn(run, study, tmp_path / name, data.items, data.responses, *people)
        judged = judge.fn(run, study.judge, tmp_path / name, data.items, data.responses, locked.bundles)
        answered = data.items, data.responses, data.gradings, judged.gradings
        scored = calibrate.fn(run, study, *answered, locked.bundles)
        decided = data.judgments, judged.judgments
        evaluate.fn(run, study, *answered, scored.predictions, locked.bundles, *decided)
        made.append(run)
    return made[0], made[1]


def test_neither_calibration_nor_agreement_sees_what_a_machine_recorded(runs: tuple[Run, Run]) -> None:
    plain, recorded = runs
    assert recorded.ref(Gradings, "ingest").rows == 2 * plain.ref(Gradings, "ingest").rows
    assert recorded.ref(Judgments, "ingest").rows == 2 * plain.ref(Judgments, "ingest").rows
    for row, stage in ((Gradings, "judge"), (Predictions, "calibrate"), (Metrics, "evaluate")):
        assert plain.ref(row, stage).rows
        assert recorded.ref(row, stage).digest == plain.ref(row, stage).digest


def test_a_figure_of_single_decisions_is_of_sub_points_and_of_people(runs: tuple[Run, Run]) -> None:
    run = runs[1]
    tested = run.read(run.ref(Responses, "ingest"))["split"].to_pylist().count("test")
    metrics = run.read(run.ref(Metrics, "evaluate")).to_pylist()
    (brier,) = (row for row in metrics if row["metric"] == "decision_brier" and row["slice"] == "all")
    assert brier["n"] == len(POINTS) * tested
    assert not any("machine" in (row["rater_a"], row["rater_b"]) for row in metrics)
