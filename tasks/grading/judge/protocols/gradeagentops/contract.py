"""GradeAgentOps' contract: what a model is asked for, and what its reply claims, field by field and over the
attempts (section 2.3).

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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale, Trait
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, form, record, several
from rubricflow.tasks.core.text.tokens import number_of, whole
from rubricflow.tasks.core.text.units import whole_sentences
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.schema import MAX_PROSE, PROSE, QUOTE, numbered
from rubricflow.tasks.grading.judge.score import round_half_up

STATUSES = ("missed", "covered")
"""What is said of a point, in the order of its levels."""
PUBLISHED = frozenset({"covered", "missed", "evidence"})
"""Fields of the published form in place of `points`."""
_LONGEST = 2_000
"""Characters that are kept of a quote."""
_NO_QUOTES: tuple[str, ...] = ()
DIMENSIONS = {
    "accuracy": "what is said is right, and nothing important in it is wrong",
    "clarity": "it can be followed at the first reading",
    "completeness": "how much of what was expected is there; it goes with the covered points",
    "terminology": "the words of the field are used, and used in their sense",
    "coherence": "the steps of the argument follow from one another",
    "originality": "there are thoughts or examples of the student's own",
    "dialecticality": "other views are weighed, not only one's own stated",
}
"""What the published subscores look at, in our words."""
_ORDER = ("points", "misconceptions", "rationale", "subscores", "final_score")
"""Evidence first and numbers last, so that a model scores after it has looked."""
_NOTHING = {"type": "string", "enum": [""]}


Quotes = dict[int, tuple[str, ...]]


class Demand(NamedTuple):
    """What a call asks for. `fields`: top-level names; `points`, `misconceptions`: the numbers that may be named."""

    fields: frozenset[str]
    traits: tuple[Trait, ...] = ()
    points: tuple[int, ...] = ()
    misconceptions: tuple[int, ...] = ()


def system(bundle: Bundle, question: str, context: str | None, reference: str | None) -> str:
    """What all responses of an item share: points and misconceptions stand under the numbers of the contract."""
    demand, (gold, banned, _) = everything(bundle), numbered(bundle)
    lines = []
    for heading, criteria in (("Expected points:", gold), ("Misconceptions that cost marks:", banned)):
        if criteria:
            lines.append(heading)
            for number, criterion in criteria.items():
                weight = f" (weight {criterion.weight:g})" if bundle.protocol.show_weights else ""
                lines.append(f"{number}. {criterion.text}{weight}")
            lines.append("")
    dimensions = []
    for trait in demand.traits:
        looks = DIMENSIONS.get(trait.id, trait.name)
        anchors = "".join(f"; {anchor.score:g} = {anchor.text}" for anchor in trait.anchors)
        dimensions.append(f"- {trait.id}, {prompt.range_of(trait)}: {looks}{anchors}")
    values = {
        "question": question,
        "context": prompt.under("Material that belongs to the question:", context),
        "reference": prompt.under("A model answer:", reference),
        "rubric": bundle.text.removeprefix(reference or "").strip(),  # a derived one's begins with that answer
        "points": "\n".join(lines),
        "dimensions": "\n".join(dimensions),
        "scale": prompt.range_of(bundle.scale),
        "form": form(schema(bundle, demand)),
    }
    return prompt.fill("gradeagentops", values, prompt.speaking(values))


def schema(bundle: Bundle, demand: Demand) -> JsonDict:
    """The contract of what is asked for: every point under its number, so that none can be left out or named twice,
    and a covered one with words. Every list and string is bounded, so that a model held to it ends."""
    points = numbered(bundle).points
    claims = {str(number): _claim(points[number]) for number in demand.points}
    number = {"type": "integer", "enum": [*demand.misconceptions]}
    misconception = record({"misconception": number, "quote": QUOTE})
    subscores = {trait.id: _score(trait) for trait in demand.traits}
    members = {
        "points": record(claims),
        "misconceptions": several(misconception, 0, len(demand.misconceptions)),
        "rationale": PROSE,
        "subscores": record(subscores),
        "final_score": _score(bundle.scale),
    }
    return record({name: members[name] for name in in_order(demand)})


def fields(bundle: Bundle, demand: Demand) -> tuple[str, ...]:
    """The fields asked for, a subscore at a time, and points as the criteria that they are."""
    names = []
    for name in in_order(demand):
        if name == "points":
            names += [numbered(bundle).points[number].id for number in demand.points]
        else:
            names += [f"subscores.{trait.id}" for trait in demand.traits] if name == "subscores" else [name]
    return tuple(names)


def in_order(demand: Demand) -> list[str]:
    """The names of the fields asked for, evidence before numbers."""
    return [name for name in _ORDER if name in demand.fields]


def _claim(point: Criterion) -> JsonDict:
    """Schema of what is said of a point: whether it is covered, then by which words."""
    missed, covered = ({"status": {"type": "string", "enum": [status]}} for status in STATUSES)
    if point.evidence == "none":
        return record({"status": {"type": "string", "enum": [*STATUSES]}})
    return {"anyOf": [record({**missed, "quote": _NOTHING}), record({**covered, "quote": QUOTE})]}


def _score(scale: Scale) -> JsonDict:
    scores = [whole(round(scale.min + scale.step * i, 12)) for i in range(scale.levels)]
    return {"type": "integer" if all(isinstance(score, int) for score in scores) else "number", "enum": scores}


# What a reply claims.


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


def read(artifact: JsonObject, demand: Demand, bundle: Bundle) -> Claims:
    """The claims of an artifact that was asked for these fields. Nothing else in it is looked at."""
    rubric = numbered(bundle)
    notes = Counter[str](unknown_field=len(unknown_fields(artifact, bundle)))
    # A point without a usable claim is missing, or has a problem of its own or of all.
    form = _by_number if artifact.get("points") is not None else _by_lists
    points, problems, doubt = form(artifact, rubric.points, notes)
    points = {} if doubt else points
    broken = {f"points.{n}": doubt or problems.get(n, "missing") for n in demand.points if n not in points}
    misconceptions = rationale = None
    if "misconceptions" in demand.fields:
        entries = artifact.get("misconceptions")
        misconceptions, problem = _quotes(entries, "misconception", rubric.misconceptions, notes)
        broken |= {"misconceptions": problem} if problem else {}
    if "rationale" in demand.fields:
        prose = artifact.get("rationale")
        if isinstance(prose, str):
            rationale = whole_sentences(prose, MAX_PROSE)
        else:
            broken["rationale"] = "missing" if prose is None else "malformed"
    entries = artifact.get("subscores")
    subscores = {}
    stated = entries if isinstance(entries, dict) else {}
    for trait in demand.traits:
        value, problem = _number(stated.get(trait.id), trait, notes)
        if value is None:
            broken[f"subscores.{trait.id}"] = problem if entries is None or stated is entries else "malformed"
        else:
            subscores[trait.id] = value
    return Claims(
        subscores=subscores,
        final=_number(artifact.get("final_score"), bundle.scale, Counter())[0],
        points=points,
        misconceptions=misconceptions,
        rationale=rationale,
        broken=broken,
        notes=+notes,
    )


def unknown_fields(artifact: JsonObject, bundle: Bundle) -> list[str]:
    """The fields of an artifact, and those of its subscores, that the whole contract does not have in either form."""
    rubric, subscores = numbered(bundle), artifact.get("subscores")
    unknown = artifact.keys() - everything(bundle).fields - (PUBLISHED if rubric.points else frozenset())
    stated = subscores if isinstance(subscores, dict) else {}
    inner = stated.keys() - {trait.id for trait in rubric.traits}
    return sorted([*unknown, *(f"subscores.{name}" for name in inner)])


def merge(earlier: Claims, new: Claims, demand: Demand) -> Claims:
    """What was valid before with what a repair gave of the fields it was asked for; nothing else changes.

    Of points it was asked about it may name some: the others stay as they were.
    """
    points = {number: claim for number, claim in new.points.items() if number in demand.points}
    misconceptions = earlier.misconceptions
    if new.misconceptions is not None:
        kept = {n: quotes for n, quotes in (misconceptions or {}).items() if n not in demand.misconceptions}
        misconceptions = kept | {n: new.misconceptions[n] for n in new.misconceptions if n in demand.misconceptions}
    merged = Claims(
        subscores={**earlier.subscores, **new.subscores},
        final=earlier.final,
        points={**earlier.points, **points},
        misconceptions=misconceptions,
        rationale=new.rationale if earlier.rationale is None else earlier.rationale,
        notes=earlier.notes + new.notes,
    )
    valid = {name for name in ("misconceptions", "rationale") if getattr(merged, name) is not None}
    valid |= {f"subscores.{name}" for name in merged.subscores} | {f"points.{n}" for n in merged.points}
    broken = {name: kind for name, kind in {**earlier.broken, **new.broken}.items() if name not in valid}
    return replace(merged, broken=broken)


def _by_number(
    artifact: JsonObject, points: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...] | None], dict[int, str], str | None]:
    """Claims and problems of single points under their numbers, and why all of them are in doubt."""
    entries = artifact["points"]
    if not isinstance(entries, dict):
        return {}, {}, "malformed"
    claims = {}
    problems = {}
    for name, entry in entries.items():
        number = number_of(name)
        if number is None or number not in points or number in claims:
            return {}, {}, "malformed" if number is None else "unknown_point"
        stated = entry.get("status") if isinstance(entry, dict) else None
        status = stated.strip().casefold() if isinstance(stated, str) else None
        if status not in STATUSES:
            problems[int(number)] = "malformed"
            continue
        quote = entry.get("quote")
        is_text = isinstance(quote, str) and bool(quote.strip())
        notes["malformed_evidence"] += quote is not None and not isinstance(quote, str)
        notes["unused_evidence"] += is_text and status == "missed"
        quotes = (quote[:_LONGEST],) if is_text else _NO_QUOTES
        claims[int(number)] = None if status == "missed" else quotes
    return claims, problems, None


def _by_lists(
    artifact: JsonObject, points: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[dict[int, tuple[str, ...] | None], dict[int, str], str | None]:
    """The same from the published form. A list that is not there names nothing."""
    covered, doubt = _numbers(artifact.get("covered", []), points, notes)
    missed, doubt_too = _numbers(artifact.get("missed", []), points, notes)
    if doubt or doubt_too:
        return {}, {}, doubt or doubt_too
    quotes, problem = _quotes(artifact.get("evidence"), "point", points, notes) if covered else ({}, None)
    claims: dict[int, tuple[str, ...] | None] = dict.fromkeys(missed - covered)
    problems = dict.fromkeys(covered & missed, "contradictory")
    for number in covered - missed:
        if quotes is not None:
            claims[number] = quotes.get(number, _NO_QUOTES)
        elif points[number].evidence == "none":
            claims[number] = _NO_QUOTES
        else:
            problems[number] = problem or "malformed"
    unused = [texts for number, texts in (quotes or {}).items() if number not in covered]
    notes["unused_evidence"] += sum(map(len, unused))
    return claims, problems, None


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


def _numbers(entries: Any, points: Mapping[int, Criterion], notes: Counter[str]) -> tuple[frozenset[int], str | None]:
    """The points that a list names, or none and what is wrong with it."""
    if not isinstance(entries, list):
        return frozenset(), None if entries is None else "malformed"
    numbers = set()
    for entry in entries:
        number = _index(entry, notes)
        if number is None or number not in points:
            return frozenset(), "malformed" if number is None else "unknown_point"
        notes["duplicate_index"] += number in numbers
        numbers.add(number)
    return frozenset(numbers), None


def _quotes(
    entries: Any, name: str, criteria: Mapping[int, Criterion], notes: Counter[str]
) -> tuple[Quotes | None, str | None]:
    """Number → quotes given for it, from a list of {name: number, "quote": text}, or None and what is wrong with it."""
    if not isinstance(entries, list):
        return None, "missing" if entries is None else "malformed"
    quotes: Quotes = {}
    for entry in entries:
        number = _index(entry.get(name), notes) if isinstance(entry, dict) else None
        if number is None:
            return None, "malformed"  # whose quote it is is unknown: to pass it over would demote the point it proves
        if number not in criteria:
            return None, f"unknown_{name}"
        quote = entry.get("quote")
        is_text = isinstance(quote, str) and bool(quote.strip())
        notes["malformed_evidence"] += not is_text
        before = quotes.get(number, _NO_QUOTES)
        quotes[number] = (*before, quote[:_LONGEST]) if is_text else before
    return quotes, None


def _index(value: Any, notes: Counter[str]) -> int | None:
    number = _plain(value, notes)
    return int(number) if number is not None and number == number // 1 else None
