"""How likely what a reply of GradeAgentOps' contract claims was, where the model's log-probabilities are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import RequestOutcome
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge import itemised
from rubricflow.tasks.grading.judge.memory import numbered
from rubricflow.tasks.grading.judge.protocols.gradeagentops.claims import STATUSES, Demand, everything
from rubricflow.tasks.grading.judge.protocols.gradeagentops.settlement import Settlement

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


def restated(artifact: dict[str, Any], reply: Reply, bundle: Bundle) -> dict[str, Any]:
    """The artifact with what counts by the bundle's `level` in place of what it states; of subscores the likeliest."""
    probabilities, protocol = reply.level_probabilities or {}, bundle.protocol
    if protocol.level == "stated" or not probabilities:
        return artifact
    points, subscores = artifact.get("points"), artifact.get("subscores")
    changed: dict[str, Any] = {}
    if isinstance(points, dict):
        changed["points"] = {n: _claim(entry, _of_status(probabilities.get(n)), bundle) for n, entry in points.items()}
    if isinstance(subscores, dict):
        scales = {trait.id: trait for trait in numbered(bundle).traits}
        by_level = protocol.model_copy(update={"level": "likeliest"})
        changed["subscores"] = dict(subscores)
        for name, stated in subscores.items():
            if name in scales and name in probabilities and _is_number(stated):
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
