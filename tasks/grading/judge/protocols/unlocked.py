"""Rulers without phase I (Table 4): the raw rubric is interpreted while scoring.

One call states a score with quotes for each trait. A score above the lowest needs a quote that holds, as a criterion of
type `local_quote` does, and what fails does as the bundle's protocol says: under `demote` the trait falls to its lowest
score. Features and calibration are as in rulers. No criterion is decided, so the quotes stand in the attempts' replies
and are counted in the signals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Trait
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.request import IdentityKey, Message, Reply, Request
from rubricflow.tasks.core.text.tokens import number_of
from rubricflow.tasks.grading.judge import itemised, prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Question, Shown, build
from rubricflow.tasks.grading.judge.rows import Case, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import round_half_up, score
from rubricflow.tasks.grading.judge.unit_names import cited_by_name, names_of
from rubricflow.tasks.grading.judge.verify import Verdict, verify

KEYS = frozenset({"traits"})


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """All judged traits, once."""
    return [] if before else [Part(ALL, traits=_judged(IdentityKey(bundle)))]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the scores of the traits."""
    system = _system(IdentityKey(case.bundle), case.question, case.context, case.reference_answer)
    return build(case, part, rater, system, schema(case.bundle, part), KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Verdict` on a reply, in which a trait is a criterion whose levels are the steps of its range."""
    return itemised.check(_CONTRACT, request, reply)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The traits that failed, once more."""
    return itemised.repair(_CONTRACT, request, history)


def outcome(case: Case, answers: Sequence[Answer]) -> Outcome:
    """The traits' scores after verification, and the score that they make."""
    ((part, answer),) = answers
    judged, verdict = Judged(case, (), {}), answer.value
    failed = itemised.signals(case.bundle, answers)
    if verdict is None:
        scored = score(case.bundle, {}, {})
        return Outcome(judged, Grading(case, scored, failed, reason=reason_of(answer)))
    traits = {trait.id: trait for trait in part.traits}
    likely = itemised.probabilities(answer, as_criteria(IdentityKey(part.traits)))
    scores = {}
    for decision in verdict.decisions:
        if decision.level is not None:
            trait = traits[decision.criterion_id]
            chances = likely.get(trait.id) if decision.level == decision.stated else None
            stated = _score(trait, decision.level)
            scores[trait.id] = itemised.value(case.bundle.protocol, chances, stated, trait)
    scored = score(case.bundle, {}, scores)
    signals = {**Counter[str](verdict.signals), "tie": float(scored.tie), **failed}
    levels = {d.criterion_id: d.stated for d in verdict.decisions if d.stated is not None}
    decided = [chances[levels[name]] for name, chances in likely.items() if name in levels]
    confidence = sum(decided) / len(decided) if decided else None
    return Outcome(judged, Grading(case, scored, signals, confidence, scored.reason))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as scores of the traits, each with the quotes for its criteria or, without any, with all quotes."""
    entries, names = {}, names_of(IdentityKey(question.bundle))
    for trait in question.traits:
        stated = round_half_up(opinion.traits[trait.id], trait)
        criteria = question.bundle.of_trait(trait.id)
        of_trait = list(chain.from_iterable(opinion.evidence.get(criterion.id, ()) for criterion in criteria))
        quotes = of_trait or list(chain.from_iterable(opinion.evidence.values()))
        distinct = [quote for place, quote in enumerate(quotes) if quote not in quotes[:place]]
        evidence = cited_by_name(distinct[: contract.MAX_QUOTES], names) if stated > trait.min else []
        entries[trait.id] = {"evidence": evidence, "score": stated}
    return {"traits": entries}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the part's traits."""
    return _schema(IdentityKey(part.traits))


@lru_cache(maxsize=1024)
def as_criteria(traits: IdentityKey[tuple[Trait, ...]]) -> tuple[Criterion, ...]:
    """Each trait as a criterion with a level for every step of its range, of which all but the lowest need a quote."""
    return tuple(map(_as_criterion, traits.value))


def _as_criterion(trait: Trait) -> Criterion:
    levels = tuple(f"{_score(trait, level):g}" for level in range(trait.levels))
    return Criterion(id=trait.id, trait=trait.id, text=trait.name or trait.id, kind="criterion", levels=levels)


@lru_cache(maxsize=1024)
def _judged(bundle: IdentityKey[Bundle]) -> tuple[Trait, ...]:
    return tuple(trait for trait in bundle.value.traits if trait.source == "judged")


@lru_cache(maxsize=1024)
def _system(bundle: IdentityKey[Bundle], question: str, context: str | None, reference: str | None) -> Message:
    traits = _judged(bundle)
    schema = _schema(IdentityKey(traits))
    text = prompt.system(bundle.value, (), question, context, traits, schema=schema, reference=reference)
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema(traits: IdentityKey[tuple[Trait, ...]]) -> dict[str, Any]:
    return contract.traits(traits.value)


def _judge(entries: Any, criteria: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    traits = {trait.id: trait for trait in question.bundle.traits}
    if isinstance(entries, dict):
        entries = {name: _with_level(traits.get(name), entry) for name, entry in entries.items()}
    verdict: Verdict = verify({"decisions": entries}, question.bundle, criteria, subject_of(question))
    return Checked(verdict, verdict.violations)


def _with_level(trait: Trait | None, entry: Any) -> Any:
    """A trait's score as the level that it is on its range; what is no number, or of no trait, stays for the verifier
    to refuse."""
    if trait is None or not isinstance(entry, Mapping):
        return entry
    stated = entry.get("score")
    if isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return entry
    value = number_of(str(stated))
    if value is None:
        return entry
    level = round((value - trait.min) / trait.step, 9)
    return {"evidence": entry.get("evidence"), "level": int(level) if level.is_integer() else level}


def _restated(entry: Any, item: Criterion, choose: itemised.Choose) -> Any:
    if not isinstance(entry, dict) or type(entry.get("score")) not in (int, float):
        return entry
    stated = f"{entry['score']:g}"
    if stated not in item.levels:
        return entry
    level = choose(item.levels.index(stated))
    return {**entry, "score": float(item.levels[level])}


def _score(trait: Trait, level: int) -> float:
    return round(trait.min + trait.step * level, 12)


def _narrowed(question: Question, names: frozenset[str]) -> dict[str, Any]:
    return {"traits": tuple(trait for trait in question.traits if trait.id in names)}


_CONTRACT = itemised.Contract(
    key="traits",
    items=lambda question: as_criteria(IdentityKey(question.traits)),
    judge=_judge,
    narrowed=_narrowed,
    schema=lambda question: contract.traits(question.traits),
    restated=_restated,
)
