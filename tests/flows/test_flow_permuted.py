"""Where people's marks are permuted no score goes out: whole studies, of which nothing but their files is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from builders.files import write_csv

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock


def study_in(folder: Path, seed: int) -> Study:
    """Recorded replies of a good judge; scale, promise, questions, authors and the share of each mark are drawn. Every
    second study permutes its marks within questions, the others over all of them."""
    rng = np.random.default_rng(seed)
    questions, top = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    size = int(rng.integers(80, 241))
    release = {
        "tolerance": int(rng.integers(0, max(1, top // 2))),
        "risk": float(rng.choice([0.05, 0.1, 0.2, 0.3, 0.4])),
        "by": str(rng.choice(["item", "set"])),
    }
    question = np.repeat(np.arange(questions), size)
    author = rng.permutation(len(question)) // int(rng.choice([1, 4]))
    quality = np.concatenate(
        [rng.choice(top + 1, size, p=rng.dirichlet(np.full(top + 1, rng.uniform(0.3, 3)))) for _ in range(questions)]
    )
    noise = rng.integers(-1, 2, len(quality)) * (rng.uniform(size=len(quality)) < 0.3)
    judged = np.clip(quality + noise, 0, top)
    within = [quality] if seed % 2 else np.split(quality, questions)
    marks = np.concatenate([rng.permutation(part) for part in within])
    scale = {"min": 0, "max": top}
    criterion = {"id": "P1", "trait": "content", "text": "Says why.", "levels": ["absent", "present"]}
    rubric = {"scale": scale, "traits": [{"id": "content", "name": "Content", **scale}], "criteria": [criterion]}
    rubrics = [{"rubric_id": f"q{at}", **rubric} for at in range(questions)]
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": rubrics}))
    write_csv(folder / "items.csv", ["id", "question"], [[f"q{at}", f"Question {at}?"] for at in range(questions)])
    cells = zip(question, author, marks, strict=True)
    rows = [[f"x{at}", f"q{item}", f"a{who}", f"answer {at}", int(mark)] for at, (item, who, mark) in enumerate(cells)]
    write_csv(folder / "answers.csv", ["id", "item", "author", "text", "one"], rows)
    replies = [[f"x{at}", json.dumps({"score": int(level)})] for at, level in enumerate(judged)]
    write_csv(folder / "replies.csv", ["id", "reply"], replies)
    answers = {
        "file": "answers.csv",
        "responses": {"response_id": "id", "item_id": "item", "author_id": "author", "text": "text"},
        "scores": [{"rater": "one", "score": "one"}],
    }
    foreign = {"file": "replies.csv", "response_id": "id", "reply": "reply", "reader": {"json_keys": ["score"]}}
    return Study.model_validate(
        {
            "name": "permuted",
            "data": {"sources": [{"file": "items.csv", "items": {"item_id": "id", "question": "question"}}, answers]},
            "rubrics": {"file": "rubrics.yaml"},
            "split": {"by": "response", "per": "item", "calibration": int(size * 0.75)},
            "judge": {"protocol": "dhs", "backend": "replay", "foreign": foreign},
            "calibration": {"features": ["judge"]},
            "release": release,
            "evaluation": {"target": "one", "draws": 0},
        }
    )


@pytest.mark.parametrize("seed", range(3))
def test_with_permuted_marks_nothing_goes_out(seed: int, tmp_path: Path) -> None:
    study, run = study_in(tmp_path, seed), Warehouse.open(tmp_path / "house").run("permuted")
    data = ingest.fn(run, study, tmp_path)
    locked = lock.fn(run, study, tmp_path, data.items, data.responses, data.gradings, data.judgments)
    judged = judge.fn(run, study.judge, tmp_path, data.items, data.responses, locked.bundles)
    calibrate.fn(run, study, data.items, data.responses, data.gradings, judged.gradings, locked.bundles)
    assert "release" not in run.read(run.ref(Predictions, "calibrate"), ["route"])["route"].to_pylist()
    assert all(rule["refused"] for rule in run.read(run.ref(ReleaseRules, "calibrate")).to_pylist())
