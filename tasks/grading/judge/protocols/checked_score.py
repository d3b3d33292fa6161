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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Trait
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict, record
from rubricflow.tasks.core.llm.schema import text as text_of
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.evidence import HOLDS
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.protocols.rulers import Gathered, RulersProtocol, gathered, graded, in_parts
from rubricflow.tasks.grading.judge.protocols.unlocked import (
    as_criterion,
    score_restated,
    stated_scores,
    step_score,
    verified,
)
from rubricflow.tasks.grading.judge.rows import Case, Decision, Rater
from rubricflow.tasks.grading.judge.score import decided_shares, onto, round_half_up, trait_means

_REASON = 200
"""Characters of a boundary's reason: about thirty words."""


class CheckedScoreProtocol(RulersProtocol):
    """The checklist, and then the scores of the traits as further items of it, see `score_items`."""

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        """The checklist with the scores, once; of several parts all but the last at once, then the last with the
        scores."""
        *first, last = _parts(bundle)
        if not before:
            return first or [last]
        failed = any(call.attempts and call.value is None for _, call in before)
        return [last] if len(before) == len(first) and not failed else []

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        criteria, traits = _divided(bundle, part.criteria)
        whole = contract.checklist(criteria)
        decisions = whole["properties"]["decisions"]["properties"]
        scores = {}
        for name, trait in traits.items():
            members = {
                "not_lower": text_of(_REASON, "why not one step lower, in at most 20 words"),
                "not_higher": text_of(_REASON, "why not one step higher, in at most 20 words"),
                "score": {"type": "number", "enum": contract.steps(trait)},
            }
            scores[name] = record(members)
        return {**whole, **record({"decisions": record({**decisions, **scores})})}

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """The prompt on the criteria and, in the last part, on all traits."""
        criteria, _ = _divided(bundle, part.criteria)
        shape = self.schema(bundle, part)
        judged = bundle.judged if len(part.criteria) > len(criteria) else ()
        text = prompt.system(bundle, criteria, question, context, judged, schema=shape, reference=reference)
        return text.rstrip("\n")

    def request(self, case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
        """The request for decisions, and in the last part for scores in view of those before."""
        if not before:
            return build(self, case, part, rater, shown)
        decided = {one.criterion_id: one for _, call in before if call.value for one in call.value.decisions}
        said = {}
        for criterion in (criterion for earlier, _ in before for criterion in earlier.criteria):
            found = [criterion.text, "[not decided]"]
            decision = decided.get(criterion.id)
            if decision is not None and decision.level is not None:
                quotes = [prompt.quoted(row["quote"]) for row in decision.evidence if row["status"] in HOLDS]
                level = f"[level {decision.level} = {criterion.levels[decision.level]}]"
                found = [criterion.text, level, *quotes[:1]]
            said[criterion.id] = " ".join(found)
        asked = build(self, case, part, rater, shown, task=prompt.components(said, "decided"))
        return replace(asked, data=replace(asked.data, found={name: one.level for name, one in decided.items()}))

    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        """The `Verdict` on criteria and scores; a first reply's contradictions are violations, which a repair may
        mend."""
        bundle = question.bundle
        _, traits = _divided(bundle, score_items(bundle))
        verdict = verified(entries, items, traits, question)
        violations = verdict.violations
        if question.role == "grade":
            levels = {decision.criterion_id: decision.level for decision in verdict.decisions}
            levels |= question.found or {}
            stated = {t.id: step_score(t, at) for name, t in traits.items() if (at := levels.get(name)) is not None}
            against = contradicted(bundle, levels, stated)
            names = [name for name, trait in traits.items() if trait.id in against]
            violations = (*violations, *(f"contradicted_score:{name}" for name in names))
        return Checked(replace(verdict, violations=violations), violations)

    def restated(self, entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
        of_score = isinstance(entry, dict) and "score" in entry
        return score_restated(entry, item, choose) if of_score else super().restated(entry, item, choose)

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The decisions, and the stated scores with what they make."""
        bundle, found = case.bundle, gathered(answers)
        for part in _parts(bundle)[len(answers) :]:  # not asked for, since a call before it brought nothing
            reason = next(reason_of(call) for _, call in answers if call.value is None)
            found.decisions.extend(Decision(item.id, None, reason=reason) for item in part.criteria)
        _, traits = _divided(bundle, score_items(bundle))
        stated = stated_scores(found.decisions, traits, found.probabilities, case)
        decided = [decision for decision in found.decisions if decision.criterion_id not in traits]
        likely = {name: levels for name, levels in found.probabilities.items() if name not in traits}
        of_criteria = Gathered(decided, found.counts, likely)
        judged, grading = graded(case, answers, of_criteria, stated)
        levels = {decision.criterion_id: decision.level for decision in judged.decisions}
        against = contradicted(bundle, levels, grading.scored.traits)
        return Outcome(judged, replace(grading, signals={**grading.signals, "contradicted": float(len(against))}))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion as decisions and scores, as far as they are asked for."""
        criteria, traits = _divided(question.bundle, question.criteria)
        decisions = super().artifact(replace(question, criteria=criteria), opinion)["decisions"]
        because = opinion.because or "stated"
        for name, trait in traits.items():
            score = round_half_up(opinion.traits[trait.id], trait)
            decisions[name] = {"not_lower": because, "not_higher": because, "score": score}
        return {"decisions": decisions}


PROTOCOL = CheckedScoreProtocol()


def contradicted(bundle: Bundle, levels: Mapping[str, int | None], stated: Mapping[str, float]) -> list[str]:
    """The judged traits whose stated score lies further than one step from what their verified criteria add up to;
    a trait without criteria, or with an undecided one, is not among them. levels: by criterion; stated: by trait."""
    means = trait_means(bundle, decided_shares(bundle, levels))
    against = []
    for trait in bundle.judged:
        if trait.id in means and trait.id in stated:
            reached = round_half_up(onto(means[trait.id], trait), trait)
            if abs(reached - stated[trait.id]) > 1.001 * trait.step:
                against.append(trait.id)
    return against


@cached_by_identity
def _parts(bundle: Bundle) -> list[Part]:
    *first, last = in_parts(bundle)
    return [*first, last._replace(criteria=(*last.criteria, *score_items(bundle)))]


@cached_by_identity
def score_items(bundle: Bundle) -> tuple[Criterion, ...]:
    """Each judged trait as a criterion that is decided after all others, with a level for every step of its range and
    without evidence of its own."""
    ids = {criterion.id for criterion in (*bundle.criteria, *bundle.composites)}
    items = []
    for trait in bundle.judged:
        name = f"score_{trait.id}"
        while name in ids:
            name = f"_{name}"
        items.append(as_criterion(trait, name, "none"))
    return tuple(items)


@cached_by_identity
def _divided(bundle: Bundle, items: tuple[Criterion, ...]) -> tuple[tuple[Criterion, ...], dict[str, Trait]]:
    """The criteria among items, and item → trait of those that are scores."""
    names = [item.id for item in items]
    scores = zip(score_items(bundle), bundle.judged, strict=True)
    traits = {item.id: trait for item, trait in scores if item.id in names}
    return tuple(item for item in items if item.id not in traits), traits
