"""CheckEval (baseline of Rulers, Table 7): yes or no to every criterion in one call, the score is the weighted share of
yes over all that were asked. A missing answer is unscored, never no."""

from __future__ import annotations

from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.itemised import Choose
from rubricflow.tasks.grading.judge.protocol import Opinion, Part, Question
from rubricflow.tasks.grading.judge.protocols.rulers import RulersProtocol
from rubricflow.tasks.grading.judge.rows import Decision
from rubricflow.tasks.grading.judge.verify import Verdict

_ANSWERS = (contract.NO, contract.YES)


class CheckEvalProtocol(RulersProtocol):
    """Yes or no in place of levels with evidence."""

    key = "answers"

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.answers(part.criteria)

    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        """The `Verdict`: yes is the highest level, no the lowest. Violations: `missing_answer:`,
        `malformed_answer:`."""
        if not isinstance(entries, dict):
            undecided = tuple(Decision(c.id, None, reason="invalid_reply") for c in items)
            return Checked(Verdict(undecided), ("malformed_answer:*",))
        decisions, violations = [], []
        for criterion in items:
            entry = entries.get(criterion.id)
            answer = entry.strip().casefold() if isinstance(entry, str) else entry
            if answer in _ANSWERS:
                level = criterion.top if answer == contract.YES else 0
                decisions.append(Decision(criterion.id, level, level))
                continue
            kind, reason = ("missing", "criterion_missing") if entry is None else ("malformed", "invalid_reply")
            decisions.append(Decision(criterion.id, None, reason=reason))
            violations.append(f"{kind}_answer:{criterion.id}")
        return Checked(Verdict(tuple(decisions), violations=tuple(violations)), tuple(violations))

    def restated(self, entry: Any, item: Criterion, choose: Choose) -> Any:
        return _ANSWERS[choose(_ANSWERS.index(entry))] if entry in _ANSWERS else entry

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion as yes or no: yes where it finds the criterion at all."""
        return {"answers": {c.id: contract.YES if opinion.levels[c.id] else contract.NO for c in question.criteria}}


PROTOCOL = CheckEvalProtocol()
