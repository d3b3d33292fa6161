"""Direct holistic scoring: the raw rubric in one prompt, one score back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.grading.judge import itemised
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.itemised import repair_score as repair
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question, Shown, ask
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import Scored, is_tie, round_half_up

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]
_schema = cached_by_identity(contract.stated)


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """One score, once."""
    return [] if before else [Part(ALL)]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the holistic score."""
    return ask(case, part, rater, schema(case.bundle, part), contract.HOLISTIC_KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The number that the reply states."""
    return itemised.check_score(request, reply, request.data.bundle.scale)


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The stated score; no criterion is decided."""
    judged, scale = Judged(case, (), {}), case.bundle.scale
    ((_, answer),) = answers
    signals = itemised.signals(case.bundle, answers)
    if answer.value is None:
        return Outcome(judged, Grading(case, Scored(None), signals, reason=reason_of(answer)))
    signals["tie"] = float(is_tie(answer.value, scale))
    is_stated = case.bundle.protocol.level != "expected"
    if is_stated and abs(round_half_up(answer.value, scale) - answer.value) > 1e-9:
        signals["off_step"] = 1.0
    return Outcome(judged, Grading(case, Scored(answer.value), signals, itemised.score_confidence([(answer, scale)])))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as one score."""
    return {"rationale": opinion.because, "score": round_half_up(opinion.score, question.bundle.scale)}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of one score."""
    return _schema(bundle.scale)
