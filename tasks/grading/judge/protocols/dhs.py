"""Direct holistic scoring: the raw rubric in one prompt, one score back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import itemised
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import reason_of
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
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged
from rubricflow.tasks.grading.judge.score import Scored, is_off_step, is_tie, round_half_up


class HolisticProtocol(JudgingProtocol):
    """One score, of which nothing is shown."""

    keys = frozenset({itemised.FIELD})

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(ALL)]

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.stated(bundle.scale)

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        return itemised.check_score(request, reply, request.data.bundle.scale)

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        return itemised.repair_whole(request, history, itemised.FIELD)

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The stated score; no criterion is decided."""
        scale = case.bundle.scale
        answer = answers[-1].call
        signals = itemised.signals(case.bundle, answers)
        if answer.value is None:
            return unscored(case, (), reason_of(answer), signals)
        signals["tie"] = float(is_tie(answer.value, scale))
        if case.bundle.protocol.level != "expected" and is_off_step(answer.value, scale):
            signals["off_step"] = 1.0
        confidence = itemised.score_confidence([(answer, scale)])
        return Outcome(Judged(case), Grading(case, Scored(answer.value), signals, confidence))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        return {"rationale": opinion.because, "score": round_half_up(opinion.score, question.bundle.scale)}


PROTOCOL = HolisticProtocol()
