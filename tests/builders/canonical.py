"""What stands of an artifact after verification, in the words of its contract: verified again it must stay so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.text.tokens import whole
from rubricflow.tasks.grading.judge.evidence import HOLDS
from rubricflow.tasks.grading.judge.protocols.gradeagentops.settlement import Settlement, mean_of
from rubricflow.tasks.grading.judge.schema import PLAIN, UnitNames, fields, numbered
from rubricflow.tasks.grading.judge.verify import Verdict


def words_of(row: Mapping[str, Any], text: str) -> str:
    """The words that prove a claim: those of the response where a quote holds by what it means."""
    return text[row["start"] : row["end"]] if row["status"] == "semantic" else row["quote"]


def canonical(verdict: Verdict, criteria: Sequence[Criterion], text: str, names: UnitNames = PLAIN) -> dict[str, Any]:
    """The decided levels with the quotes that hold."""
    entries = {}
    for criterion, decision in zip(criteria, verdict.decisions, strict=True):
        if decision.level is not None:
            quotes = []
            for row in decision.evidence:
                if row["status"] in HOLDS:
                    unit = row["unit_id"] and names.name(row["unit_id"])
                    quotes.append({"unit": unit, "quote": words_of(row, text)})
            diagnostic = "" if decision.action == "counted" else "what it shows"
            members = {"evidence": quotes, "diagnostic": diagnostic, "level": decision.level}
            entries[criterion.id] = {name: members[name] for name in fields(criterion)}
    return {"decisions": entries}


def canonical_claims(verdict: Settlement, bundle: Bundle, text: str) -> dict[str, Any]:
    """GradeAgentOps' artifact in its published form: sorted, with the quotes that hold; undecided fields are absent."""
    points, banned, traits = numbered(bundle)
    decisions = {decision.criterion_id: decision for decision in verdict.decisions}

    def quotes(name: str, criteria: Mapping[int, Criterion]) -> list[dict[str, Any]]:
        found = []
        for number, criterion in criteria.items():
            decision = decisions[criterion.id]
            rows = [row for row in decision.evidence if row["status"] in HOLDS] if decision.level else []
            found += [{name: number, "quote": words_of(row, text)} for row in rows]
        return found

    subscores = {trait.id: whole(verdict.traits[trait.id]) for trait in traits if trait.id in verdict.traits}
    artifact: dict[str, Any] = {"subscores": subscores}
    if len(subscores) == len(traits):
        artifact["final_score"] = whole(mean_of(bundle, verdict.traits))
    if points and verdict.is_covered:
        covered = [number for number, criterion in points.items() if decisions[criterion.id].level]
        artifact["covered"], artifact["missed"] = covered, [number for number in points if number not in covered]
        artifact["evidence"] = quotes("point", points)
    if banned and verdict.claims.misconceptions is not None:
        artifact["misconceptions"] = quotes("misconception", banned)
    if verdict.claims.rationale is not None:
        artifact["rationale"] = verdict.claims.rationale
    return artifact
