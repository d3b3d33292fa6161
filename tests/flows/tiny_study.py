"""A small study with the recorded replies of a foreign judge (no model, no network)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builders.files import write_csv

STUDY = """
name: tiny
data:
  sources:
    - file: items.csv
      items: {item_id: id, question: question}
    - file: answers.csv
      responses: {response_id: id, item_id: item, text: text}
      groups: {school: school}
      scores: [{rater: one, score: one}, {rater: two, score: two}]
rubrics: {file: rubrics.yaml}
split: {per: set, calibration: 40}
judge:
  protocol: dhs
  backend: replay
  foreign:
    {file: replies.csv, response_id: id, reply: reply, recorded: score,
     reader: {json_keys: [score]}, scale: {min: 1, max: 5}}
calibration: {minimum: 20}
evaluation: {target: one, draws: 50}
"""


RUBRICS = """
rubrics:
  - rubric_id: '%s'
    scale: {min: 0, max: 4}
    traits: [{id: content, name: Content, min: 0, max: 4}]
    criteria: [{id: P1, trait: content, text: Heat is the motion of particles., levels: [absent, in part, present]}]
"""


def make_study(folder: Path, replies: int = 120) -> Path:
    """Two items, 120 answers of known quality; x3 has no human score, x7 no reply, x8 one that cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rubrics.yaml").write_text(RUBRICS % "a" + RUBRICS.split("rubrics:\n")[1] % "b")
    (folder / "study.yaml").write_text(STUDY)
    write_csv(folder / "items.csv", ["id", "question"], [["a", "What is heat?"], ["b", "What is cold?"]])
    answers, recorded = [], []
    for n in range(replies):
        quality = (n * 7) % 5
        human = "" if n == 3 else quality
        answers.append(
            [
                f"x{n}",
                "ab"[n % 2],
                f"answer {n} " + "word " * quality,
                "ns"[n % 3 == 0],
                human,
                human and max(0, quality - n % 2),
            ]
        )
        reply = "I cannot say." if n == 8 else json.dumps({"score": 1 + quality if n % 4 else 1 + min(4, quality + 1)})
        if n != 7:
            recorded.append([f"x{n}", reply, 1 + quality])
    write_csv(folder / "answers.csv", ["id", "item", "text", "school", "one", "two"], answers)
    write_csv(folder / "replies.csv", ["id", "reply", "score"], recorded)
    return folder / "study.yaml"


def with_judge(study: Path, judge: dict[str, Any]) -> Path:
    """The study of `make_study` with another judge."""
    head, _, rest = study.read_text().partition("judge:")
    study.write_text(f"{head}judge: {json.dumps(judge)}\ncalibration:{rest.partition('calibration:')[2]}")
    return study
