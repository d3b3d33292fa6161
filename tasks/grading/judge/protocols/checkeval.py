"""CheckEval (baseline of Rulers, Table 7): yes or no to every criterion in one call, the score is the weighted share of
yes over all that were asked. A missing answer is unscored, never no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Request, cached_by_identity
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.itemised import Choose, Contract
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Part, Question, Shown, ask
from rubricflow.tasks.grading.judge.protocols.rulers import outcome, parts
from rubricflow.tasks.grading.judge.rows import Case, Decision, Rater
from rubricflow.tasks.grading.judge.verify import Verdict

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]
KEYS = frozenset({"answers"})
_ANSWERS = (contract.NO, contract.YES)
_schema = cached_by_identity(contract.answers)


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for yes or no to each criterion."""
    return ask(case, part, rater, schema(case.bundle, part), KEYS, shown=shown)


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as yes or no: yes where it finds the criterion at all."""
    return {"answers": {c.id: contract.YES if opinion.levels[c.id] else contract.NO for c in question.criteria}}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the part's criteria."""
    return _schema(part.criteria)


def _judge(entries: Any, criteria: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    """The `Verdict`: yes is the highest level, no the lowest. Violations: `missing_answer:`, `malformed_answer:`."""
    if not isinstance(entries, dict):
        undecided = tuple(Decision(c.id, None, reason="invalid_reply") for c in criteria)
        return Checked(Verdict(undecided), ("malformed_answer:*",))
    decisions, violations = [], []
    for criterion in criteria:
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


def _restated(entry: Any, item: Criterion, choose: Choose) -> Any:
    return _ANSWERS[choose(_ANSWERS.index(entry))] if entry in _ANSWERS else entry


_CONTRACT = Contract("answers", _judge, lambda question: contract.answers(question.criteria), _restated)
check, repair = _CONTRACT.check, _CONTRACT.repair
