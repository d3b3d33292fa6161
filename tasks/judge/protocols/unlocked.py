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
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion, Trait
from tasks.judge import chosen, itemised, prompt
from tasks.judge import schema as contract
from tasks.judge.evidence import subject_of
from tasks.judge.protocol import ALL, Answer, Opinion, Outcome, Part, Shown, build
from tasks.judge.question import Question
from tasks.judge.rows import Case, Grading, Judged, Rater
from tasks.judge.score import round_half_up, score
from tasks.judge.unit_names import cited_by_name, names_of
from tasks.judge.unscored import reason_of
from tasks.judge.verify import Verdict, verify
from tasks.llm.ask import Attempt, Checked
from tasks.llm.request import Message, Reply, Request, Same
from tasks.text.numbers import number_of

KEYS = frozenset({"traits"})


def parts(bundle: Bundle, before: Sequence[Answer]) -> list[Part]:
    """All judged traits, once."""
    return [] if before else [Part(ALL, traits=_judged(Same(bundle)))]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the scores of the traits."""
    system = _system(Same(case.bundle), case.question, case.context, case.reference_answer)
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
    of = {trait.id: trait for trait in part.traits}
    likely = itemised.probabilities(answer, as_criteria(Same(part.traits)))
    protocol = case.bundle.protocol
    stated = {
        d.criterion_id: chosen.value(
            protocol,
            likely.get(d.criterion_id) if d.level == d.stated else None,
            _score(of[d.criterion_id], d.level),
            of[d.criterion_id],
        )
        for d in verdict.decisions
        if d.level is not None
    }
    scored = score(case.bundle, {}, stated)
    signals = {**Counter[str](verdict.signals), "tie": float(scored.tie), **failed}
    levels = {d.criterion_id: d.stated for d in verdict.decisions if d.stated is not None}
    sure = [one[levels[name]] for name, one in likely.items() if name in levels]
    confidence = sum(sure) / len(sure) if sure else None
    return Outcome(judged, Grading(case, scored, signals, confidence, scored.reason))


def artifact(question: Question, opinion: Opinion) -> dict[str, Any]:
    """An opinion as scores of the traits, each with the quotes for its criteria or, without any, with all quotes."""
    found, names = {}, names_of(Same(question.bundle))
    for trait in question.traits:
        stated = round_half_up(opinion.traits[trait.id], trait)
        own = [q for c in question.bundle.of_trait(trait.id) for q in opinion.evidence.get(c.id, ())]
        quotes = own or [quote for quotes in opinion.evidence.values() for quote in quotes]
        distinct = [quote for at, quote in enumerate(quotes) if quote not in quotes[:at]]
        evidence = cited_by_name(distinct[: contract.MAX_QUOTES], names) if stated > trait.min else []
        found[trait.id] = {"evidence": evidence, "score": stated}
    return {"traits": found}


def schema(bundle: Bundle, part: Part) -> dict[str, Any]:
    """The contract of the part's traits."""
    return _schema(Same(part.traits))


@lru_cache(maxsize=1024)
def as_criteria(traits: Same[tuple[Trait, ...]]) -> tuple[Criterion, ...]:
    """Each trait as a criterion with a level for every step of its range, of which all but the lowest need a quote."""
    return tuple(
        Criterion(
            id=trait.id,
            trait=trait.id,
            text=trait.name or trait.id,
            kind="criterion",
            levels=tuple(f"{_score(trait, level):g}" for level in range(trait.levels)),
        )
        for trait in traits.value
    )


@lru_cache(maxsize=1024)
def _judged(bundle: Same[Bundle]) -> tuple[Trait, ...]:
    return tuple(trait for trait in bundle.value.traits if trait.source == "judged")


@lru_cache(maxsize=1024)
def _system(bundle: Same[Bundle], question: str, context: str | None, reference: str | None) -> Message:
    text = prompt.system(bundle.value, (), question, context, _judged(bundle), reference=reference)
    return Message("system", text)


@lru_cache(maxsize=1024)
def _schema(traits: Same[tuple[Trait, ...]]) -> dict[str, Any]:
    return contract.traits(traits.value)


def _judge(given: Any, traits: tuple[Criterion, ...], question: Question) -> Checked[Any]:
    of = {trait.id: trait for trait in question.bundle.traits}
    if isinstance(given, dict):
        given = {name: _with_level(of[name], one) if name in of else one for name, one in given.items()}
    verdict: Verdict = verify({"decisions": given}, question.bundle, traits, subject_of(question))
    return Checked(verdict, verdict.violations)


def _with_level(trait: Trait, given: Any) -> Any:
    """A trait's score as the level that it is on its range; what is no number stays, for the verifier to refuse."""
    if not isinstance(given, Mapping):
        return given
    stated = given.get("score")
    if isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return given
    value = number_of(str(stated))
    if value is None:
        return given
    level = round((value - trait.min) / trait.step, 9)
    return {"evidence": given.get("evidence"), "level": int(level) if level.is_integer() else level}


def _restated(given: Any, item: Criterion, choose: itemised.Choose) -> Any:
    stated = f"{given['score']:g}" if isinstance(given, dict) and type(given.get("score")) in (int, float) else ""
    return {**given, "score": float(item.levels[choose(item.levels.index(stated))])} if stated in item.levels else given


def _score(trait: Trait, level: int) -> float:
    return round(trait.min + trait.step * level, 12)


_CONTRACT = itemised.Contract(
    key="traits",
    asked=lambda question: as_criteria(Same(question.traits)),
    judge=_judge,
    narrowed=lambda question, names: {"traits": tuple(t for t in question.traits if t.id in names)},
    schema=lambda question: contract.traits(question.traits),
    restated=_restated,
)
