"""What a reply of GradeAgentOps' contract claims: read field by field, and merged over the attempts (section 2.3).

An artifact holds judged subscores, the numbers of covered and missed gold points, a quote for every covered point, the
misconceptions found with their quotes, a rationale and a final score. Points and misconceptions are numbered from 1,
each in the bundle's order.

What follows from other fields is computed and never asked for again: the final score from the subscores, the missed
points from the covered ones. A number that names no point puts the numbering of its whole field in doubt, so the field
counts as broken rather than the entry as absent. The order of lists and keys does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion, Scale, Trait
from tasks.judge.numbered import numbered
from tasks.judge.schema import MAX_PROSE
from tasks.judge.score import round_half_up
from tasks.text.numbers import number_of

_KEPT = 2_000
_NO_QUOTES: tuple[str, ...] = ()
_PLAIN = ("covered", "evidence", "misconceptions", "rationale")


class Demand(NamedTuple):
    """What a call asks for. `fields`: top-level names; `points`, `misconceptions`: the numbers that may be named."""

    fields: frozenset[str]
    traits: tuple[Trait, ...] = ()
    points: tuple[int, ...] = ()
    misconceptions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Claims:
    """What replies have claimed so far, field by field; None for a field without a usable value."""

    subscores: Mapping[str, float] = field(default_factory=dict)
    final: float | None = None
    covered: frozenset[int] | None = None
    missed: frozenset[int] | None = None
    evidence: dict[int, tuple[str, ...]] | None = None
    misconceptions: dict[int, tuple[str, ...]] | None = None
    rationale: str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    """Field, or `subscores.<trait>`, to be given again → kind of violation."""
    notes: Counter[str] = field(default_factory=Counter)
    """What was canonicalised on the way."""


def everything(bundle: Bundle) -> Demand:
    """The whole contract; coverage and misconceptions only where the bundle has any."""
    points, banned, traits = numbered(bundle)
    names = {"subscores", "final_score", "rationale"}
    names |= {"covered", "missed", "evidence"} if points else set()
    names |= {"misconceptions"} if banned else set()
    return Demand(frozenset(names), traits, tuple(points), tuple(banned))


def read(artifact: Mapping[str, Any], asked: Demand, bundle: Bundle) -> Claims:
    """The claims of an artifact that was asked for these fields. Nothing else in it is looked at."""
    whole, notes = numbered(bundle), Counter[str]()
    notes["unknown_field"] = len(artifact.keys() - everything(bundle).fields)
    wrong: dict[str, str] = {}
    covered = missed = evidence = misconceptions = rationale = None
    if "covered" in asked.fields:
        covered, problem = _numbers(artifact.get("covered"), whole.points, notes)
        given = artifact.get("missed")
        missed, doubt = _numbers(given, whole.points, notes) if isinstance(given, list) else (None, None)
        if problem or doubt:
            wrong["covered"], covered, missed = problem or doubt or "", None, None
    if "evidence" in asked.fields:
        evidence, problem = _quotes(artifact.get("evidence"), "point", whole.points, notes)
        if problem and covered == frozenset():
            evidence = {}  # nothing is covered, so there is nothing to quote
        elif problem:
            wrong["evidence"] = problem
    if "misconceptions" in asked.fields:
        given = artifact.get("misconceptions")
        misconceptions, problem = _quotes(given, "misconception", whole.misconceptions, notes)
        wrong |= {"misconceptions": problem} if problem else {}
    if "rationale" in asked.fields:
        said = artifact.get("rationale")
        rationale = said.strip()[:MAX_PROSE].strip() if isinstance(said, str) else None
        wrong |= {} if rationale is not None else {"rationale": "missing" if said is None else "malformed"}
    subscores, problems = _subscores(artifact.get("subscores"), asked.traits, whole.traits, notes)
    final, _ = _number(artifact.get("final_score"), bundle.scale, Counter())
    notes += Counter()  # drops what is 0
    return Claims(subscores, final, covered, missed, evidence, misconceptions, rationale, wrong | problems, notes)


def merge(kept: Claims, new: Claims, asked: Demand) -> Claims:
    """What was valid before with what a repair gave of the fields it was asked for; nothing else changes.

    Of points it was asked about it may name some: the others stay as they were.
    """
    covered, missed, evidence = _coverage(kept, new, frozenset(asked.points))
    misconceptions = kept.misconceptions
    if new.misconceptions is not None:
        others = {n: quotes for n, quotes in (misconceptions or {}).items() if n not in asked.misconceptions}
        misconceptions = others | {n: q for n, q in new.misconceptions.items() if n in asked.misconceptions}
    merged = Claims(
        subscores={**kept.subscores, **new.subscores},
        final=kept.final,
        covered=covered,
        missed=missed,
        evidence=evidence,
        misconceptions=misconceptions,
        rationale=new.rationale if kept.rationale is None else kept.rationale,
        notes=kept.notes + new.notes,
    )
    known = {name for name in _PLAIN if getattr(merged, name) is not None}
    known |= {f"subscores.{name}" for name in merged.subscores}
    left = {name: kind for name, kind in {**kept.broken, **new.broken}.items() if name not in known}
    return Claims(**{**vars(merged), "broken": left})


def _coverage(
    kept: Claims, new: Claims, asked: frozenset[int]
) -> tuple[frozenset[int] | None, frozenset[int] | None, dict[int, tuple[str, ...]] | None]:
    """Covered and missed points and their quotes, of which only those of the points asked about may be new."""
    if kept.covered is None:
        return new.covered, new.missed, new.evidence
    if kept.evidence is None:
        return kept.covered, kept.missed, new.evidence
    evidence = kept.evidence | {n: quotes for n, quotes in (new.evidence or {}).items() if n in asked}
    if "covered" in new.broken:
        return kept.covered, kept.missed, evidence
    says_covered = asked & ((new.covered or frozenset()) | (new.evidence or {}).keys() - (new.missed or frozenset()))
    withdrawn = asked & (new.missed or frozenset()) - says_covered
    missed = None if kept.missed is None else kept.missed - says_covered | withdrawn
    left = {n: quotes for n, quotes in evidence.items() if n not in withdrawn}
    return kept.covered - withdrawn | says_covered, missed, left


def _subscores(
    given: Any, asked: Iterable[Trait], known: Iterable[Trait], notes: Counter[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Usable subscores, and what is wrong with the others."""
    stated = given if isinstance(given, dict) else {}
    notes["unknown_field"] += len(stated.keys() - {trait.id for trait in known})
    usable: dict[str, float] = {}
    problems: dict[str, str] = {}
    for trait in asked:
        value, problem = _number(stated.get(trait.id), trait, notes)
        if value is None:
            problems[f"subscores.{trait.id}"] = "malformed" if given is not None and stated is not given else problem
        else:
            usable[trait.id] = value
    return usable, problems


def _number(value: Any, scale: Scale, notes: Counter[str]) -> tuple[float | None, str]:
    """A score on the steps of a scale, or None and what is wrong with it."""
    if value is None:
        return None, "missing"
    number = _plain(value, notes)
    if number is None:
        return None, "malformed"
    if not scale.min <= number <= scale.max:
        return None, "off_range"
    steps = (number - scale.min) / scale.step
    return (round_half_up(number, scale), "") if abs(steps - round(steps)) < 1e-9 else (None, "malformed")


def _plain(value: Any, notes: Counter[str]) -> int | float | None:
    """A number as it stands, or written as text or with a needless decimal point, which is noted."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    stated = number_of(value) if isinstance(value, str) else value
    if stated is None or stated != stated:
        return None
    notes["canonicalised"] += isinstance(value, str) or (isinstance(value, float) and value.is_integer())
    return stated


def _numbers(
    given: Any, known: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[frozenset[int] | None, str | None]:
    """The points that a list names, or None and what is wrong with it."""
    if not isinstance(given, list):
        return None, "missing" if given is None else "malformed"
    found: set[int] = set()
    for entry in given:
        number = _index(entry, notes)
        if number is None or number not in known:
            return None, "malformed" if number is None else "unknown_point"
        notes["duplicate_index"] += number in found
        found.add(number)
    return frozenset(found), None


def _quotes(
    given: Any, name: str, known: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...]] | None, str | None]:
    """Number → quotes given for it, from a list of {name: number, "quote": text}, or None and what is wrong with it."""
    if not isinstance(given, list):
        return None, "missing" if given is None else "malformed"
    found: dict[int, tuple[str, ...]] = {}
    for entry in given:
        number = _index(entry.get(name), notes) if isinstance(entry, dict) else None
        if number is None:
            return None, "malformed"  # whose quote it is is unknown: to pass it over would demote the point it proves
        if number not in known:
            return None, f"unknown_{name}"
        quote = entry.get("quote")
        is_text = isinstance(quote, str) and bool(quote.strip())
        notes["malformed_evidence"] += not is_text
        found[number] = (*found.get(number, _NO_QUOTES), quote[:_KEPT]) if is_text else found.get(number, _NO_QUOTES)
    return found, None


def _index(value: Any, notes: Counter[str]) -> int | None:
    number = _plain(value, notes)
    return int(number) if number is not None and number == number // 1 else None
