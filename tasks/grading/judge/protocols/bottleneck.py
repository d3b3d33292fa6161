"""Bottleneck: the levels of all concepts and the score that a trained grader makes of them (REC-CBM).

The grader speaks for itself: no quote is asked for, and a reply is whole or none. To ask again would bring the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, record
from rubricflow.tasks.grading.judge.itemised import check_score, mean_probability, probabilities
from rubricflow.tasks.grading.judge.mend import reason_of, verdict_in
from rubricflow.tasks.grading.judge.protocol import (
    ALL,
    Answer,
    JudgingProtocol,
    Opinion,
    Outcome,
    Part,
    Question,
    unscored,
)
from rubricflow.tasks.grading.judge.rows import Case, Decision, Grading, Judged
from rubricflow.tasks.grading.judge.score import Scored, conflicts, is_off_step, level_signals, round_half_up


class GraderEstimate(NamedTuple):
    """What a grader says of a response."""

    levels: Mapping[str, int]
    """Criterion → level."""
    score: float
    """On the bundle's scale; between two steps where the grader was taught bands of scores."""
    probability: float
    """Of this score, as the grader sees it."""


class BottleneckProtocol(JudgingProtocol):
    """What a trained grader is asked; it is never asked again."""

    keys = frozenset({"levels", "score", "probability"})

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(ALL, bundle.criteria)]

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        """The contract of levels and score, which may lie between two steps, see `GraderEstimate.score`."""
        score = {"type": "number", "minimum": bundle.scale.min, "maximum": bundle.scale.max}
        levels = {c.id: {"type": "integer", "minimum": 0, "maximum": c.top} for c in part.criteria}
        share = {"type": "number", "minimum": 0, "maximum": 1}
        return record({"levels": record(levels), "score": score, "probability": share})

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """Nothing: a trained grader reads the question's plain data, not prose."""
        return ""

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """What the reply says, as `GraderEstimate`; None where anything of it is missing or off its scale.

        Violations: those of the stated score (`check_score`); `missing_decision:`,
        `malformed_decision:` and `level_off_scale:` with the criterion; `malformed_probability`.
        """
        question: Question = request.data
        score = check_score(request, reply, question.bundle.scale)
        artifact = verdict_in(request, reply).artifact
        if score.value is None or artifact is None:
            return score
        levels = artifact["levels"] if isinstance(artifact["levels"], dict) else {}
        violations = []
        for criterion in question.criteria:
            level = levels.get(criterion.id)
            if criterion.id not in levels:
                violations.append(f"missing_decision:{criterion.id}")
            elif type(level) is not int:
                violations.append(f"malformed_decision:{criterion.id}")
            elif not 0 <= level <= criterion.top:
                violations.append(f"level_off_scale:{criterion.id}")
        if not isinstance(artifact["probability"], float | int):
            violations.append("malformed_probability")
        if violations:
            return Checked(None, tuple(violations))
        decided = {criterion.id: levels[criterion.id] for criterion in question.criteria}
        return Checked(GraderEstimate(decided, score.value, artifact["probability"]), ())

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The levels as decisions, without evidence; the stated score; and as signals the expected share of each
        criterion's levels, the traits' means of these, and the probability of the score."""
        ((part, call),) = answers
        estimate: GraderEstimate | None = call.value
        if estimate is None:
            return unscored(case, part.criteria, reason_of(call))
        levels = estimate.levels
        likely = probabilities(call, part.criteria)
        signals = level_signals(case.bundle, levels, likely)
        signals |= conflicts(case.bundle, levels)
        signals["grade_probability"] = float(estimate.probability)
        if is_off_step(estimate.score, case.bundle.scale):
            signals["off_step"] = 1.0
        confidence = mean_probability(likely, levels)
        decisions = [Decision(c.id, levels[c.id], levels[c.id]) for c in part.criteria]
        return Outcome(Judged(case, decisions, likely), Grading(case, Scored(estimate.score), signals, confidence))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        score = round_half_up(opinion.score, question.bundle.scale)
        return {"levels": {c.id: opinion.levels[c.id] for c in question.criteria}, "score": score, "probability": 1.0}


PROTOCOL = BottleneckProtocol()
