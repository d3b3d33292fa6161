"""What a grader's file says of itself: for programs as `About`, for people as a model card in Markdown."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Literal

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.settings.methods import Method, Training

_MARKUP = re.compile(r"([\\`*_\[\]|~#!@$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""What Markdown could read as more than text, links that are made of bare addresses too."""
_MEASURES = {
    "concept_accuracy": "concepts: share of exact levels",
    "concept_macro_f1": "concepts: macro-F1",
    "concept_qwk": "concepts: quadratic weighted kappa",
    "task_accuracy": "grade: share of exact grades",
    "task_macro_f1": "grade: macro-F1",
    "task_qwk": "grade: quadratic weighted kappa",
    "task_mae": "grade: mean absolute error, in points",
    "task_rps": "grade: ranked probability score, calibrated",
    "task_ece": "grade: ordinal calibration error, calibrated",
    "task_ece_uncalibrated": "grade: ordinal calibration error, uncalibrated",
    "leakage_task": "leakage from concepts to the grade, in nats",
    "leakage_concepts": "leakage between concepts, in nats",
}
_LIMITS = (
    "It was measured on responses to the questions that it was trained on. Of other questions, another age of students "
    "or another language nothing is known.",
    "It reads what students write, and they may write to please it. It was not tested against such attempts.",
    "It must not be the only one who marks. Where much hangs on a grade a person decides.",
    "It learned from people's labels, with whatever these are biased by.",
    "Where it looks in a response shows what it weighed and not why; that a grade is the sum of its concepts is exact.",
    "Its probabilities are calibrated on responses like those it was trained on, and on no others.",
)


class About(Frozen):
    """Everything about a grader but its numbers."""

    format: Literal[1] = 1
    """The form of the file; another number for what programs of this one would not read right."""
    method: Method
    """How it was trained."""
    seed: int
    """Seed of initialisation and batches."""
    training: Training
    """The settings of training."""
    counts: dict[str, int]
    """Split → its labelled responses."""
    validation: float | None
    """Macro-F1 of the grade on the calibration split, by which the epoch was chosen."""
    bundle_id: str
    """The rubric with its protocol."""
    bundle: str
    """Its canonical content."""
    scores: tuple[float, ...]
    """The score that each grade stands for."""
    temperature: float
    """What the grade's logits are divided by."""
    backbone: str
    """Name or folder of the text encoder, as the study names it."""
    backbone_digest: str
    """The same with a digest of its weights, before any tuning."""
    max_tokens: int
    """Longest input."""
    match: bool
    """Whether token states also say how response and reference answer meet."""
    layer: int | None = None
    """Of the text encoder, whose states are read; null for the last."""
    arithmetic: Literal["float32", "bfloat16"] = "float32"
    """In which these are computed."""
    adapter: Adapter | None = None
    """The adapter on the text encoder, whose weights are in the file; null for none."""
    blueprint: str | None
    """A tuned encoder's configuration and vocabulary; null for one that is not in the file."""
    rubric_aware: bool
    """Whether each concept attends to tokens of its own."""
    versions: dict[str, str]
    """Library → its version."""

    @property
    def unlocked(self) -> Bundle:
        """The bundle; ContractError where it is not what its id was made from."""
        return Bundle.unlock(self.bundle_id, self.bundle)


def card(about: About, digest: str, file: str, trials: Iterable[Fields] = ()) -> str:
    """The model card of a grader.

    digest: SHA-256 of the file; file: how a study file names it; trials: rows of the table of that name, of which those
    of this grader on the test split and those of people with each other there are shown.
    """
    bundle = about.unlocked
    grades = ", ".join(f"{score:g}" for score in about.scores)
    introduction = (
        f"It reads a question, a response and, where there are any, the model answer and material of the question. It "
        f"estimates the level of {len(bundle.criteria)} concepts and makes a score of these levels alone: {grades}."
    )
    concepts = []
    for criterion in bundle.criteria:
        levels = "; ".join(f"{level} = {anchor}" for level, anchor in enumerate(criterion.levels))
        concepts.append((criterion.id, criterion.text, levels))
    judge = f"judge: {{backend: trained, protocol: bottleneck, grader: {json.dumps(file)}}}"
    versions = [f"- {plain(library)} {plain(version)}" for library, version in sorted(about.versions.items())]
    sections = {
        "Concepts": _table(("concept", "what is looked for", "levels, from 0"), concepts),
        "Figures on held-out responses": _figures(about, list(trials)),
        "Data and training": _training(about),
        "Limits": [f"- {limit}" for limit in _LIMITS],
        "Use": ["In a study file, with the rubric that it was trained with:", "", "```yaml", judge, "```"],
        "Identity": [f"- file: SHA-256 `{digest}`", f"- rubric: bundle `{about.bundle_id}`", *versions],
    }
    lines = ["# Grader of open-ended responses", "", introduction]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    return "\n".join([*lines, ""])


def plain(text: str) -> str:
    """A text from data as one line that Markdown and HTML show as it is; what is invisible is left out."""
    visible = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return _MARKUP.sub(r"\\\1", html.escape(visible, quote=False))


def _training(about: About) -> list[str]:
    encoder = "tuned, in the file" if about.blueprint else "frozen, not in the file"
    if about.adapter:
        encoder = "frozen, not in the file, with an adapter that is"
    counts = [f"- responses with labels in split {plain(split)}: {count}" for split, count in about.counts.items()]
    settings = [f"- {name.replace('_', ' ')}: {value}" for name, value in about.training.model_dump().items()]
    name = f"{plain(about.backbone_digest)} ({encoder})"
    facts = [
        f"- method: {plain(about.method)}, seed {about.seed}",
        f"- text encoder: {name}, at most {about.max_tokens} tokens",
        f"- macro-F1 of the grade by which the epoch was chosen: {_number(about.validation)}",
        f"- temperature of the grade's probabilities: {about.temperature:.4g}, fitted on the split calibration",
    ]
    return counts + facts + settings


def _figures(about: About, trials: Sequence[Fields]) -> list[str]:
    """The measures of the grader, and those of people."""
    tested = [row for row in trials if row["split"] == "test" and row["criterion_id"] in ("", "all")]
    grader_rows: dict[str, Fields] = {}  # metric → the grader's row
    people: defaultdict[str, list[float]] = defaultdict(list)  # metric → of each pair of persons
    for row in tested:
        if (row["method"], row["seed"], row["setting"]) == (about.method, about.seed, ""):
            grader_rows[row["metric"]] = row
        if row["method"] == "human" and row["value"] is not None:
            people[row["metric"]].append(row["value"])
    if not grader_rows:
        return ["None were given."]
    figures = []
    for metric, words in _MEASURES.items():
        if metric in grader_rows:
            between_people = mean(people[metric]) if people[metric] else None
            row = grader_rows[metric]
            figures.append((words, _number(row["value"]), _number(between_people), str(row["n"])))
    return _table(("measure", "grader", "one person by another", "responses"), figures)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [_table_line(header), _table_line(["---"] * len(header))]
    for row in rows:
        lines.append(_table_line([plain(cell) for cell in row]))
    return lines


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
