"""The trained rater: a bottleneck grader's levels and score as replies."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
    read = [Answered(of.question, of.text, of.reference_answer, of.context) for of in questions]
    return [_reply(estimate) for estimate in grader(read)]


def fit(bundle: Bundle, grader: Grader) -> None:
    """InputError that names what differs, unless the bundle's criteria are the grader's concepts, each with as many
    levels, and all its scores lie on the bundle's scale."""
    wanted = {criterion.id: len(criterion.levels) for criterion in bundle.criteria}
    low, high, _ = bundle.scale.bounds
    off = [score for score in grader.scores if not low - 1e-9 <= score <= high + 1e-9]
    problems = [
        *(f"it has no concept '{name}'" for name in wanted if name not in grader.concepts),
        *(f"the rubric has no criterion '{name}'" for name in grader.concepts if name not in wanted),
        *(
            f"'{name}' has {levels} levels in it and {wanted[name]} in the rubric"
            for name, levels in grader.concepts.items()
            if wanted.get(name, levels) != levels
        ),
        *(f"it gives {score:g}, which is off the scale {low:g} to {high:g}" for score in off),
    ]
    if problems:
        rule = f"the grader was trained with another rubric: {'; '.join(problems)}"
        raise InputError(rule, field="judge.grader", hint="use the rubric that it was trained with, or train it anew")


def _reply(estimate: GraderOutput) -> Reply:
    levels = {name: max(range(len(likely)), key=likely.__getitem__) for name, likely in estimate.levels.items()}
    said = {"levels": levels, "score": estimate.score, "probability": estimate.grades[estimate.score]}
    return Reply(
        text=json.dumps(said, ensure_ascii=False),
        level_probabilities={name: list(likely) for name, likely in estimate.levels.items()},
    )
