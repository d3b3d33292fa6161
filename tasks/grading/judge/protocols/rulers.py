"""Rulers: the whole checklist in one call, each level with its evidence (section 3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import IdentityKey, Reply, Request
from rubricflow.tasks.grading.judge import itemised, keep, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.decision import Decision
from rubricflow.tasks.grading.judge.doubted_quotes import most_shared, settled
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import conflicts, level_signals, score
from rubricflow.tasks.grading.judge.unit_names import cited_by_name, names_of
from rubricflow.tasks.grading.judge.verify import Verdict, verify


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """The whole checklist, once."""
    return [] if before else [Part(ALL, bundle.criteria)]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the criteria of a part."""
    shape = schema(case.bundle, part)
    rubric = IdentityKey(case.bundle), IdentityKey(part.criteria)
    system = prompt.opening(*rubric, case.question, case.context, case.reference_answer, schema=IdentityKey(shape))
    return build(case, part, rater, system, shape, contract.CHECKLIST_KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Verdict` on a reply and on what was settled before it."""
    return itemised.check(_CONTRACT, request, reply)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The criteria that failed, once more."""
    return itemised.repair(_CONTRACT, request, history)


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """Decisions, and the scores that the bundle's formula makes of them."""
    decisions: list[Decision] = []
    counts: Counter[str] = Counter()
    probabilities: dict[str, list[float]] = {}
    for part, answer in answers:
        verdict: Verdict | None = answer.value
        if verdict is None:
            decisions += [Decision(c.id, None, reason=reason_of(answer)) for c in part.criteria]
            continue
        decisions += verdict.decisions
        counts.update(verdict.signals)
        probabilities |= itemised.probabilities(answer, part.criteria)
    if case.earlier:
        decisions = _with_earlier(case, decisions)
        counts.update(keep.signals(case))
        probabilities |= {name: old.probabilities for name, old in case.earlier.items() if old.probabilities}
    doubted = settled(decisions, case.bundle.protocol, _criteria(case, decisions))
    decisions, counts = list(doubted.decisions), counts + doubted.signals
    counts.update(most_shared(decisions))
    levels = {d.criterion_id: d.level for d in decisions}
    scored = score(case.bundle, levels)
    counts.update(conflicts(case.bundle, levels))
    features = level_signals(case.bundle, levels, _chances(decisions, probabilities))
    signals = {**counts, **features, "tie": float(scored.tie), **itemised.signals(case.bundle, answers)}
    stated = {d.criterion_id: d.stated for d in decisions if d.stated is not None}
    chosen = [likely[stated[name]] for name, likely in probabilities.items() if name in stated]
    confidence = sum(chosen) / len(chosen) if chosen else None
    reasons = {d.reason for d in decisions if d.reason}
    reason = scored.reason if scored.score is None else None
    if scored.score is None and len(reasons) == 1 and all(d.level is None for d in decisions):
        (reason,) = reasons  # one call that failed as a whole
    return Outcome(Judged(case, decisions, probabilities), Grading(case, scored, signals, confidence, reason))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as decisions on the criteria asked for."""
    decisions, names = {}, names_of(IdentityKey(question.bundle))
    for criterion in question.criteria:
        level = opinion.levels[criterion.id]
        evidence = cited_by_name(opinion.evidence.get(criterion.id, ()), names) if level else []
        members = {"evidence": evidence, "diagnostic": opinion.because, "level": level}
        decisions[criterion.id] = {name: members[name] for name in contract.fields(criterion)}
    return {"decisions": decisions}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the part's criteria."""
    return _schema(IdentityKey(part.criteria))


@lru_cache(maxsize=1024)
def _schema(criteria: IdentityKey[tuple[Criterion, ...]]) -> dict[str, Any]:
    return contract.checklist(criteria.value)


def _judge(entries: Any, criteria: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    verdict = verify({"decisions": entries}, question.bundle, criteria, subject_of(question))
    return Checked(verdict, verdict.violations)


def _restated(entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
    stated = entry.get("level") if isinstance(entry, dict) else None
    return {**entry, "level": choose(stated)} if type(stated) is int and 0 <= stated <= item.top else entry


_CONTRACT = itemised.Contract(
    key="decisions",
    items=lambda question: question.criteria,
    judge=_judge,
    narrowed=itemised.only_criteria,
    schema=lambda question: contract.checklist(question.criteria),
    restated=_restated,
)


def _criteria(case: Case, decisions: Sequence[Decision]) -> list[Criterion]:
    """The criteria of decisions, in their order."""
    criteria = {criterion.id: criterion for criterion in case.bundle.criteria}
    return [criteria[decision.criterion_id] for decision in decisions]


def _with_earlier(case: Case, decisions: list[Decision]) -> list[Decision]:
    """The decisions with those that stand of an earlier run, in the bundle's order."""
    by_criterion = {decision.criterion_id: decision for decision in decisions}
    by_criterion |= {name: earlier.decision for name, earlier in case.earlier.items()}
    return [by_criterion[criterion.id] for criterion in case.bundle.criteria]


def _chances(decisions: Sequence[Decision], probabilities: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The probabilities of the levels of those criteria whose level stands as it was stated."""
    standing = {decision.criterion_id for decision in decisions if decision.level == decision.stated}
    return {name: likely for name, likely in probabilities.items() if name in standing}
