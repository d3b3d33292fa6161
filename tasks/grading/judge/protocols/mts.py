"""Multi-trait specialisation (baseline of Rulers, Table 7): a call per trait, a score on the trait's range with a short
rationale, no evidence; the traits' scores are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Trait
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import IdentityKey, Message, Reply, Request
from rubricflow.tasks.grading.judge import itemised, prompt, stated_score
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import round_half_up, score


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """Each judged trait, all at once."""
    return [] if before else _parts(IdentityKey(bundle))


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the score of a trait."""
    system = _system(
        IdentityKey(case.bundle), IdentityKey(part.traits[0]), case.question, case.context, case.reference_answer
    )
    return build(case, part, rater, system, schema(case.bundle, part), contract.HOLISTIC_KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The number that the reply states, on a step of the trait's range."""
    return stated_score.check(request, reply, request.data.traits[0], on_step=True)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The score of this trait, once more."""
    return stated_score.repair(request, history)


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The traits' scores, and the score that they make; no criterion is decided."""
    traits = {part.traits[0].id: answer.value for part, answer in answers if answer.value is not None}
    scored = score(case.bundle, {}, traits)
    reasons = {reason_of(answer) for _, answer in answers if answer.value is None}
    reason = next(iter(reasons)) if not traits and len(reasons) == 1 else scored.reason
    signals = {"tie": float(scored.tie), **itemised.signals(case.bundle, answers)}
    confidence = stated_score.confidence([(answer, part.traits[0]) for part, answer in answers])
    reason = reason if scored.score is None else None
    return Outcome(Judged(case, (), {}), Grading(case, scored, signals, confidence, reason))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as the score of the trait asked for."""
    (trait,) = question.traits
    return {"rationale": opinion.because, "score": round_half_up(opinion.traits[trait.id], trait)}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of one trait's score."""
    return _schema(IdentityKey(part.traits[0]))


@lru_cache(maxsize=1024)
def _parts(bundle: IdentityKey[Bundle]) -> list[Part]:
    return [Part(trait.id, traits=(trait,)) for trait in bundle.value.traits if trait.source == "judged"]


@lru_cache(maxsize=1024)
def _system(
    bundle: IdentityKey[Bundle], trait: IdentityKey[Trait], question: str, context: str | None, reference: str | None
) -> Message:
    criteria = tuple(bundle.value.of_trait(trait.value.id))
    traits, schema = (trait.value,), _schema(trait)
    text = prompt.system(bundle.value, criteria, question, context, traits, schema=schema, reference=reference)
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema(trait: IdentityKey[Trait]) -> dict[str, Any]:
    return contract.stated(trait.value)
