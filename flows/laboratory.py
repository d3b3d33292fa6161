"""A folder with all that a first run of `rubricflow edit` needs: questions, answers with gold marks, rubrics, a study,
and a small policy trained from scratch on imperfect marking."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.methods.edit.decoder import Size, train
from rubricflow.tasks.methods.edit.world import WorldQuestion, answer, question

SEEN, UNSEEN = 16, 8
"""Questions that training sees, and that it does not."""
TRAIN, TEST, TEST_UNSEEN = 24, 16, 32
"""Answers to each seen question for training and for the test, and to each unseen one."""
STUDY = Path(__file__).resolve().parents[1] / "tasks/methods/edit/laboratory.yaml"


def laboratory(folder: str | Path, seed: int = 0, steps: int | None = None) -> Path:
    """Make the laboratory in a folder; returns its study file. What is there already stays: the policy, which takes
    minutes to train, too.

    seed: of questions, answers and policy. steps: of the policy's training; fewer make a worse marker. InputError for a
    folder with other things in it.
    """
    home = Path(folder)
    own_files = {"items.csv", "responses.csv", "rubrics.yaml", "study.yaml", "policy", "policy.part"}
    if home.exists() and any(path.name not in own_files for path in home.iterdir()):
        raise InputError(f"{home} holds other things; name an empty or new folder", file=home)
    home.mkdir(parents=True, exist_ok=True)
    rng = Random(seed)
    seen, unseen = _questions(rng, "seen", SEEN), _questions(rng, "unseen", UNSEEN)
    rows = list[dict[str, Any]]()
    for lab_question in seen:
        rows += _rows(rng, lab_question, "train", TRAIN)
        rows += _rows(rng, lab_question, "test", TEST)
    for lab_question in unseen:
        rows += _rows(rng, lab_question, "test", TEST_UNSEEN)
    _csv(
        home / "items.csv",
        ({"item_id": lab_question.item_id, "question": lab_question.text} for lab_question in (*seen, *unseen)),
    )
    _csv(home / "responses.csv", rows)
    rubrics = {"rubrics": [lab_question.rubric().model_dump(mode="json") for lab_question in (*seen, *unseen)]}
    write_atomically(home / "rubrics.yaml", yaml.safe_dump(json.loads(json.dumps(rubrics)), sort_keys=False).encode())
    write_atomically(home / "study.yaml", STUDY.read_bytes())
    policy, part = home / "policy", home / "policy.part"
    if not policy.exists():
        train(part, Size() if steps is None else Size()._replace(steps=steps), seed)
        part.rename(policy)
    return home / "study.yaml"


def _questions(rng: Random, name: str, count: int) -> list[WorldQuestion]:
    """The first one pays ten marks or more, so that marks of two digits occur."""
    questions: list[WorldQuestion] = []
    while len(questions) < count:
        drawn = question(rng, f"{name}-{len(questions) + 1:02}", unusual=0)
        if questions or drawn.top >= 10:
            questions.append(drawn)
    return questions


def _rows(rng: Random, lab_question: WorldQuestion, split: str, count: int) -> list[dict[str, Any]]:
    answers = [answer(rng, lab_question) for _ in range(count)]
    return [
        {
            "response_id": f"{lab_question.item_id}-{split}-{number:02}",
            "item_id": lab_question.item_id,
            "text": lab_answer.text,
            "split": split,
            "gold": lab_question.gold(lab_answer.stated, lab_answer.reason),
        }
        for number, lab_answer in enumerate(answers, 1)
    ]


def _csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    listed = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
