"""CheckEval (baseline of Rulers, Table 7): yes or no to every criterion in one call, the score is the weighted share of
yes over all that were asked. A missing answer is unscored, never no."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import IdentityKey, Reply, Request
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.decision import Decision
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.protocols.rulers import outcome, parts
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.verify import Verdict

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]
KEYS = frozenset({"answers"})
_ANSWERS = (contract.NO, contract.YES)


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for yes or no to each criterion."""
    shape = schema(case.bundle, part)
    rubric = IdentityKey(case.bundle), IdentityKey(part.criteria)
    system = prompt.opening(*rubric, case.question, case.context, schema=IdentityKey(shape))
    return build(case, part, rater, system, shape, KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Verdict` on a reply. Violations: `missing_answer:` and `malformed_answer:` with the criterion."""
    return itemised.check(_CONTRACT, request, reply)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The questions without an answer, once more."""
    return itemised.repair(_CONTRACT, request, history)


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as yes or no: yes where it finds the criterion at all."""
    return {"answers": {c.id: contract.YES if opinion.levels[c.id] else contract.NO for c in question.criteria}}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the part's criteria."""
    return _schema(IdentityKey(part.criteria))


@lru_cache(maxsize=1024)
def _schema(criteria: IdentityKey[tuple[Criterion, ...]]) -> dict[str, Any]:
    return contract.answers(criteria.value)


def _judge(entries: Any, criteria: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    """Yes is the highest level, no the lowest."""
    if not isinstance(entries, dict):
        undecided = tuple(Decision(c.id, None, reason="invalid_reply") for c in criteria)
        return Checked(Verdict(undecided), ("malformed_answer:*",))
    decisions, violations = [], []
    for criterion in criteria:
        entry = entries.get(criterion.id)
        answer = entry.strip().casefold() if isinstance(entry, str) else entry
        if answer in (contract.YES, contract.NO):
            level = criterion.top if answer == contract.YES else 0
            decisions.append(Decision(criterion.id, level, level))
        else:
            missing = entry is None
            reason = "criterion_missing" if missing else "invalid_reply"
            decisions.append(Decision(criterion.id, None, reason=reason))
            violations.append(f"{'missing' if missing else 'malformed'}_answer:{criterion.id}")
    return Checked(Verdict(tuple(decisions), violations=tuple(violations)), tuple(violations))


def _restated(entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
    return _ANSWERS[choose(_ANSWERS.index(entry))] if entry in _ANSWERS else entry


_CONTRACT = itemised.Contract(
    key="answers",
    items=lambda question: question.criteria,
    judge=_judge,
    narrowed=itemised.only_criteria,
    schema=lambda question: contract.answers(question.criteria),
    restated=_restated,
)
