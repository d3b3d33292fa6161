"""The verifier of GradeAgentOps' contract (section 2.3, Tables 2 and 8): claims grounded, decided and canonicalised.

Pure; settling what stands after verification again changes nothing, and the order of lists and keys does not matter.

Signals count what happened to a reply; what is 0 is left out. Those of Table 8: contract_fail (the accepted artifact
still breaks the contract), covered_gold_evidence_invalid (points moved to missed for want of a quote that holds),
forced_completeness_from_gold, short_answer_gate, banned_evidence_invalid_dropped (misconceptions) and
semantic_exhausted_but_accepted. Besides: final_overwritten (the stated final score does not follow from the subscores,
or is missing), top_marks_without_points (subscores at the top of their range though every point is missed), what was
canonicalised, unknown, named twice, malformed or unused, and the quotes by what was found of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.composite import share_of_points
from rubricflow.tasks.core.llm.ask import RequestOutcome
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.grading.judge import itemised
from rubricflow.tasks.grading.judge.doubted_quotes import most_shared
from rubricflow.tasks.grading.judge.doubted_quotes import settled as without_doubted
from rubricflow.tasks.grading.judge.evidence import Subject, grounded, why_unsupported
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import STATUSES, Claims, Demand, everything
from rubricflow.tasks.grading.judge.rows import Decision
from rubricflow.tasks.grading.judge.schema import Numbered, numbered
from rubricflow.tasks.grading.judge.score import onto, round_half_up, share_of

Quoted = tuple[str, ...]
COMPLETENESS = "completeness"
"""The judged trait that must agree with the covered points."""
TOLERANCE = 0.2
"""Share of its range by which completeness may differ from the share of the covered points."""


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


def settle(claims: Claims, bundle: Bundle, subject: Subject) -> Settlement:
    """The verdict on what was claimed.

    A covered point stands on a quote that is found in the response, a misconception too: a point without one counts as
    missed, a misconception is dropped (under `failed_quote: count` both are kept and counted). Violations are
    `kind:field` for what breaks the contract, in the order of the names, for a point `kind_point:criterion` (missing:
    neither covered nor missed; contradictory: both; malformed; unknown: a number that names none), and
    for a claim without a quote that holds `kind:criterion`, see `why_unsupported`.
    """
    rubric = numbered(bundle)
    signals = Counter(claims.notes)
    keeps = bundle.protocol.failed_quote == "count"
    by_quotes, actions = {}, {}
    for criterion, claimed, problem, action in _by_criterion(claims, rubric):
        actions[criterion.id] = "counted" if keeps else action
        decision = _decision(criterion, claimed, problem, subject, actions[criterion.id], signals)
        if action == "demoted":
            signals["covered_gold_evidence_invalid"] += decision.verified is False
        else:
            signals["banned_evidence_invalid_dropped"] += decision.action == "dropped"
        by_quotes[criterion.id] = decision
    failed = [f"{why_unsupported(d.evidence)}:{name}" for name, d in by_quotes.items() if d.action != "none"]
    decisions = [by_quotes[criterion.id] for criterion in bundle.criteria]
    doubted = without_doubted(decisions, bundle.protocol, bundle.criteria, lambda c: actions[c.id])
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
    broken_fields = []
    for name, kind in sorted(claims.broken.items()):
        field, _, number = name.partition(".")
        of_point = f"{kind.removesuffix('_point')}_point:{rubric.points[int(number)].id}" if field == "points" else ""
        broken_fields.append(of_point or f"{kind}:{name}")
    violations = (*broken_fields, *failed, *doubted.violations)
    return Settlement(
        claims=claims,
        decisions=doubted.decisions,
        traits=traits,
        is_covered=None not in levels.values(),
        signals=+signals,
        violations=violations,
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
    share = sum(share_of(traits[trait.id], trait) for trait in judged) / len(judged)
    return round_half_up(onto(share, bundle.scale), bundle.scale)


def _by_criterion(claims: Claims, rubric: Numbered) -> Iterator[tuple[Criterion, Quoted | None, str | None, str]]:
    """Each criterion with the quotes that are claimed for it (None: it is said to be missed), what is wrong with the
    claim, and what becomes of one without a quote that holds; points before misconceptions."""
    for number, point in rubric.points.items():
        problem = None if number in claims.points else claims.broken[f"points.{number}"]
        yield point, claims.points.get(number), problem, "demoted"
    problem = claims.broken["misconceptions"] if claims.misconceptions is None and rubric.misconceptions else None
    for number, misconception in rubric.misconceptions.items():
        yield misconception, (claims.misconceptions or {}).get(number), problem, "dropped"


def _decision(
    criterion: Criterion,
    claimed: Quoted | None,
    problem: str | None,
    subject: Subject,
    action: str,
    signals: Counter[str],
) -> Decision:
    """The decision by a claim's own quotes alone; action: what to do where none holds."""
    if problem:
        reason = "criterion_missing" if problem == "missing" else "invalid_reply"
        return Decision(criterion.id, None, reason=reason)
    if claimed is None:
        return Decision(criterion.id, 0, 0)
    found: list[str] = []
    rows, holds = grounded([(None, quote) for quote in sorted(claimed)], criterion, subject, found)
    signals.update(found)
    if holds or criterion.evidence == "none":
        return Decision(criterion.id, 1, 1, evidence=rows, verified=None if criterion.evidence == "none" else True)
    return Decision(criterion.id, int(action == "counted"), 1, evidence=rows, verified=False, action=action)


def _force_completeness(
    traits: dict[str, float], levels: Mapping[str, int | None], rubric: Numbered, signals: Counter[str]
) -> None:
    """Overwrites completeness by the share of the covered points where the two differ by more than the tolerance."""
    trait = next((trait for trait in rubric.traits if trait.id == COMPLETENESS), None)
    if trait is None or COMPLETENESS not in traits or not levels:
        return
    if None in levels.values():
        del traits[COMPLETENESS]
        return
    share = share_of_points(tuple(rubric.points.values()), {name: float(level or 0) for name, level in levels.items()})
    reached = round_half_up(onto(share, trait), trait)
    if abs(traits[COMPLETENESS] - reached) > TOLERANCE * (trait.max - trait.min) + 1e-9:
        traits[COMPLETENESS] = reached
        signals["forced_completeness_from_gold"] = 1


# How likely what a reply claims was, where the model's log-probabilities are known.


_WRITTEN = [sorted(STATUSES).index(status) for status in STATUSES]
"""Places of the statuses among the spellings that probabilities are given for, which are sorted."""


class Likely(NamedTuple):
    """Probabilities of each level of the criteria, and of each score of the judged traits."""

    criteria: dict[str, list[float]]
    traits: dict[str, list[float]]


def likely(call: RequestOutcome[Any], bundle: Bundle) -> Likely:
    """What the last reply that was asked for it gave, in its place nothing where that gave none. A model's reply has
    points under their numbers; an answerer that reads no prose gives criteria under their names."""
    points, banned, _ = numbered(bundle)
    latest = Likely({}, {})
    for attempt in call.attempts:
        carried = attempt.request.data.settled
        demand: Demand = carried.demand if carried else everything(bundle)
        if attempt.reply.text is None:
            continue
        probabilities = attempt.reply.level_probabilities or {}
        for number in demand.points:
            sides = _of_status(probabilities.get(str(number))) or _of_levels(probabilities, points[number])
            _replace(latest.criteria, points[number].id, sides)
        for number in demand.misconceptions:
            _replace(latest.criteria, banned[number].id, _of_levels(probabilities, banned[number]))
        for trait in demand.traits:
            scores = probabilities.get(trait.id)
            _replace(latest.traits, trait.id, scores if scores and len(scores) == trait.levels else None)
    return latest


def restated(artifact: JsonDict, reply: Reply, bundle: Bundle) -> JsonDict:
    """The artifact with what counts by the bundle's `level` in place of what it states; of subscores the likeliest."""
    probabilities = reply.level_probabilities or {}
    protocol = bundle.protocol
    if protocol.level == "stated" or not probabilities:
        return artifact
    points, subscores = artifact.get("points"), artifact.get("subscores")
    changed = {}
    if isinstance(points, dict):
        changed["points"] = {n: _claim(entry, _of_status(probabilities.get(n)), bundle) for n, entry in points.items()}
    if isinstance(subscores, dict):
        scales = {trait.id: trait for trait in numbered(bundle).traits}
        by_level = protocol.model_copy(update={"level": "likeliest"})
        changed["subscores"] = dict(subscores)
        for name, stated in subscores.items():
            if name in scales and name in probabilities and type(stated) in (int, float):
                changed["subscores"][name] = itemised.value(by_level, probabilities[name], stated, scales[name])
    return artifact | changed


def settled(verdict: Settlement, probabilities: Likely, bundle: Bundle) -> Settlement:
    """The verdict with expected subscores, where these count; one that was overwritten stands."""
    if bundle.protocol.level != "expected":
        return verdict
    stated = verdict.claims.subscores
    traits = {}
    for trait in numbered(bundle).traits:
        if trait.id in verdict.traits:
            score = verdict.traits[trait.id]
            if score == stated.get(trait.id):
                score = itemised.value(bundle.protocol, probabilities.traits.get(trait.id), score, trait)
            traits[trait.id] = score
    return replace(verdict, traits=traits)


def confidence(verdict: Settlement, probabilities: Likely, bundle: Bundle) -> float | None:
    """Mean probability of the sides of the points and of the subscores; None where the rater gives none."""
    stated: Mapping[str, float] = verdict.claims.subscores
    chances = []
    for decision in verdict.decisions:
        if decision.stated is not None and decision.criterion_id in probabilities.criteria:
            chances.append(probabilities.criteria[decision.criterion_id][decision.stated])
    for trait in numbered(bundle).traits:
        if trait.id in stated and trait.id in probabilities.traits:
            likely = probabilities.traits[trait.id]
            chances.append(itemised.confidence(bundle.protocol, likely, stated[trait.id], trait))
    return sum(chances) / len(chances) if chances else None


def _of_status(likely: list[float] | None) -> list[float] | None:
    """Probabilities of the levels of a point."""
    return [likely[place] for place in _WRITTEN] if likely and len(likely) == len(STATUSES) else None


def _of_levels(probabilities: Mapping[str, list[float]], criterion: Criterion) -> list[float] | None:
    likely = probabilities.get(criterion.id)
    return likely if likely and len(likely) == len(criterion.levels) else None


def _claim(entry: Any, likely: list[float] | None, bundle: Bundle) -> Any:
    status = entry.get("status") if isinstance(entry, dict) else None
    if status not in STATUSES:
        return entry
    return {**entry, "status": STATUSES[itemised.level(bundle.protocol, likely, STATUSES.index(status))]}


def _replace(latest: dict[str, list[float]], name: str, likely: list[float] | None) -> None:
    latest.pop(name, None)
    if likely:
        latest[name] = likely
