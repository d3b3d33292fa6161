"""Whether credit rests on quotes, and how far the judge's probabilities of single decisions can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.sections import DecisionsSection, Grounding, NamedCount, listed

Row = Mapping[str, Any]
CriterionEstimates = tuple[str, Estimate, Estimate]
CLOSE = 0.02
"""Gap between confidence and accuracy below which nothing is made of it."""


def grounding(
    quotes: Sequence[Row], decisions: Sequence[Row], conflicts: Sequence[Row], responses: int, figures: Figures
) -> Grounding:
    """What became of the quotes, and which criteria go with people's scores."""
    by_status = {row["status"]: row["n"] for row in quotes}
    every = sum(by_status.values())
    decided = sum(row["n"] for row in decisions)
    actions = (*_actions(decisions, decided), *_conflicts(conflicts, responses))
    criteria = listed(_criteria(figures))
    if not every:
        why = "this judge gave no quotes" if decided else "this judge took no decision on single criteria"
        return Grounding("Whether credit is grounded is not known", (), actions, criteria, why)
    return Grounding(_grounding_title(by_status, every), _fates(by_status, every), actions, criteria)


def _fates(by_status: Mapping[str, int], every: int) -> tuple[NamedCount, ...]:
    """What became of the quotes."""
    counts = []
    for status, words in QUOTES.items():
        count = by_status.get(status, 0)
        counts.append(NamedCount(words.capitalize(), count, count / every))
    return tuple(counts)


def _actions(decisions: Sequence[Row], decided: int) -> list[NamedCount]:
    """What was done with the decisions; nothing where there are none."""
    if not decided:
        return []
    done = Counter({row["action"]: 0 for row in decisions})
    for row in decisions:
        done[row["action"]] += row["n"]
    counts = {words.capitalize(): done[action] for action, words in ACTIONS.items() if action != "none"}
    counts["Credit that asks for no quote"] = sum(row["n"] for row in decisions if row["ungrounded"])
    counts["Criteria without a usable verdict"] = sum(row["n"] for row in decisions if row["unscored"])
    return [NamedCount(name, count, count / decided) for name, count in counts.items()]


def _conflicts(conflicts: Sequence[Row], responses: int) -> list[NamedCount]:
    name = "Responses in which criteria that exclude each other were found; not both count"
    return [NamedCount(name, row["n"], row["n"] / responses) for row in conflicts]


def _criteria(figures: Figures) -> list[CriterionEstimates]:
    """Each criterion's correlation with people's scores, alone and beside the others; the strongest first."""
    criteria = []
    for name in figures.values("criterion_r", "criterion"):
        alone = figures.any("criterion_r", "criterion", name)
        partial = figures.any("criterion_partial_r", "criterion", name)
        criteria.append((say.name(name), alone, partial))
    return sorted(criteria, key=lambda row: -abs(row[1].value or 0.0))


def _grounding_title(by_status: Mapping[str, int], every: int) -> str:
    stand = say.share(by_status.get("verified", 0) / every)
    title = f"{stand} of {say.plural(every, 'quote')} stand in the text where they were cited"
    invented = by_status.get("fabricated")
    if not invented:
        return title
    return f"{title}; {say.count(invented)} {'was' if invented == 1 else 'were'} invented"


def decisions(figures: Figures) -> DecisionsSection | None:
    """How far the judge's probabilities of its decisions can be believed; None where there is nothing to hold them
    against."""
    names = figures.values("decision_accuracy", "confidence")
    if not names or figures.machine("decision_ece", "raw").value is None:
        return None
    statistics = [figures.figure(metric, figures.machine(metric.name, "raw")) for metric in figures.listed("decisions")]
    bins = tuple(_bin(figures, name) for name in names)
    confidence = figures.machine("decision_confidence", "raw").value or 0.0
    accuracy = figures.machine("decision_accuracy", "raw").value or 0.0
    return DecisionsSection(_decisions_title(confidence, accuracy), bins, tuple(statistics))


def _bin(figures: Figures, name: str) -> tuple[float, Estimate]:
    confidence = figures.machine("decision_confidence", "raw", "confidence", name).value or 0.0
    return confidence, figures.machine("decision_accuracy", "raw", "confidence", name)


def _decisions_title(confidence: float, accuracy: float) -> str:
    gap = confidence - accuracy
    title = f"The judge is {say.share(confidence)} sure of its decisions and right in {say.share(accuracy)}"
    if abs(gap) <= CLOSE:
        return title
    return f"{title}: {'surer' if gap > 0 else 'less sure'} than it is right"
