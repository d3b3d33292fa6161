"""Judges that know nothing but the labels they are shown, through examples, mapping and promise to new responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from builders.bundles import bundle
from builders.rows import grading
from builders.studies import study

from rubricflow.tasks.core.contracts.protocols import WorkedExamples
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, text_blocks
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items
from rubricflow.tasks.grading.judge.rows import WorkedExample
from rubricflow.tasks.grading.judge.teaching import GradedItem

LEVELS, LABELS, NEW = 4, 60, 300
GRADING_SCHEMA = pa.schema([schema(Gradings).field(name) for name in GRADING])
BUNDLE = bundle(ends=(0, LEVELS - 1), name="dhs", final_score="judged", signals=("score",))
PLAN = study(
    calibration={"method": "stacked", "minimum": 20, "features": ["judge", "characters"]},
    release={"tolerance": 0.0, "risk": 0.45},
)


def _closest(shown: Sequence[WorkedExample], text: str) -> float:
    said = set(text.split())
    return max(shown, key=lambda example: len(said & set(example.text.split()))).score


def _missing(shown: Sequence[WorkedExample], _: str) -> float:
    return float(min(set(range(LEVELS)) - {example.score for example in shown}, default=0))


JUDGES: dict[str, Callable[[Sequence[WorkedExample], str], float]] = {
    "first": lambda shown, _: shown[0].score,
    "mean": lambda shown, _: float(np.mean([example.score for example in shown])),
    "closest": _closest,
    "missing": _missing,
}
"""What each states of the examples, the most wanted first, and the response's text: all are labels that it read."""


class Fared(NamedTuple):
    """How one study fared: error in calibration and of new responses, in score units, and, of what is released, the
    share that is wrong (NaN where nothing is)."""

    taught: float
    new: float
    wrong: float


def fared(judge: str, plan: WorkedExamples, seed: int, signal: float, is_told: bool = False) -> Fared:
    """One item's study. signal: how far texts tell labels, 0..1; is_told: calibration responses are shown their own
    label among the others, as nobody should be."""
    luck = np.random.default_rng([seed, LABELS])
    human = luck.choice(LEVELS, LABELS + NEW, p=[0.4, 0.3, 0.2, 0.1]).astype(float)
    text = [_text(luck, level, signal) for level in human]
    labelled = [WorkedExample(f"r{n:04d}", None, text[n], human[n]) for n in range(LABELS)]
    item, scores = GradedItem(labelled, plan), []
    for n, words in enumerate(text):
        shown = item.beside(f"r{n:04d}", None, words)
        if is_told and n < LABELS:
            shown = (labelled[n], *shown[:-1])
        scores.append(JUDGES[judge](shown, words))
    return _calibrated(np.array(scores), human, text)


def _text(luck: np.random.Generator, level: float, signal: float) -> str:
    """Ten words, some of which only responses of this level have."""
    told = luck.random(10) < signal
    return " ".join(f"level{level:g}x{luck.integers(9)}" if own else f"word{luck.integers(60)}" for own in told)


def _calibrated(scores: np.ndarray, human: np.ndarray, text: list[str]) -> Fared:
    """The standard mapping of the judge's scores and the texts' characters, fitted on the labels."""
    ids = [f"r{n:04d}" for n in range(len(scores))]
    split = np.where(np.arange(len(ids)) < LABELS, "calibration", "test")
    rows = [grading(name, score=score, item_id="q", signals={}) for name, score in zip(ids, scores, strict=True)]
    given = pa.Table.from_pylist([{key: row.get(key) for key in GRADING} for row in rows], GRADING_SCHEMA)
    known = pa.table({"response_id": ids, "split": split, "author_id": pa.nulls(len(ids), pa.string())})
    kind = ["human"] * len(ids)
    people = pa.table({"response_id": ids, "rater_id": kind, "rater_kind": kind, "score": human})
    (item,) = graded_items({"q": BUNDLE}, given, known, people, "mean")
    item = item._replace(blocks=text_blocks(TextSource(text, "", "", ""), ("characters",), Readers()))
    fitted = fit_items([item], "m", PLAN)
    (chosen,) = [row for row in fitted.candidates if row["chosen"]]
    found, test = predict(fitted.mappings["q"], item), split == "test"
    wrong = np.abs(found["score"].to_numpy() - human) > PLAN.release.tolerance
    out = test & (np.array(found["route"].to_pylist()) == "release")
    error = found["aligned"].to_numpy()[test] - human[test]
    return Fared(float(chosen["rmse"]), float(np.sqrt(np.mean(error**2))), wrong[out].mean() if out.any() else np.nan)
