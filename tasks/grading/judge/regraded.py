"""A grading as it is when a person sets levels of it: the same formula and the same features as the judge's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.grading.judge.score import conflicts, level_signals, score

_OF_LEVELS = ("criterion.", "mean.")


def score_follows(bundle: Bundle) -> bool:
    """Whether the raw score is made of the criteria's levels, and not stated by the judge itself."""
    protocol = bundle.protocol
    if protocol.final_score == "judged":
        return False
    return protocol.final_score == "weighted_points" or all(trait.source == "derived" for trait in bundle.traits)


def regraded(
    bundle: Bundle, grading: Mapping[str, Any], judgments: Sequence[Mapping[str, Any]], levels: Mapping[str, int]
) -> dict[str, Any]:
    """A row of `gradings` with some levels set by a person; without any, the row as it is.

    judgments: the rows of `judgments` of the same rater and sample; levels: criterion → its level. What the judge said
    of the other criteria stays, with the probabilities of their levels; so does what tells how sure it was (confidence
    and tie: a person's level halfway between two scores is no doubt of the judge's), and that it was not asked at all.
    ContractError for a level that the bundle does not have.
    """
    if not levels:
        return dict(grading)
    decided = {row["criterion_id"]: row["decision"] for row in judgments} | dict(levels)
    traits = {trait.id for trait in bundle.traits if trait.source == "judged"}
    stated = {name: value for name, value in grading["trait_scores"].items() if name in traits}
    scored = score(bundle, decided, stated)
    features = level_signals(bundle, decided, _chances(bundle, judgments, levels))
    others = {name: value for name, value in grading["signals"].items() if _stays(name)}
    signals = {"tie": float(scored.tie), **others, **features, **conflicts(bundle, decided)}
    settled = "precheck" if grading["status"] == "precheck" else "scored"
    return {
        **grading,
        "score": scored.score,
        "low": scored.low,
        "high": scored.high,
        "trait_scores": scored.traits,
        "signals": dict(sorted(signals.items())),
        "status": "unscored" if scored.score is None else settled,
        "unscored_reason": scored.reason,
    }


def _stays(signal: str) -> bool:
    return signal != "conflicts" and not signal.startswith(_OF_LEVELS)


def _chances(
    bundle: Bundle, judgments: Sequence[Mapping[str, Any]], levels: Mapping[str, int]
) -> dict[str, Sequence[float]]:
    """The probabilities of the levels that nobody set. Where criteria are points, levels count as they are."""
    if PROTOCOLS[bundle.protocol.name].shape == "points":
        return {}
    return {
        row["criterion_id"]: row["level_probabilities"]
        for row in judgments
        if row["criterion_id"] not in levels and row["decision"] == row["stated"] and row["level_probabilities"]
    }
