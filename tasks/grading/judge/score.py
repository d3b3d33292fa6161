"""Decisions to trait scores and the raw score, by the bundle's formula."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.composite import composed, composition, level_shares, share_of_points
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.llm.request import cached_by_identity

Shares = Mapping[str, float]
"""Criterion → the share of its weight that it counts for, in [0, 1], see `counted`."""


@dataclass(frozen=True)
class Scored:
    """A raw score, or the reason why there is none (with bounds, where the bundle asks for them)."""

    score: float | None
    traits: dict[str, float] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    tie: bool = False
    low: float | None = None
    high: float | None = None
    reason: str | None = None


counted = cached_by_identity(level_shares)
"""Decided criterion → the share of its weight that each of its levels counts for, of a bundle."""


def decided_shares(bundle: Bundle, levels: Mapping[str, int | None]) -> dict[str, float]:
    """The shares of the criteria that are decided. levels: by criterion; None is undecided."""
    worth = counted(bundle)
    return {name: worth[name][level] for name, level in levels.items() if level is not None and name in worth}


def expected_share(worth: Sequence[float], level: int, likely: Sequence[float] | None) -> float:
    """The share that a level counts for or, where levels have probabilities, the expected one. worth: of each level."""
    return sum(map(mul, worth, likely)) if likely else worth[level]


def conflicts(bundle: Bundle, levels: Mapping[str, int | None]) -> dict[str, int]:
    """The signal `conflicts`: the number of pairs that exclude each other and are both decided above level 0; nothing
    where there is none."""
    credited = {name for name, level in levels.items() if level}
    pairs = _composition(bundle).exclusions
    count = sum(not credited.isdisjoint(pair.first) and not credited.isdisjoint(pair.second) for pair in pairs)
    return {"conflicts": count} if count else {}


def whole_shares(bundle: Bundle, shares: Shares) -> Shares:
    """The shares of decided criteria with those of the criteria that are made of sub-points, see `composed`."""
    return composed(_composition(bundle), shares)


@cached_by_identity
def added(bundle: Bundle) -> tuple[Criterion, ...]:
    """The criteria whose shares are added up: those that are no sub-points."""
    return bundle.whole if bundle.composites else bundle.criteria


_composition = cached_by_identity(composition)


def round_half_up(value: float, scale: Scale) -> float:
    """The nearest score of a scale; one exactly between two goes up; outside the scale is clipped."""
    steps = math.floor((value - scale.min) / scale.step + 0.5 + 1e-9)
    return round(scale.min + scale.step * min(scale.levels - 1, max(0, steps)), 12)


def is_off_step(value: float, scale: Scale) -> bool:
    """Whether a value within a scale is none of its scores."""
    return abs(round_half_up(value, scale) - value) > 1e-9


def is_tie(value: float, scale: Scale) -> bool:
    """Whether a value falls exactly between two scores."""
    steps = (value - scale.min) / scale.step
    return abs(steps - math.floor(steps) - 0.5) < 1e-9


def score(bundle: Bundle, levels: Mapping[str, int | None], stated: Mapping[str, float] | None = None) -> Scored:
    """The scores of one response from its levels; a level of None is unscored.

    stated: scores of the traits that the judge scores; the others are derived from the levels. Where the bundle makes
    the score of points alone they are recorded with it.

    Unscored criteria and traits do as the protocol says: no score (`null`), no score but the lowest and highest that
    they allow (`bounds`), or level 0 (`zero`). Where nothing is decided there is no score, whatever the protocol says.
    A higher level of a sub-point moves the score where its own weight points, however deep it lies: a composite's share
    is a sum over the composite's weight, whose sign goes twice into what it adds.
    """
    missing = [c for c in bundle.criteria if levels.get(c.id) is None]
    unscored = bundle.protocol.unscored
    shares = decided_shares(bundle, levels)
    if bundle.judged and bundle.protocol.final_score != "weighted_points":
        return _judged(bundle, shares, stated or {})
    is_whole = not missing or (unscored == "zero" and bool(shares))
    given = shares | {c.id: 0.0 for c in missing} if is_whole else shares
    traits, means, tie = _traits(bundle, given)
    all_traits = {**traits, **(stated or {})}
    if is_whole:
        return Scored(_total(bundle, given), all_traits, means, tie)
    low = high = None
    if unscored == "bounds":
        low = _total(bundle, shares | {c.id: float(c.weight < 0) for c in missing})
        high = _total(bundle, shares | {c.id: float(c.weight > 0) for c in missing})
    return Scored(None, all_traits, means, tie, low=low, high=high, reason="criterion_unscored")


def trait_means(bundle: Bundle, shares: Shares) -> dict[str, float]:
    """Trait → share of its points, for the traits whose criteria are all scored. shares: of decided criteria."""
    means, reached = {}, whole_shares(bundle, shares)
    for trait in bundle.traits:
        criteria = [c for c in added(bundle) if c.trait == trait.id]
        if criteria and all(c.id in reached for c in criteria):
            means[trait.id] = share_of_points(criteria, reached)
    return means


def _traits(bundle: Bundle, shares: Shares) -> tuple[dict[str, float], dict[str, float], bool]:
    means = trait_means(bundle, shares)
    ranges = {trait.id: trait for trait in bundle.traits}
    linear = [(name, onto(mean, ranges[name]), ranges[name]) for name, mean in means.items()]
    traits = {name: round_half_up(value, scale) for name, value, scale in linear}
    return traits, means, any(is_tie(value, scale) for _, value, scale in linear)


def _judged(bundle: Bundle, shares: Shares, stated: Mapping[str, float]) -> Scored:
    """Scores where the judge states traits: only these make the score. One that is missing does as the protocol says of
    what is unscored: no score, bounds from the ends of its range, or its lowest score."""
    derived, means, _ = _traits(bundle, shares)
    scores = {trait.id: float(stated[trait.id]) for trait in bundle.judged if trait.id in stated}
    missing = [trait for trait in bundle.judged if trait.id not in scores]
    others = {name: value for name, value in derived.items() if all(name != trait.id for trait in bundle.judged)}
    lowest = {trait.id: trait.min for trait in missing}
    if missing and (bundle.protocol.unscored != "zero" or not scores):
        low = high = None
        if bundle.protocol.unscored == "bounds":
            highest = {trait.id: trait.max for trait in missing}
            low, high = (round_half_up(_of_traits(bundle, scores | ends), bundle.scale) for ends in (lowest, highest))
        return Scored(None, scores | others, means, low=low, high=high, reason="trait_unscored")
    scores |= lowest
    total = _of_traits(bundle, scores)
    return Scored(round_half_up(total, bundle.scale), scores | others, means, is_tie(total, bundle.scale))


def _of_traits(bundle: Bundle, scores: Mapping[str, float]) -> float:
    """The sum of the traits' scores or the mean of their shares, on the scale before rounding."""
    traits = [trait for trait in bundle.traits if trait.id in scores]
    if bundle.protocol.final_score == "trait_sum":
        return sum(scores[trait.id] for trait in traits)
    reached = [share_of(scores[trait.id], trait) for trait in traits]
    return onto(sum(reached) / len(reached), bundle.scale)


def _total(bundle: Bundle, shares: Shares) -> float:
    """The score of derived traits, or of the points."""
    rule = bundle.protocol.final_score
    if rule == "judged":
        raise ValueError("a judged score is stated, not derived")
    if rule == "weighted_points":
        share = share_of_points(added(bundle), whole_shares(bundle, shares))
        return round_half_up(onto(share, bundle.scale), bundle.scale)
    return round_half_up(_of_traits(bundle, _traits(bundle, shares)[0]), bundle.scale)


def share_of(score: float, scale: Scale) -> float:
    """A score as a share of its scale, 0 at the lowest."""
    return (score - scale.min) / (scale.max - scale.min)


def onto(share: float, scale: Scale) -> float:
    """The place of a share on a scale, not rounded."""
    return scale.min + share * (scale.max - scale.min)


# The calibration features that come from a grading's levels.


def level_signals(
    bundle: Bundle, levels: Mapping[str, int | None], chances: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """`criterion.<id>`, the share of its weight that a criterion's level earns, whether or not its parent counts it,
    and `mean.<trait>`, the share of its points, each in [0, 1]; nothing of what is not decided, unless the protocol
    takes that for level 0.

    levels: by criterion; chances: the probability of each level of a criterion, for those whose expected level counts
    in place of the one decided.
    """
    earned = {criterion.id: criterion.shares for criterion in bundle.criteria}
    shares = dict.fromkeys(earned, 0.0) if bundle.protocol.unscored == "zero" else {}
    counting = dict(shares)
    for name, level in levels.items():
        if level is not None:
            shares[name] = expected_share(earned[name], level, chances.get(name))
            counting[name] = expected_share(counted(bundle)[name], level, chances.get(name))
    signals = {f"criterion.{name}": share for name, share in shares.items()}
    return signals | {f"mean.{name}": mean for name, mean in trait_means(bundle, counting).items()}


# A grading after a person set levels of it, by the same formula and with the same features.


def score_follows(bundle: Bundle) -> bool:
    """Whether the raw score is made of the criteria's levels, and not stated by the judge itself, nor made of jurors'
    scores."""
    protocol = bundle.protocol
    if protocol.final_score == "judged" or protocol.jurors:
        return False
    return protocol.final_score == "weighted_points" or not bundle.judged


def regraded(
    bundle: Bundle, grading: Mapping[str, Any], judgments: Sequence[Mapping[str, Any]], levels: Mapping[str, int | None]
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
    judged = {trait.id for trait in bundle.judged}
    stated = {name: value for name, value in grading["trait_scores"].items() if name in judged}
    scored = score(bundle, decided, stated)
    chances = {}
    if PROTOCOLS[bundle.protocol.name].shape != "points":  # of which levels count as they are
        for row in judgments:
            if row["criterion_id"] not in levels and row["decision"] == row["stated"] and row["level_probabilities"]:
                chances[row["criterion_id"]] = row["level_probabilities"]
    features = level_signals(bundle, decided, chances)
    of_levels = ("criterion.", "mean.")
    kept = [name for name in grading["signals"] if name != "conflicts" and not name.startswith(of_levels)]
    others = {name: grading["signals"][name] for name in kept}
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
