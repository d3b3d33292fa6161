"""What a reply of GradeAgentOps' contract claims: read field by field, and merged over the attempts (section 2.3).

An artifact holds judged subscores, for every gold point whether it is covered or missed and the words that cover it,
the misconceptions found with their quotes, a rationale and a final score. Points and misconceptions are numbered from
1, each in the bundle's order. Asked for is an object with every point under its number, as in
`{"points": {"1": {"quote": ..., "status": "covered"}}}`, which structured output can force; read is the published form,
too: the lists `covered` and `missed` with `evidence`.

The two sides are a partition: a point on none, or on both, breaks the contract, and that point alone is asked for
again. The final score follows from the subscores and is never asked for again. A number that names no point puts the
numbering of its whole field in doubt, so all points count as broken rather than the entry as absent. The order of
lists and keys does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion, Scale, Trait
from tasks.judge.numbered import Numbered, numbered
from tasks.judge.schema import MAX_PROSE
from tasks.judge.score import round_half_up
from tasks.text.numbers import number_of
from tasks.text.prose import whole_sentences

STATUSES = ("missed", "covered")
"""What is said of a point, in the order of its levels."""
PUBLISHED = frozenset({"covered", "missed", "evidence"})
"""Fields of the published form in place of `points`."""
_KEPT = 2_000
_NO_QUOTES: tuple[str, ...] = ()

Quotes = dict[int, tuple[str, ...]]


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
    points: Mapping[int, tuple[str, ...] | None] = field(default_factory=dict)
    """Of the points with a usable claim the quotes that cover it; None for a missed one."""
    misconceptions: Quotes | None = None
    rationale: str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    """Field, `subscores.<trait>` or `points.<number>`, to be given again → kind of violation."""
    notes: Counter[str] = field(default_factory=Counter)
    """What was canonicalised on the way."""


def everything(bundle: Bundle) -> Demand:
    """The whole contract; points and misconceptions only where the bundle has any."""
    points, banned, traits = numbered(bundle)
    names = {"subscores", "final_score", "rationale"}
    names |= {"points"} if points else set()
    names |= {"misconceptions"} if banned else set()
    return Demand(frozenset(names), traits, tuple(points), tuple(banned))


def read(artifact: Mapping[str, Any], asked: Demand, bundle: Bundle) -> Claims:
    """The claims of an artifact that was asked for these fields. Nothing else in it is looked at."""
    whole, notes = numbered(bundle), Counter[str]()
    published = PUBLISHED if whole.points else frozenset()
    notes["unknown_field"] = len(artifact.keys() - everything(bundle).fields - published)
    points, wrong = _points(artifact, asked.points, whole, notes)
    misconceptions = rationale = None
    if "misconceptions" in asked.fields:
        given = artifact.get("misconceptions")
        misconceptions, problem = _quotes(given, "misconception", whole.misconceptions, notes)
        wrong |= {"misconceptions": problem} if problem else {}
    if "rationale" in asked.fields:
        said = artifact.get("rationale")
        rationale = whole_sentences(said, MAX_PROSE) if isinstance(said, str) else None
        wrong |= {} if rationale is not None else {"rationale": "missing" if said is None else "malformed"}
    subscores, problems = _subscores(artifact.get("subscores"), asked.traits, whole.traits, notes)
    final, _ = _number(artifact.get("final_score"), bundle.scale, Counter())
    notes += Counter()  # drops what is 0
    return Claims(subscores, final, points, misconceptions, rationale, wrong | problems, notes)


def merge(kept: Claims, new: Claims, asked: Demand) -> Claims:
    """What was valid before with what a repair gave of the fields it was asked for; nothing else changes.

    Of points it was asked about it may name some: the others stay as they were.
    """
    misconceptions = kept.misconceptions
    if new.misconceptions is not None:
        others = {n: quotes for n, quotes in (misconceptions or {}).items() if n not in asked.misconceptions}
        misconceptions = others | {n: q for n, q in new.misconceptions.items() if n in asked.misconceptions}
    merged = Claims(
        subscores={**kept.subscores, **new.subscores},
        final=kept.final,
        points={**kept.points, **{n: claim for n, claim in new.points.items() if n in asked.points}},
        misconceptions=misconceptions,
        rationale=new.rationale if kept.rationale is None else kept.rationale,
        notes=kept.notes + new.notes,
    )
    known = {name for name in ("misconceptions", "rationale") if getattr(merged, name) is not None}
    known |= {f"subscores.{name}" for name in merged.subscores} | {f"points.{n}" for n in merged.points}
    left = {name: kind for name, kind in {**kept.broken, **new.broken}.items() if name not in known}
    return replace(merged, broken=left)


def _points(
    artifact: Mapping[str, Any], asked: Iterable[int], whole: Numbered, notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...] | None], dict[str, str]]:
    """Usable claims on the points, and what is wrong with those asked for that have none."""
    form = _by_number if artifact.get("points") is not None else _by_lists
    claims, problems, doubt = form(artifact, whole.points, notes)
    if doubt:
        return {}, {f"points.{number}": doubt for number in asked}
    wrong = {n: problems.get(n, "missing") for n in asked if n not in claims}
    return claims, {f"points.{number}": problem for number, problem in wrong.items()}


def _by_number(
    artifact: Mapping[str, Any], known: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...] | None], dict[int, str], str | None]:
    """Claims and problems of single points under their numbers, and why all of them are in doubt."""
    given = artifact["points"]
    if not isinstance(given, dict):
        return {}, {}, "malformed"
    claims: dict[int, tuple[str, ...] | None] = {}
    problems: dict[int, str] = {}
    for name, claim in given.items():
        number = number_of(name)
        if number is None or number not in known or number in claims:
            return {}, {}, "malformed" if number is None else "unknown_point"
        said = claim.get("status") if isinstance(claim, dict) else None
        status = said.strip().casefold() if isinstance(said, str) else None
        if status not in STATUSES:
            problems[int(number)] = "malformed"
            continue
        quote = claim.get("quote")
        is_text = isinstance(quote, str) and bool(quote.strip())
        notes["malformed_evidence"] += quote is not None and not isinstance(quote, str)
        notes["unused_evidence"] += is_text and status == "missed"
        claims[int(number)] = None if status == "missed" else ((quote[:_KEPT],) if is_text else _NO_QUOTES)
    return claims, problems, None


def _by_lists(
    artifact: Mapping[str, Any], known: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...] | None], dict[int, str], str | None]:
    """The same from the published form. A list that is not there names nothing."""
    covered, doubt = _numbers(artifact.get("covered", []), known, notes)
    missed, doubt_too = _numbers(artifact.get("missed", []), known, notes)
    if doubt or doubt_too:
        return {}, {}, doubt or doubt_too
    quotes, problem = _quotes(artifact.get("evidence"), "point", known, notes) if covered else ({}, None)
    claims: dict[int, tuple[str, ...] | None] = dict.fromkeys(missed - covered)
    problems = dict.fromkeys(covered & missed, "contradictory")
    for number in covered - missed:
        if quotes is not None:
            claims[number] = quotes.get(number, _NO_QUOTES)
        elif known[number].evidence == "none":
            claims[number] = _NO_QUOTES
        else:
            problems[number] = problem or "malformed"
    notes["unused_evidence"] += sum(len(of) for number, of in (quotes or {}).items() if number not in covered)
    return claims, problems, None


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


def _numbers(given: Any, known: Mapping[int, Criterion], notes: Counter[str]) -> tuple[frozenset[int], str | None]:
    """The points that a list names, or none and what is wrong with it."""
    if not isinstance(given, list):
        return frozenset(), None if given is None else "malformed"
    found: set[int] = set()
    for entry in given:
        number = _index(entry, notes)
        if number is None or number not in known:
            return frozenset(), "malformed" if number is None else "unknown_point"
        notes["duplicate_index"] += number in found
        found.add(number)
    return frozenset(found), None


def _quotes(
    given: Any, name: str, known: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[Quotes | None, str | None]:
    """Number → quotes given for it, from a list of {name: number, "quote": text}, or None and what is wrong with it."""
    if not isinstance(given, list):
        return None, "missing" if given is None else "malformed"
    found: Quotes = {}
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
