"""The checked score: one call decides the checklist with its evidence, and then scores each trait by the guide as its
author wrote it, with a reason why not one step lower and why not one higher (the boundary checks of Rulers, appendix
B.2, phase II-E, which its main text leaves out).

The stated scores make the raw score. The checklist is its audit: a trait whose score lies further than one step from
what its verified criteria add up to by the bundle's formula is `contradicted`; where the bundle's semantic budget
allows it, that score alone is asked for once more.

A checklist in parts is decided part by part. The last part's call gives the scores, too: it is shown what the verifier
left of the others' decisions, and is asked when each of them brought some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Trait
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Message, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import SHOWN, record
from rubricflow.tasks.core.llm.schema import text as text_of
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.evidence import HOLDS, subject_of
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.protocols import rulers, unlocked
from rubricflow.tasks.grading.judge.protocols.unlocked import step_score, with_level
from rubricflow.tasks.grading.judge.rows import Case, Decision, Rater
from rubricflow.tasks.grading.judge.score import counted, onto, round_half_up, trait_means
from rubricflow.tasks.grading.judge.verify import verify

_REASON = 200
"""Characters of a boundary's reason: about thirty words."""


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """The checklist with the scores, once; of several parts all but the last at once, then the last with the scores."""
    *first, last = _parts(bundle)
    if not before:
        return first or [last]
    failed = any(call.attempts and call.value is None for _, call in before)
    return [last] if len(before) == len(first) and not failed else []


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for decisions, and in the last part for scores in view of those before."""
    system = _system(case.bundle, part.criteria, case.question, case.context, case.reference_answer)
    shape, keys = schema(case.bundle, part), contract.CHECKLIST_KEYS
    if not before:
        return build(case, part, rater, system, shape, keys, shown=shown)
    decided = {decision.criterion_id: decision for _, call in before if call.value for decision in call.value.decisions}
    task = prompt.components(dict(_said(before, decided)), "decided")
    asked = build(case, part, rater, system, shape, keys, shown=shown, task=task)
    return replace(asked, data=replace(asked.data, found={name: one.level for name, one in decided.items()}))


def _said(before: Sequence[Answer], decided: Mapping[str, Decision]) -> Iterator[tuple[str, str]]:
    """(criterion, its text with the level that was found, and the first quote that holds)."""
    for criterion in (criterion for part, _ in before for criterion in part.criteria):
        found, quotes = "not decided", list[str]()
        decision = decided.get(criterion.id)
        if decision is not None and decision.level is not None:
            found = f"level {decision.level} = {criterion.levels[decision.level]}"
            quotes = [prompt.quoted(quote["quote"]) for quote in decision.evidence if quote["status"] in HOLDS]
        yield criterion.id, " ".join([criterion.text, f"[{found}]", *quotes[:1]])


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The decisions, and the stated scores with what they make."""
    bundle, found = case.bundle, rulers.gathered(answers)
    for part in _parts(bundle)[len(answers) :]:  # not asked for, since a call before it brought nothing
        reason = next(reason_of(call) for _, call in answers if call.value is None)
        found.decisions.extend(Decision(item.id, None, reason=reason) for item in part.criteria)
    traits = {item.id: trait for item, trait in zip(scores(bundle), _judged(bundle), strict=True)}
    stated: dict[str, float] = {}
    for decision in found.decisions:
        if decision.level is not None and (trait := traits.get(decision.criterion_id)):
            likely = found.probabilities.get(decision.criterion_id)
            stated[trait.id] = itemised.value(bundle.protocol, likely, step_score(trait, decision.level), trait)
    of_criteria = rulers.Gathered(
        [decision for decision in found.decisions if decision.criterion_id not in traits],
        found.counts,
        {name: likely for name, likely in found.probabilities.items() if name not in traits},
    )
    judged, grading = rulers.graded(case, answers, of_criteria, stated)
    levels = {decision.criterion_id: decision.level for decision in judged.decisions}
    against = contradicted(bundle, levels, grading.scored.traits)
    return Outcome(judged, replace(grading, signals={**grading.signals, "contradicted": float(len(against))}))


def contradicted(bundle: Bundle, levels: Mapping[str, int | None], stated: Mapping[str, float]) -> list[str]:
    """The judged traits whose stated score lies further than one step from what their verified criteria add up to;
    a trait without criteria, or with an undecided one, is not among them. levels: by criterion; stated: by trait."""
    worth = counted(bundle)
    decided = {c: level for c in bundle.criteria if (level := levels.get(c.id)) is not None}
    means = trait_means(bundle, {c.id: worth[c.id][level] / c.top for c, level in decided.items()})
    return [
        trait.id
        for trait in _judged(bundle)
        if trait.id in means
        and trait.id in stated
        and abs(round_half_up(onto(means[trait.id], trait), trait) - stated[trait.id]) > 1.001 * trait.step
    ]


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as decisions and scores, as far as they are asked for."""
    traits = _traits_of(question.bundle)
    criteria = tuple(item for item in question.criteria if item.id not in traits)
    decisions = rulers.artifact(replace(question, criteria=criteria), opinion)["decisions"]
    because = opinion.because or "stated"
    for item in question.criteria:
        if trait := traits.get(item.id):
            score = round_half_up(opinion.traits[trait.id], trait)
            decisions[item.id] = {"not_lower": because, "not_higher": because, "score": score}
    return {"decisions": decisions}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of a part's decisions and scores."""
    return _schema(bundle, part.criteria)


@cached_by_identity
def _parts(bundle: Bundle) -> list[Part]:
    *first, last = rulers.in_parts(bundle)
    return [*first, last._replace(criteria=(*last.criteria, *scores(bundle)))]


@cached_by_identity
def scores(bundle: Bundle) -> tuple[Criterion, ...]:
    """Each judged trait as a criterion that is decided after all others, with a level for every step of its range and
    without evidence of its own."""
    ids = {criterion.id for criterion in (*bundle.criteria, *bundle.composites)}
    items = []
    for trait in _judged(bundle):
        name = f"score_{trait.id}"
        while name in ids:
            name = f"_{name}"
        levels = tuple(f"{step_score(trait, level):g}" for level in range(trait.levels))
        text = trait.name or trait.id
        items.append(Criterion(id=name, trait=trait.id, text=text, levels=levels, kind="criterion", evidence="none"))
    return tuple(items)


@cached_by_identity
def _judged(bundle: Bundle) -> tuple[Trait, ...]:
    return tuple(trait for trait in bundle.traits if trait.source == "judged")


@cached_by_identity
def _traits_of(bundle: Bundle) -> Mapping[str, Trait]:
    """Item of `scores` → its trait."""
    return {item.id: trait for item, trait in zip(scores(bundle), _judged(bundle), strict=True)}


@cached_by_identity
def _schema(bundle: Bundle, items: tuple[Criterion, ...]) -> dict[str, Any]:
    traits = _traits_of(bundle)
    whole = contract.checklist([item for item in items if item.id not in traits])
    decisions = whole["properties"]["decisions"]["properties"]
    of_scores = {}
    for item in items:
        if trait := traits.get(item.id):
            members = {
                "not_lower": text_of(_REASON, "why not one step lower, in at most 20 words"),
                "not_higher": text_of(_REASON, "why not one step higher, in at most 20 words"),
                "score": {"type": "number", "enum": contract.steps(trait)},
            }
            of_scores[item.id] = record(members)
    return {**whole, **record({"decisions": record({**decisions, **of_scores})})}


@cached_by_identity
def _system(
    bundle: Bundle, items: tuple[Criterion, ...], question: str, context: str | None, reference: str | None
) -> Message:
    traits = _traits_of(bundle)
    criteria = tuple(item for item in items if item.id not in traits)
    stated = items[len(criteria) :]
    shown = (*criteria[: max(1, SHOWN - len(stated))], *stated)  # else the form of a long checklist ends before
    text = prompt.system(
        bundle,
        criteria,
        question,
        context,
        _judged(bundle) if stated else (),
        schema=_schema(bundle, shown),
        reference=reference,
    )
    return Message("system", text.rstrip("\n"))


def _judge(entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    """The `Verdict` on criteria and scores; a first reply's contradictions are violations, which a repair may mend."""
    bundle = question.bundle
    traits = _traits_of(bundle)
    if isinstance(entries, dict):
        entries = {name: with_level(traits.get(name), entry) for name, entry in entries.items()}
    verdict = verify({"decisions": entries}, bundle, items, subject_of(question))
    violations = verdict.violations
    if question.role == "grade":
        levels = {decision.criterion_id: decision.level for decision in verdict.decisions} | dict(question.found or {})
        stated = {t.id: step_score(t, level) for name, t in traits.items() if (level := levels.get(name)) is not None}
        names = {trait.id: name for name, trait in traits.items()}
        against = contradicted(bundle, levels, stated)
        violations = (*violations, *(f"contradicted_score:{names[trait]}" for trait in against))
    return Checked(replace(verdict, violations=violations), violations)


def _restated(entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
    of_score = isinstance(entry, dict) and "score" in entry
    return unlocked.restated(entry, item, choose) if of_score else rulers.restated(entry, item, choose)


_CONTRACT = itemised.Contract(
    "decisions", _judge, lambda question: _schema(question.bundle, question.criteria), _restated
)
check, repair = _CONTRACT.check, _CONTRACT.repair
