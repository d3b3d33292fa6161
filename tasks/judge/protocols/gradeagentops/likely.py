"""How likely what a reply of GradeAgentOps' contract claims was, where the model's log-probabilities are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge import chosen
from tasks.judge.numbered import numbered
from tasks.judge.protocols.gradeagentops.claims import STATUSES, Demand, everything
from tasks.judge.protocols.gradeagentops.points import Settlement
from tasks.llm.ask import Asked
from tasks.llm.request import Reply

_WRITTEN = [sorted(STATUSES).index(status) for status in STATUSES]
"""Places of the statuses among the spellings that probabilities are given for, which are sorted."""


class Likely(NamedTuple):
    """Probabilities of each level of the criteria, and of each score of the judged traits."""

    criteria: dict[str, list[float]]
    traits: dict[str, list[float]]


def likely(answer: Asked[Any], bundle: Bundle) -> Likely:
    """What the last reply that was asked for it gave, in its place nothing where that gave none. A model's reply has
    points under their numbers; an answerer that reads no prose gives criteria under their names."""
    points, banned, _ = numbered(bundle)
    found = Likely({}, {})
    for attempt in answer.attempts:
        asked: Demand = attempt.request.data.kept.asked if attempt.request.data.kept else everything(bundle)
        if attempt.reply.text is None:
            continue
        given = attempt.reply.level_probabilities or {}
        for number in asked.points:
            own = _of_status(given.get(str(number))) or _of_levels(given, points[number])
            _put(found.criteria, points[number].id, own)
        for number in asked.misconceptions:
            _put(found.criteria, banned[number].id, _of_levels(given, banned[number]))
        for trait in asked.traits:
            known = given.get(trait.id)
            _put(found.traits, trait.id, known if known and len(known) == trait.levels else None)
    return found


def restated(artifact: dict[str, Any], reply: Reply, bundle: Bundle) -> dict[str, Any]:
    """The artifact with what counts by the bundle's `level` in place of what it states; of subscores the likeliest."""
    given, protocol = reply.level_probabilities or {}, bundle.protocol
    if protocol.level == "stated" or not given:
        return artifact
    points, subscores = artifact.get("points"), artifact.get("subscores")
    changed: dict[str, Any] = {}
    if isinstance(points, dict):
        changed["points"] = {n: _claim(claim, _of_status(given.get(n)), bundle) for n, claim in points.items()}
    if isinstance(subscores, dict):
        scales = {trait.id: trait for trait in numbered(bundle).traits}
        by_level = protocol.model_copy(update={"level": "likeliest"})
        changed["subscores"] = {
            name: chosen.value(by_level, given[name], stated, scales[name])
            if name in scales and name in given and _is_number(stated)
            else stated
            for name, stated in subscores.items()
        }
    return artifact | changed


def settled(verdict: Settlement, of: Likely, bundle: Bundle) -> Settlement:
    """The verdict with expected subscores, where these count; one that was overwritten stands."""
    if bundle.protocol.level != "expected":
        return verdict
    stated = verdict.claims.subscores
    traits = {
        trait.id: chosen.value(bundle.protocol, of.traits.get(trait.id), verdict.traits[trait.id], trait)
        if verdict.traits[trait.id] == stated.get(trait.id)
        else verdict.traits[trait.id]
        for trait in numbered(bundle).traits
        if trait.id in verdict.traits
    }
    return replace(verdict, traits=traits)


def confidence(verdict: Settlement, of: Likely, bundle: Bundle) -> float | None:
    """Mean probability of the sides of the points and of the subscores; None where the rater gives none."""
    stated: Mapping[str, float] = verdict.claims.subscores
    sides = [
        of.criteria[d.criterion_id][d.stated]
        for d in verdict.decisions
        if d.stated is not None and d.criterion_id in of.criteria
    ]
    scores = [
        chosen.confidence(bundle.protocol, of.traits[trait.id], stated[trait.id], trait)
        for trait in numbered(bundle).traits
        if trait.id in stated and trait.id in of.traits
    ]
    every = [*sides, *scores]
    return sum(every) / len(every) if every else None


def _of_status(known: list[float] | None) -> list[float] | None:
    """Probabilities of the levels of a point."""
    return [known[at] for at in _WRITTEN] if known and len(known) == len(STATUSES) else None


def _of_levels(given: Mapping[str, list[float]], criterion: Criterion) -> list[float] | None:
    known = given.get(criterion.id)
    return known if known and len(known) == len(criterion.levels) else None


def _claim(claim: Any, known: list[float] | None, bundle: Bundle) -> Any:
    said = claim.get("status") if isinstance(claim, dict) else None
    if said not in STATUSES:
        return claim
    return {**claim, "status": STATUSES[chosen.level(bundle.protocol, known, STATUSES.index(said))]}


def _put(found: dict[str, list[float]], name: str, known: list[float] | None) -> None:
    found.pop(name, None)
    if known:
        found[name] = known


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
