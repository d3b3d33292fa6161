"""The trained rater: a bottleneck grader's levels and score as replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.grader import Answered, Grader, GraderOutput
from tasks.judge.question import Question
from tasks.llm.request import Reply


def answer(questions: Sequence[Question], grader: Grader) -> list[Reply]:
    """One reply in the contract of `tasks.judge.protocols.bottleneck` for each question, with the probability of every
    level. InputError where the grader does not fit a bundle, see `fit`."""
    for bundle in {id(question.bundle): question.bundle for question in questions}.values():
        fit(bundle, grader)
    answered = [Answered(q.question, q.text, q.reference_answer, q.context) for q in questions]
    return [_reply(estimate) for estimate in grader(answered)]


def fit(bundle: Bundle, grader: Grader) -> None:
    """InputError that names what differs, unless the bundle's criteria are the grader's concepts, each with as many
    levels, and all its scores lie on the bundle's scale."""
    problems = list(_differences(bundle, grader))
    if problems:
        rule = f"the grader was trained with another rubric: {'; '.join(problems)}"
        raise InputError(rule, field="judge.grader", hint="use the rubric that it was trained with, or train it anew")


def _differences(bundle: Bundle, grader: Grader) -> Iterator[str]:
    """What of a bundle the grader does not know, and what it knows beyond it."""
    criteria = {criterion.id: len(criterion.levels) for criterion in bundle.criteria}
    low, high, _ = bundle.scale.bounds
    for name in criteria:
        if name not in grader.concepts:
            yield f"it has no concept '{name}'"
    for name in grader.concepts:
        if name not in criteria:
            yield f"the rubric has no criterion '{name}'"
    for name, levels in grader.concepts.items():
        if criteria.get(name, levels) != levels:
            yield f"'{name}' has {levels} levels in it and {criteria[name]} in the rubric"
    for score in grader.scores:
        if not low - 1e-9 <= score <= high + 1e-9:
            yield f"it gives {score:g}, which is off the scale {low:g} to {high:g}"


def _reply(estimate: GraderOutput) -> Reply:
    levels = {name: max(range(len(likely)), key=likely.__getitem__) for name, likely in estimate.levels.items()}
    artifact = {"levels": levels, "score": estimate.score, "probability": estimate.grades[estimate.score]}
    return Reply(
        text=json.dumps(artifact, ensure_ascii=False),
        level_probabilities={name: list(likely) for name, likely in estimate.levels.items()},
    )
