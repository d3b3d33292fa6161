"""Bottleneck: the levels of all concepts and the score that a trained grader makes of them (REC-CBM).

The grader speaks for itself: no quote is asked for, and a reply is whole or none. To ask again would bring the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import IdentityKey, Message, Reply, Request
from rubricflow.tasks.core.llm.schema import record
from rubricflow.tasks.grading.judge import stated_score
from rubricflow.tasks.grading.judge.decision import Decision
from rubricflow.tasks.grading.judge.itemised import probabilities
from rubricflow.tasks.grading.judge.mend import reason_of, verdict_in
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import Scored, conflicts, expected_share, round_half_up, trait_means

KEYS = frozenset({"levels", "score", "probability"})
_NOTHING = Message("system", "")
"""A trained grader reads the question's plain data, not prose."""


class GraderEstimate(NamedTuple):
    """What a grader says of a response."""

    levels: Mapping[str, int]
    """Criterion → level."""
    score: float
    """On the bundle's scale; between two steps where the grader was taught bands of scores."""
    probability: float
    """Of this score, as the grader sees it."""


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """Everything, once."""
    return [] if before else [Part(ALL, bundle.criteria)]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for all levels and the score."""
    return build(case, part, rater, _NOTHING, schema(case.bundle, part), KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """What the reply says, as `GraderEstimate`; None where anything of it is missing or off its scale.

    Violations: those of the stated score (`tasks.grading.judge.stated_score`); `missing_decision:`,
    `malformed_decision:` and `level_off_scale:` with the criterion; `malformed_probability`.
    """
    question: Question = request.data
    score = stated_score.check(request, reply, question.bundle.scale)
    artifact = verdict_in(request, reply).artifact
    if score.value is None or artifact is None:
        return score
    levels = artifact["levels"] if isinstance(artifact["levels"], dict) else {}
    violations = [problem for criterion in question.criteria if (problem := _problem(levels, criterion))]
    if not isinstance(artifact["probability"], float | int):
        violations.append("malformed_probability")
    if violations:
        return Checked(None, tuple(violations))
    decided = {criterion.id: levels[criterion.id] for criterion in question.criteria}
    return Checked(GraderEstimate(decided, score.value, artifact["probability"]), ())


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """Nothing: a trained grader says the same again."""
    return None


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The levels as decisions, without evidence; the stated score; and as signals the expected share of each
    criterion's levels, the traits' means of these, and the probability of the score."""
    ((part, call),) = answers
    estimate: GraderEstimate | None = call.value
    if estimate is None:
        reason = reason_of(call)
        decisions = [Decision(c.id, None, reason=reason) for c in part.criteria]
        return Outcome(Judged(case, decisions, {}), Grading(case, Scored(None), {}, reason=reason))
    levels, likely = estimate.levels, probabilities(call, part.criteria)
    shares = {c.id: _expected(levels[c.id], likely.get(c.id)) / c.top for c in part.criteria}
    signals = {f"criterion.{name}": share for name, share in shares.items()}
    counting = {c.id: expected_share(case.bundle, c, levels[c.id], likely.get(c.id)) for c in part.criteria}
    signals |= {f"mean.{name}": mean for name, mean in trait_means(case.bundle, counting).items()}
    signals |= conflicts(case.bundle, levels)
    signals["grade_probability"] = float(estimate.probability)
    if abs(round_half_up(estimate.score, case.bundle.scale) - estimate.score) > 1e-9:
        signals["off_step"] = 1.0
    chosen = [chances[levels[name]] for name, chances in likely.items()]
    confidence = sum(chosen) / len(chosen) if chosen else None
    decisions = [Decision(c.id, levels[c.id], levels[c.id]) for c in part.criteria]
    return Outcome(Judged(case, decisions, likely), Grading(case, Scored(estimate.score), signals, confidence))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as levels and a score, of which it is sure."""
    score = round_half_up(opinion.score, question.bundle.scale)
    return {"levels": {c.id: opinion.levels[c.id] for c in question.criteria}, "score": score, "probability": 1.0}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of levels and score."""
    return _schema(IdentityKey(bundle), IdentityKey(part.criteria))


@lru_cache(maxsize=1024)
def _schema(bundle: IdentityKey[Bundle], criteria: IdentityKey[tuple[Criterion, ...]]) -> dict[str, Any]:
    # The score may lie between two steps, see `GraderEstimate.score`.
    score = {"type": "number", "minimum": bundle.value.scale.min, "maximum": bundle.value.scale.max}
    levels = {c.id: {"type": "integer", "minimum": 0, "maximum": c.top} for c in criteria.value}
    share = {"type": "number", "minimum": 0, "maximum": 1}
    return record({"levels": record(levels), "score": score, "probability": share})


def _problem(levels: Mapping[str, Any], criterion: Criterion) -> str | None:
    """What is wrong with the level of a criterion."""
    if criterion.id not in levels:
        return f"missing_decision:{criterion.id}"
    level = levels[criterion.id]
    if isinstance(level, bool) or not isinstance(level, int):
        return f"malformed_decision:{criterion.id}"
    return None if 0 <= level <= criterion.top else f"level_off_scale:{criterion.id}"


def _expected(level: int, likely: Sequence[float] | None) -> float:
    return sum(step * chance for step, chance in enumerate(likely)) if likely else float(level)
