"""Rulers without phase I (Table 4): the raw rubric is interpreted while scoring.

One call states a score with quotes for each trait. A score above the lowest needs a quote that holds, as a criterion of
type `local_quote` does, and what fails does as the bundle's protocol says: under `demote` the trait falls to its lowest
score. Features and calibration are as in rulers. No criterion is decided, so the quotes stand in the attempts' replies
and are counted in the signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, EvidenceType, Trait
from rubricflow.tasks.core.llm.ask import Checked
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.text.tokens import number_of, whole
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question
from rubricflow.tasks.grading.judge.rows import Case, Decision, Grading, Judged
from rubricflow.tasks.grading.judge.score import round_half_up, score
from rubricflow.tasks.grading.judge.verify import Verdict, verify


@cached_by_identity
class UnlockedProtocol(itemised.ItemisedProtocol):
    """A score with quotes for each trait."""

    key = field = "traits"

    def parts(self, bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
        return [] if before else [Part(ALL, traits=bundle.judged)]

    def schema(self, bundle: Bundle, part: Part) -> JsonDict:
        return contract.traits(part.traits)

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """The prompt on the traits, without criteria."""
        shape = self.schema(bundle, part)
        return prompt.system(bundle, (), question, context, part.traits, schema=shape, reference=reference)

    def items(self, question: Question) -> tuple[Criterion, ...]:
        return as_criteria(question.traits)

    def judge(self, entries: Any, items: tuple[Criterion, ...], question: Question) -> Checked[Any]:
        """The `Verdict`, in which a trait is a criterion whose levels are the steps of its range."""
        verdict = verified(entries, items, {trait.id: trait for trait in question.bundle.traits}, question)
        return Checked(verdict, verdict.violations)

    def restated(self, entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
        return score_restated(entry, item, choose)

    def outcome(self, case: Case, answers: Sequence[Answer]) -> Outcome:
        """The traits' scores after verification, and the score that they make."""
        ((part, answer),) = answers
        judged, verdict = Judged(case), answer.value
        failed = itemised.signals(case.bundle, answers)
        if verdict is None:
            scored = score(case.bundle, {}, {})
            return Outcome(judged, Grading(case, scored, failed, reason=reason_of(answer)))
        likely = itemised.probabilities(answer, as_criteria(part.traits))
        scored = score(case.bundle, {}, stated_scores(verdict.decisions, {t.id: t for t in part.traits}, likely, case))
        signals = {**verdict.signals, "tie": float(scored.tie), **failed}
        levels = {d.criterion_id: d.stated for d in verdict.decisions if d.stated is not None}
        confidence = itemised.mean_probability(likely, levels)
        return Outcome(judged, Grading(case, scored, signals, confidence, scored.reason))

    def artifact(self, question: Question, opinion: Opinion) -> JsonDict:
        """An opinion as scores of the traits, each with the quotes for its criteria or, without any, with all."""
        entries, names = {}, contract.names_of(question.bundle)
        for trait in question.traits:
            stated = round_half_up(opinion.traits[trait.id], trait)
            criteria = question.bundle.of_trait(trait.id)
            of_trait = list(chain.from_iterable(opinion.evidence.get(criterion.id, ()) for criterion in criteria))
            quotes = of_trait or list(chain.from_iterable(opinion.evidence.values()))
            distinct = [quote for place, quote in enumerate(quotes) if quote not in quotes[:place]]
            shown = distinct[: contract.MAX_QUOTES] if stated > trait.min else []
            entries[trait.id] = {"evidence": contract.cited_by_name(shown, names), "score": stated}
        return {"traits": entries}


PROTOCOL = UnlockedProtocol()


@cached_by_identity
def as_criteria(traits: tuple[Trait, ...]) -> tuple[Criterion, ...]:
    """Each trait as a criterion with a level for every step of its range, of which all but the lowest need a quote."""
    return tuple(as_criterion(trait, trait.id, "local_quote") for trait in traits)


def as_criterion(trait: Trait, name: str, evidence: EvidenceType) -> Criterion:
    """A trait as a criterion of this id with a level for every step of its range."""
    levels = tuple(f"{step_score(trait, level):g}" for level in range(trait.levels))
    text = trait.name or trait.id
    return Criterion(id=name, trait=trait.id, text=text, levels=levels, kind="criterion", evidence=evidence)


def stated_scores(
    decisions: Sequence[Decision], traits: Mapping[str, Trait], likely: Mapping[str, list[float]], case: Case
) -> dict[str, float]:
    """Trait → the score that counts. traits: criterion that stands for one → the trait, others are passed over; likely:
    probability of each level of a criterion, which says nothing of a level that was taken away."""
    scores = {}
    for decision in decisions:
        if decision.level is not None and (trait := traits.get(decision.criterion_id)):
            chances = likely.get(decision.criterion_id) if decision.level == decision.stated else None
            stated = step_score(trait, decision.level)
            scores[trait.id] = itemised.value(case.bundle.protocol, chances, stated, trait)
    return scores


def verified(entries: Any, items: tuple[Criterion, ...], traits: Mapping[str, Trait], question: Question) -> Verdict:
    """The verdict on entries of which some state the score of a trait; traits: criterion that stands for one → it."""
    if isinstance(entries, dict):
        entries = {name: with_level(traits.get(name), entry) for name, entry in entries.items()}
    return verify({"decisions": entries}, question.bundle, items, subject_of(question))


def with_level(trait: Trait | None, entry: Any) -> Any:
    """A trait's score as the level that it is on its range; what is no number, or of no trait, stays for the verifier
    to refuse."""
    stated = entry.get("score") if trait and isinstance(entry, Mapping) else None
    if trait is None or isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return entry
    value = number_of(str(stated))
    if value is None:
        return entry
    level = round((value - trait.min) / trait.step, 9)
    return {"evidence": entry.get("evidence"), "level": whole(level)}


def score_restated(entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
    """The entry of a trait with the chosen score in place of the stated one."""
    stated = entry.get("score") if isinstance(entry, dict) else None
    if type(stated) not in (int, float) or f"{stated:g}" not in item.levels:
        return entry
    return {**entry, "score": float(item.levels[choose(item.levels.index(f"{stated:g}"))])}


def step_score(trait: Trait, level: int) -> float:
    """The score of a step of a trait's range, the lowest being 0."""
    return round(trait.min + trait.step * level, 12)
