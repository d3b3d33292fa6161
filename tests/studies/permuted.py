"""What goes out where the judge knows nothing of an answer: python tests/studies/permuted.py [--doors] [--signal]

Each study is written as files, with recorded replies of a judge, and graded by `rubricflow grade`; scales,
tolerances, targets, questions, authors and the share of each mark are drawn anew. People's marks are permuted, within
questions in one half of the studies and over all of them in the other, so that every release is one too many: at most
one study in twenty may release anything. With --doors the stages are called without checkpoints and report, which is
faster; with --signal the marks stay where they are, and the same studies show what still goes out.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.files import write_csv

from rubricflow.flows.cli import app
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock

Outcome = tuple[int, list[dict[str, Any]]]
"""How many scores go out, and the rows of `release_rules`."""
WORDS = ("heat", "cold", "water", "cell", "force", "light", "salt", "energy", "root", "wave")


def written(folder: Path, seed: int, permuted: bool) -> dict[str, Any]:
    """A study of which nothing but these files is needed; its settings of release."""
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
    marks = permuted_marks(quality, question, rng, within=seed % 2 == 0) if permuted else quality
    scale = {"min": 0, "max": top}
    rubrics = [
        {
            "rubric_id": f"q{number}",
            "scale": scale,
            "traits": [{"id": "content", "name": "Content", **scale}],
            "criteria": [{"id": "P1", "trait": "content", "text": "Says why.", "levels": ["absent", "present"]}],
        }
        for number in range(questions)
    ]
    source = {
        "file": "answers.csv",
        "responses": {"response_id": "id", "item_id": "item", "author_id": "author", "text": "text"},
        "scores": [{"rater": "one", "score": "one"}],
    }
    replies = {"file": "replies.csv", "response_id": "id", "reply": "reply", "reader": {"json_keys": ["score"]}}
    study = {
        "name": "permuted",
        "data": {"sources": [{"file": "items.csv", "items": {"item_id": "id", "question": "question"}}, source]},
        "rubrics": {"file": "rubrics.yaml"},
        "split": {"by": "response", "per": "item", "calibration": int(size * 0.75)},
        "judge": {"protocol": "dhs", "backend": "replay", "foreign": replies},
        "calibration": {"features": ["judge", "characters"] if seed % 10 == 9 else ["judge"]},
        "release": release,
        "evaluation": {"target": "one", "draws": 0},
    }
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": rubrics}))
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    write_csv(folder / "items.csv", ["id", "question"], [[f"q{at}", f"Question {at}?"] for at in range(questions)])
    answers, recorded = [], []
    for at, (number, level) in enumerate(zip(question, judged, strict=True)):
        text = " ".join(rng.choice(WORDS, 4 + 2 * level))
        answers.append([f"x{at}", f"q{number}", f"a{author[at]}", text, int(marks[at])])
        recorded.append([f"x{at}", json.dumps({"score": int(level)})])
    write_csv(folder / "answers.csv", ["id", "item", "author", "text", "one"], answers)
    write_csv(folder / "replies.csv", ["id", "reply"], recorded)
    return release | {"questions": questions, "levels": top + 1, "answers": len(answers)}


def permuted_marks(marks: Ints, question: Ints, rng: np.random.Generator, within: bool) -> Ints:
    """The same marks in an order by chance: each question's own, or those of all."""
    if not within:
        return rng.permutation(marks)
    return np.concatenate([rng.permutation(marks[question == number]) for number in np.unique(question)])


def by_command(folder: Path) -> Outcome:
    """By `rubricflow grade` of the study in a folder, whole."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app(["grade", str(folder / "study.yaml"), "--warehouse", str(folder / "house")], standalone_mode=False)
    (manifest,) = (folder / "house").glob("*/manifest.json")
    return _outcome(Warehouse.open(folder / "house").run(manifest.parent.name))


def by_doors(folder: Path) -> Outcome:
    """By the doors of the same stages, without checkpoints, evaluation and report, none of which releases anything."""
    study = Study.model_validate(yaml.safe_load((folder / "study.yaml").read_text()))
    run = Warehouse.open(folder / "house").run("permuted")
    data = ingest.fn(run, study, folder)
    locked = lock.fn(run, study, folder, data.items, data.responses, data.gradings, data.judgments)
    judged = judge.fn(run, study.judge, folder, data.items, data.responses, locked.bundles)
    calibrate.fn(run, study, data.items, data.responses, data.gradings, judged.gradings, locked.bundles)
    return _outcome(run)


def _outcome(run: Run) -> Outcome:
    routes = run.read(run.ref(Predictions, "calibrate"), ["route"])["route"].to_pylist()
    return routes.count("release"), run.read(run.ref(ReleaseRules, "calibrate")).to_pylist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--signal", action="store_true")
    parser.add_argument("--doors", action="store_true")
    given = parser.parse_args()
    releasing, asked = 0, 0
    for seed in range(given.first, given.first + given.studies):
        with tempfile.TemporaryDirectory() as folder:
            drawn = written(Path(folder), seed, permuted=not given.signal)
            out, rules = (by_doors if given.doors else by_command)(Path(folder))
        releasing += out > 0
        asked += any(rule["refused"] != "asks_nothing" for rule in rules)
        print(seed, drawn, "released", out, [rule["refused"] for rule in rules], flush=True)
    print(f"{given.studies} studies, {asked} of whose promises ask something: {releasing} release anything")


if __name__ == "__main__":
    main()
