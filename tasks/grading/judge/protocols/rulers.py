"""Rulers: the whole checklist in one call, each level with its evidence (section 3.3); or in several calls, where a
study says how many criteria one is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import itemised, keep
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.doubted_quotes import most_shared, settled
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question
from rubricflow.tasks.grading.judge.rows import Case, Decision, Grading, Judged
from rubricflow.tasks.grading.judge.score import conflicts, level_signals, score
from rubricflow.tasks.grading.judge.verify import Verdict, verify


@cached_by_identity
def in_parts(bundle: Bundle) -> list[Part]:
    """The checklist in the bundle's order, as many criteria in a part as the protocol puts into one call; the last may
    hold fewer. A part is called by its criterion, or by its first and last: `C1..C4`."""
    criteria, size = bundle.criteria, bundle.protocol.part_size
    if size is None:
        return [Part(ALL, criteria)]
    calls = [criteria[first : first + size] for first in range(0, len(criteria), size)]
    return [Part("..".join(dict.fromkeys((call[0].id, call[-1].id))), call) for call in calls]


class RulersProtocol(itemised.ItemisedProtocol):
    """The checklist, once or in parts."""

    key = "decisions"

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else in_parts(bundle)

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.checklist(part.criteria)

    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        verdict = verify({"decisions": entries}, question.bundle, items, subject_of(question))
        return Checked(verdict, verdict.violations)

    def restated(self, entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
        stated = entry.get("level") if isinstance(entry, dict) else None
        return {**entry, "level": choose(stated)} if type(stated) is int and 0 <= stated <= item.top else entry

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """Decisions, and the scores that the bundle's formula makes of them."""
        return graded(case, answers, gathered(answers))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion as decisions on the criteria asked for."""
        decisions, names = {}, contract.names_of(question.bundle)
        for criterion in question.criteria:
            level = opinion.levels[criterion.id]
            evidence = contract.cited_by_name(opinion.evidence.get(criterion.id, ()), names) if level else []
            members = {"evidence": evidence, "diagnostic": opinion.because, "level": level}
            decisions[criterion.id] = {name: members[name] for name in contract.fields(criterion)}
        return {"decisions": decisions}


PROTOCOL = RulersProtocol()


class Gathered(NamedTuple):
    """What the answers of a case say."""

    decisions: list[Decision]
    counts: Counter[str]
    """The verifier's signals."""
    probabilities: dict[str, list[float]]


def gathered(answers: Sequence[Answer]) -> Gathered:
    """The decisions of all answers; those of an answer that gave none are undecided, with the reason."""
    found = Gathered([], Counter(), {})
    for part, answer in answers:
        verdict: Verdict | None = answer.value
        if verdict is None:
            found.decisions.extend(Decision(c.id, None, reason=reason_of(answer)) for c in part.criteria)
            continue
        found.decisions.extend(verdict.decisions)
        found.counts.update(verdict.signals)
        found.probabilities.update(itemised.probabilities(answer, part.criteria))
    return found


def graded(
    case: Case, answers: Sequence[Answer], found: Gathered, traits: Mapping[str, float] | None = None
) -> Outcome:
    """What the decisions make of a case. traits: scores that the judge states of them."""
    bundle = case.bundle
    decisions, counts, probabilities = found
    if case.earlier:
        by_criterion = {decision.criterion_id: decision for decision in decisions}
        by_criterion |= {name: earlier.decision for name, earlier in case.earlier.items()}
        decisions = [by_criterion[criterion.id] for criterion in bundle.criteria]
        counts.update(keep.signals(case))
        probabilities |= {name: old.probabilities for name, old in case.earlier.items() if old.probabilities}
    criteria = {criterion.id: criterion for criterion in bundle.criteria}
    doubted = settled(decisions, bundle.protocol, [criteria[d.criterion_id] for d in decisions])
    decisions, counts = list(doubted.decisions), counts + doubted.signals
    counts.update(most_shared(decisions))
    levels = {d.criterion_id: d.level for d in decisions}
    stated = {d.criterion_id: d.stated for d in decisions if d.stated is not None}
    scored = score(bundle, levels, traits)
    counts.update(conflicts(bundle, levels))
    # A level that was taken away has no probability.
    chances = {name: likely for name, likely in probabilities.items() if levels.get(name) == stated.get(name)}
    features = level_signals(bundle, levels, chances)
    signals = {**counts, **features, "tie": float(scored.tie), **itemised.signals(bundle, answers)}
    reasons = {d.reason for d in decisions if d.reason}
    reason = scored.reason if scored.score is None else None
    if scored.score is None and len(reasons) == 1 and not any(d.level is not None for d in decisions):
        (reason,) = reasons  # one call that failed as a whole
    confidence = itemised.mean_probability(probabilities, stated)
    return Outcome(Judged(case, decisions, probabilities), Grading(case, scored, signals, confidence, reason))
