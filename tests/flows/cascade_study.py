"""A small study with two recorded judges: a cheap one that is right at the ends of the scale, and one that knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from builders.files import write_csv

STUDY = """
name: steps
data:
  sources:
    - file: items.csv
      items: {item_id: id, question: question}
    - file: answers.csv
      responses: {response_id: id, item_id: item, text: text}
      scores: [{rater: one, score: one}]
rubrics: {file: rubrics.yaml}
split: {per: set, calibration: %d}
judge:
  protocol: dhs
  backend: replay
  foreign: {file: cheap.csv, response_id: id, reply: reply, reader: {json_keys: [score]}}
  escalate:
    - protocol: dhs
      backend: replay
      foreign: {file: dear.csv, response_id: id, reply: reply, reader: {json_keys: [score]}}
calibration: {minimum: 20, features: [judge], method: identity}
release: {tolerance: 0, risk: 0.1, by: set}
evaluation: {target: one, draws: 50}
"""
RUBRICS = """
rubrics:
  - rubric_id: a
    scale: {min: 0, max: 4}
    traits: [{id: content, name: Content, min: 0, max: 4}]
    criteria: [{id: P1, trait: content, text: Heat is the motion of particles., levels: [absent, in part, present]}]
"""


def make_study(folder: Path, answers: int = 400, labelled: int = 200) -> Path:
    """One item; of the answers that deserve 1 to 3 the cheap judge gets every second one wrong, the dear one few."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rubrics.yaml").write_text(RUBRICS)
    (folder / "study.yaml").write_text(STUDY % labelled)
    write_csv(folder / "items.csv", ["id", "question"], [["a", "What is heat?"]])
    rng = np.random.default_rng(0)
    quality = rng.integers(0, 5, answers)
    middling = (quality > 0) & (quality < 4)
    cheap = np.where(middling & (rng.random(answers) < 0.5), 1 + quality % 3, quality)
    dear = np.where(rng.random(answers) < 0.02, (quality + 1) % 5, quality)
    rows = [[f"x{n:03d}", "a", f"answer {n} in some words", quality[n]] for n in range(answers)]
    write_csv(folder / "answers.csv", ["id", "item", "text", "one"], rows)
    for name, scores in (("cheap", cheap), ("dear", dear)):
        said = [[f"x{n:03d}", json.dumps({"score": int(scores[n])})] for n in range(answers)]
        write_csv(folder / f"{name}.csv", ["id", "reply"], said)
    return folder / "study.yaml"
