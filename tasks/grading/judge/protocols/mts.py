"""Multi-trait specialisation (baseline of Rulers, Table 7): a call per trait, a score on the trait's range with a short
rationale, no evidence; the traits' scores are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question
from rubricflow.tasks.grading.judge.protocols.dhs import HolisticProtocol
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged
from rubricflow.tasks.grading.judge.score import round_half_up, score


@cached_by_identity
class MtsProtocol(HolisticProtocol):
    """A holistic score of each trait."""

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(trait.id, traits=(trait,)) for trait in bundle.judged]

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.stated(part.traits[0])

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """The prompt on one trait, with the criteria that count for it."""
        (trait,), shape = part.traits, self.schema(bundle, part)
        criteria = tuple(bundle.of_trait(trait.id))
        return prompt.system(bundle, criteria, question, context, part.traits, schema=shape, reference=reference)

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        """The number that the reply states, on a step of the trait's range."""
        return itemised.check_score(request, reply, request.data.traits[0], on_step=True)

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The traits' scores, and the score that they make; no criterion is decided."""
        traits = {part.traits[0].id: answer.value for part, answer in answers if answer.value is not None}
        scored = score(case.bundle, {}, traits)
        reason = scored.reason if scored.score is None else None
        reasons = {reason_of(answer) for _, answer in answers if answer.value is None}
        if reason and not traits and len(reasons) == 1:
            (reason,) = reasons
        signals = {"tie": float(scored.tie), **itemised.signals(case.bundle, answers)}
        confidence = itemised.score_confidence([(answer, part.traits[0]) for part, answer in answers])
        return Outcome(Judged(case), Grading(case, scored, signals, confidence, reason))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        (trait,) = question.traits
        return {"rationale": opinion.because, "score": round_half_up(opinion.traits[trait.id], trait)}


PROTOCOL = MtsProtocol()
