"""The verifier of GradeAgentOps' contract (section 2.3, Tables 2 and 8): claims grounded, decided and canonicalised.

Pure; settling the canonical artifact again changes nothing, and the order of lists and keys does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.text.quotes import unquoted
from rubricflow.tasks.grading.judge.doubted_quotes import NOTHING, Doubted, most_shared, settled
from rubricflow.tasks.grading.judge.evidence import HOLDS, Subject, ground, grounded
from rubricflow.tasks.grading.judge.memory import Numbered, numbered
from rubricflow.tasks.grading.judge.protocols.gradeagentops.claims import Claims, Demand
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import plain
from rubricflow.tasks.grading.judge.rows import Decision
from rubricflow.tasks.grading.judge.score import round_half_up, share_of_points

COMPLETENESS = "completeness"

"""The judged trait that must agree with the covered points."""

TOLERANCE = 0.2

"""Share of its range by which completeness may differ from the share of the covered points."""

SIGNALS = {
    "contract_fail": "the accepted artifact still breaks the contract, or there is none (0 or 1)",
    "covered_gold_evidence_invalid": "points said to be covered without a quote that holds, moved to missed",
    "forced_completeness_from_gold": "completeness overwritten by the share of the covered points (0 or 1)",
    "short_answer_gate": "settled without a call for want of words (0 or 1)",
    "banned_evidence_invalid_dropped": "misconceptions dropped because no quote for them holds",
    "semantic_exhausted_but_accepted": "evidence failed to the end of the budget of semantic repairs (0 or 1)",
    "final_overwritten": "the stated final score does not follow from the stated subscores, or is missing (0 or 1)",
    "canonicalised": "numbers written as 2.0 or as text",
    "unknown_field": "fields that the contract does not have",
    "duplicate_index": "points named twice in one list",
    "top_marks_without_points": "subscores at the top of their range though every point is missed",
    "malformed_evidence": "evidence without a point or a text",
    "unused_evidence": "evidence for a point that is not said to be covered",
    "quotes": "quotes offered, and apart by what was found, see `Evidence.status`",
    "invalid_evidence": "quotes that prove nothing",
    "shared_quotes": "the most criteria that are credited on the same words, where that is more than one",
    "unsupported": "claims left without a quote, as theirs were shared by too many or irrelevant",
    "demoted": "of these, points moved to missed",
    "dropped": "of these, misconceptions dropped",
    "counted": "of these, those that the bundle keeps",
    "quote_case": "quotes that hold, written with other capitals than the response has",
    "quote_marks": "quotes that hold, written with other apostrophes, hyphens or commas",
    "quote_spacing": "quotes that hold, with words split or joined",
}

"""The signals of this protocol in `gradings.signals`, counts where nothing else is said; what is 0 is left out. The
first six are those of Table 8."""


@dataclass(frozen=True)
class Settlement:
    """Claims decided: all criteria in the bundle's order, the judged traits as they count, and what is left to mend."""

    claims: Claims
    decisions: tuple[Decision, ...]
    traits: Mapping[str, float]
    """Judged trait → score; without completeness where coverage is not known."""
    is_covered: bool
    """Whether every gold point is decided."""
    signals: Counter[str]
    violations: tuple[str, ...]
    text: str = field(repr=False)
    """The response."""


def settle(claims: Claims, bundle: Bundle, subject: Subject) -> Settlement:
    """The verdict on what was claimed.

    A covered point stands on a quote that is found in the response, a misconception too: a point without one counts as
    missed, a misconception is dropped (under `failed_quote: count` both are kept and counted). Violations are
    `kind:field` for what breaks the contract, in the order of the names, for a point `kind_point:criterion` (missing:
    neither covered nor missed; contradictory: both; malformed; unknown: a number that names none), and
    `evidence_failed:criterion`.
    """
    rubric, signals = numbered(bundle), Counter(claims.notes)
    _prepare(claims, rubric, subject)
    decided = _decided(claims, bundle, subject, signals)
    failed = [f"evidence_failed:{name}" for name, d in decided.items() if d.action != "none"]
    doubted = _doubted(decided, bundle, subject)
    decided = {decision.criterion_id: decision for decision in doubted.decisions}
    signals.update(doubted.signals)
    signals.update(most_shared(doubted.decisions))
    traits = dict(claims.subscores)
    if len(traits) == len(rubric.traits):
        signals["final_overwritten"] = int(claims.final != mean_of(bundle, traits))
    levels = {c.id: decided[c.id].level for c in rubric.points.values()}
    _force_completeness(traits, levels, rubric, signals)
    if levels and not any(level != 0 for level in levels.values()):
        signals["top_marks_without_points"] = sum(claims.subscores.get(t.id) == t.max for t in rubric.traits)
    signals["contract_fail"] = int(bool(claims.broken))
    broken_fields = [_violation(name, kind, rubric) for name, kind in sorted(claims.broken.items())]
    violations = (*broken_fields, *failed, *doubted.violations)
    return Settlement(
        claims=claims,
        decisions=tuple(decided[criterion.id] for criterion in bundle.criteria),
        traits=traits,
        is_covered=None not in levels.values(),
        signals=+signals,
        violations=violations,
        text=subject.text,
    )


def broken(bundle: Bundle, claims: Claims) -> Demand:
    """What a contract repair asks for: the fields, subscores and points that are missing or broken."""
    points, banned, traits = numbered(bundle)
    names = {name.partition(".")[0] for name in claims.broken}
    broken_traits = tuple(trait for trait in traits if f"subscores.{trait.id}" in claims.broken)
    broken_points = tuple(number for number in points if f"points.{number}" in claims.broken)
    misconceptions = tuple(banned) if "misconceptions" in names else ()
    return Demand(frozenset(names), broken_traits, broken_points, misconceptions)


def ungrounded(bundle: Bundle, verdict: Settlement) -> Demand:
    """What a semantic repair asks for: the points and misconceptions whose evidence failed, and nothing else."""
    failed = {violation.partition(":")[2] for violation in verdict.violations}
    points, banned, _ = numbered(bundle)
    of_points = tuple(number for number, criterion in points.items() if criterion.id in failed)
    of_banned = tuple(number for number, criterion in banned.items() if criterion.id in failed)
    names = {"points"} if of_points else set()
    names |= {"misconceptions"} if of_banned else set()
    return Demand(frozenset(names), points=of_points, misconceptions=of_banned)


def mean_of(bundle: Bundle, traits: Mapping[str, float]) -> float:
    """The final score that subscores make: the mean of their shares on the scale, half up."""
    judged = numbered(bundle).traits
    share = sum((traits[t.id] - t.min) / (t.max - t.min) for t in judged) / len(judged)
    return round_half_up(bundle.scale.min + share * (bundle.scale.max - bundle.scale.min), bundle.scale)


def canonical(verdict: Settlement, bundle: Bundle) -> dict[str, Any]:
    """The artifact that stands after verification: sorted, with the quotes that hold; undecided fields are absent.

    Where a quote holds by what it means, the words of the response stand in its place.
    """
    points, banned, traits = numbered(bundle)
    decisions = {decision.criterion_id: decision for decision in verdict.decisions}
    subscores = {trait.id: plain(verdict.traits[trait.id]) for trait in traits if trait.id in verdict.traits}
    artifact: dict[str, Any] = {"subscores": subscores}
    if len(subscores) == len(traits):
        artifact["final_score"] = plain(mean_of(bundle, verdict.traits))
    if points and verdict.is_covered:
        covered = [number for number, criterion in points.items() if decisions[criterion.id].level]
        artifact["covered"], artifact["missed"] = covered, [number for number in points if number not in covered]
        artifact["evidence"] = _credited_quotes("point", points, verdict)
    if banned and verdict.claims.misconceptions is not None:
        artifact["misconceptions"] = _credited_quotes("misconception", banned, verdict)
    if verdict.claims.rationale is not None:
        artifact["rationale"] = verdict.claims.rationale
    return artifact


def _credited_quotes(name: str, criteria: Mapping[int, Criterion], verdict: Settlement) -> list[dict[str, Any]]:
    """The quotes that hold for credited criteria as {name: number, "quote": text}."""
    decisions = {decision.criterion_id: decision for decision in verdict.decisions}
    quotes = []
    for number, criterion in criteria.items():
        decision = decisions[criterion.id]
        rows = [row for row in decision.evidence if row["status"] in HOLDS] if decision.level else []
        quotes += [{name: number, "quote": _words(row, verdict.text)} for row in rows]
    return quotes


def _decided(claims: Claims, bundle: Bundle, subject: Subject, signals: Counter[str]) -> dict[str, Decision]:
    """Criterion → decision by its own quotes alone, points before misconceptions."""
    rubric, keeps = numbered(bundle), _keeps(bundle)
    decided: dict[str, Decision] = {}
    for number, criterion in rubric.points.items():
        decided[criterion.id] = _point(number, criterion, claims, subject, keeps, signals)
    for number, criterion in rubric.misconceptions.items():
        decided[criterion.id] = _misconception(number, criterion, claims, subject, keeps, signals)
    return decided


def _doubted(decided: Mapping[str, Decision], bundle: Bundle, subject: Subject) -> Doubted:
    """The decisions after shared and irrelevant quotes lost what they proved, in the bundle's order."""
    banned = {criterion.id for criterion in numbered(bundle).misconceptions.values()}

    def action_of(criterion: Criterion) -> str:
        if _keeps(bundle):
            return "counted"
        return "dropped" if criterion.id in banned else "demoted"

    criteria = [criterion for criterion in bundle.criteria if criterion.id in decided]
    decisions = [decided[criterion.id] for criterion in criteria]
    irrelevant = subject.relevance.irrelevant(decisions, subject.text) if subject.relevance else NOTHING
    return settled(decisions, bundle.protocol, criteria, irrelevant, action_of)


def _keeps(bundle: Bundle) -> bool:
    """Whether a claim without a quote that holds is kept and counted."""
    return bundle.protocol.failed_quote == "count"


def _point(
    number: int, criterion: Criterion, claims: Claims, subject: Subject, keeps: bool, signals: Counter[str]
) -> Decision:
    if number not in claims.points:
        return _undecided(criterion, claims.broken[f"points.{number}"])
    offered = claims.points[number]
    if offered is None:
        return Decision(criterion.id, 0, 0)
    decision = _grounded(criterion, offered, subject, "counted" if keeps else "demoted", signals)
    signals["covered_gold_evidence_invalid"] += decision.verified is False
    return decision


def _misconception(
    number: int, criterion: Criterion, claims: Claims, subject: Subject, keeps: bool, signals: Counter[str]
) -> Decision:
    if claims.misconceptions is None:
        return _undecided(criterion, claims.broken["misconceptions"])
    if number not in claims.misconceptions:
        return Decision(criterion.id, 0, 0)
    offered = claims.misconceptions[number]
    decision = _grounded(criterion, offered, subject, "counted" if keeps else "dropped", signals)
    signals["banned_evidence_invalid_dropped"] += decision.action == "dropped"
    return decision


def _violation(name: str, kind: str, rubric: Numbered) -> str:
    """`kind:field`, or `kind_point:criterion` for a point."""
    field, _, number = name.partition(".")
    if field != "points":
        return f"{kind}:{name}"
    return f"{kind.removesuffix('_point')}_point:{rubric.points[int(number)].id}"


def _undecided(criterion: Criterion, problem: str) -> Decision:
    return Decision(criterion.id, None, reason="criterion_missing" if problem == "missing" else "invalid_reply")


def _grounded(
    criterion: Criterion, quotes: Iterable[str], subject: Subject, action: str, signals: Counter[str]
) -> Decision:
    """The decision on a claim with these quotes, and what to do where none holds."""
    counted: list[str] = []
    rows, holds = grounded([(None, quote) for quote in sorted(quotes)], criterion, subject, counted)
    signals.update(counted)
    if criterion.evidence == "none":
        return Decision(criterion.id, 1, 1, evidence=rows)
    if holds:
        return Decision(criterion.id, 1, 1, evidence=rows, verified=True)
    level = int(action == "counted")
    return Decision(criterion.id, level, 1, evidence=rows, verified=False, action=action)


def _force_completeness(
    traits: dict[str, float], levels: Mapping[str, int | None], rubric: Numbered, signals: Counter[str]
) -> None:
    """Overwrites completeness by the share of the covered points where the two differ by more than the tolerance."""
    trait = next((trait for trait in rubric.traits if trait.id == COMPLETENESS), None)
    if trait is None or COMPLETENESS not in traits or not levels:
        return
    shares = {name: float(level) for name, level in levels.items() if level is not None}
    if len(shares) < len(levels):
        del traits[COMPLETENESS]
        return
    share, span = share_of_points(tuple(rubric.points.values()), shares), trait.max - trait.min
    reached = round_half_up(trait.min + share * span, trait)
    if abs(traits[COMPLETENESS] - reached) > TOLERANCE * span + 1e-9:
        traits[COMPLETENESS] = reached
        signals["forced_completeness_from_gold"] = 1


def _words(row: Mapping[str, Any], text: str) -> str:
    quote: str = text[row["start"] : row["end"]] if row["status"] == "semantic" else row["quote"]
    return quote


def _prepare(claims: Claims, rubric: Numbered, subject: Subject) -> None:
    """Has all quotes that stand nowhere encoded at once, where meaning counts too."""
    if subject.match is None:
        return
    by_words = replace(subject, match=None)
    offered = [(rubric.points[n], quotes) for n, quotes in claims.points.items() if quotes is not None]
    offered += [(rubric.misconceptions[n], quotes) for n, quotes in (claims.misconceptions or {}).items()]
    unmatched = []
    for criterion, quotes in offered:
        unmatched += [quote for quote in quotes if ground(quote, None, criterion, by_words)[0] == "fabricated"]
    subject.match.prepare(map(unquoted, unmatched))
