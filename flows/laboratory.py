"""The command `laboratory`: a folder with all that a first run of `rubricflow edit` needs: questions, answers with gold
marks, rubrics, a study, and a small policy trained from scratch on imperfect marking."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Annotated

import pandas as pd
import typer
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


def command(
    folder: Annotated[Path, typer.Argument(help="Where to put it: a new folder.")],
    seed: Annotated[int, typer.Option(help="Another seed is another laboratory.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Of the policy's training; fewer make it worse.")] = None,
) -> None:
    """Makes the laboratory and prints the command to type next."""
    print(f"rubricflow edit {laboratory(folder, seed, steps)}")


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
    seen = _questions(rng, "seen", SEEN)
    unseen = _questions(rng, "unseen", UNSEEN)
    rows = []
    for asked in seen:
        rows += _answers(rng, asked, "train", TRAIN) + _answers(rng, asked, "test", TEST)
    for asked in unseen:
        rows += _answers(rng, asked, "test", TEST_UNSEEN)
    items = [{"item_id": asked.item_id, "question": asked.text} for asked in (*seen, *unseen)]
    for name, table in (("items.csv", items), ("responses.csv", rows)):
        pd.DataFrame(table).to_csv(home / name, index=False, lineterminator="\r\n")
    rubrics = {"rubrics": [asked.rubric().model_dump(mode="json") for asked in (*seen, *unseen)]}
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
        asked = question(rng, f"{name}-{len(questions) + 1:02}", unusual=0)
        if questions or asked.top >= 10:
            questions.append(asked)
    return questions


def _answers(rng: Random, asked: WorldQuestion, split: str, count: int) -> list[dict[str, object]]:
    answers = [answer(rng, asked) for _ in range(count)]
    return [
        {
            "response_id": f"{asked.item_id}-{split}-{number:02}",
            "item_id": asked.item_id,
            "text": given.text,
            "split": split,
            "gold": asked.gold(given.stated, given.reason),
        }
        for number, given in enumerate(answers, 1)
    ]
