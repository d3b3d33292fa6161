"""AutoScore (baseline of Rulers, Table 7): one call collects what the response says on each criterion, a second gives
the score in view of it. The components are verified by nobody; the second prompt holds them as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question, Shown, build, unscored
from rubricflow.tasks.grading.judge.protocols.dhs import PROTOCOL as HOLISTIC
from rubricflow.tasks.grading.judge.rows import Case, Rater

EXTRACT, SCORE = Part("components"), Part("score")


class AutoScoreProtocol(itemised.ItemisedProtocol):
    """The components, then the holistic score."""

    key = "components"

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        """The components; then, where every criterion has its own, the score."""
        match before:
            case []:
                return [EXTRACT]
            case [Answer(_, call)] if call.value is not None and len(call.value) == len(bundle.criteria):
                return [SCORE]
            case _:
                return []

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        is_score = part.name == SCORE.name
        return HOLISTIC.schema(bundle, part) if is_score else contract.components(part.criteria or bundle.criteria)

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        template = "" if part == SCORE else "autoscore_extract"
        shape = self.schema(bundle, part)
        return prompt.system(
            bundle, bundle.criteria, question, context, name=template, schema=shape, reference=reference
        ).rstrip("\n")

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        """The request for the components, or for the score in view of them, to which alone `shown` is added."""
        if part == EXTRACT:
            return build(self, case, part, rater, role="extract")
        asked = build(self, case, part, rater, shown, task=prompt.components(before[0].call.value or {}))
        return replace(asked, keys=HOLISTIC.keys)

    def items(self, question: Question) -> tuple[Criterion, ...]:
        """The criteria asked about, which are all in a first call."""
        return question.criteria or question.bundle.criteria

    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        """Criterion → component, a text or None; texts are cut as the contract bounds them. Violations:
        `missing_component:` and `malformed_component:` with the criterion."""
        if not isinstance(entries, dict):
            return Checked({}, ("malformed_component:*",))
        components, violations = {}, []
        for criterion in items:
            text = entries.get(criterion.id)
            if criterion.id not in entries:
                violations.append(f"missing_component:{criterion.id}")
            elif text is None or isinstance(text, str):
                components[criterion.id] = (text or "").strip()[: contract.MAX_QUOTE] or None
            else:
                violations.append(f"malformed_component:{criterion.id}")
        return Checked(components, tuple(violations))

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        is_score = request.data.part == SCORE.name
        return HOLISTIC.check(request, reply) if is_score else super().check(request, reply)

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        is_score = request.data.part == SCORE.name
        return HOLISTIC.repair(request, history) if is_score else super().repair(request, history)

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The stated score, as in dhs; none without all components."""
        if len(answers) == 2:
            return HOLISTIC.outcome(case, answers)
        return unscored(case, (), reason_of(answers[0].call), itemised.signals(case.bundle, answers))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion as components, the first quote of each criterion that it finds; or as one score."""
        if question.part == SCORE.name:
            return HOLISTIC.artifact(question, opinion)
        components = {}
        for criterion in self.items(question):
            quotes = opinion.evidence.get(criterion.id, ()) if opinion.levels[criterion.id] else ()
            components[criterion.id] = quotes[0]["quote"] if quotes else None
        return {"components": components}


PROTOCOL = AutoScoreProtocol()
