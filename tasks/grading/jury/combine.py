"""Jurors' gradings and judgments of a response as those of one rater.

A juror that was asked several times counts once, by the mean of its samples. Jurors that gave no score have no part in
it; where fewer than half gave one there is none. A decision is credited only with a quote that holds, given by a juror
who credits as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, Combine
from rubricflow.tasks.core.stats.arrays import Floats

Row = dict[str, Any]
JUROR = "juror."
"""How signals begin that are a juror's score, as a share of the scale."""


@dataclass(frozen=True, eq=False)
class Rule:
    """One way to make one score of J jurors' scores. Scores are shares of their scale, 0 .. 1.

    weights: (J,), >= 0, of sum 1; shift, factor: (J,), by which each juror's scores are put onto a common scale first,
    shift + factor * score.
    """

    name: Combine
    weights: Floats
    shift: Floats
    factor: Floats

    def scores(self, shares: Floats) -> Floats:
        """(n,), clipped to 0 .. 1, of jurors' scores, (n, J), NaN where a juror gave none.

        NaN where fewer than half of the weight is of jurors that gave a score. The median of an even number is the mean
        of the middle two; the score that most give is taken for majority, and of several such their mean.
        """
        given = np.where(np.isnan(shares), 0.0, self.weights)
        total = given.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            common = self.shift + self.factor * shares
            if self.name in ("median", "majority"):
                middle = _weighted_median if self.name == "median" else _weighted_mode
                found = np.array([middle(row, weight) for row, weight in zip(common, given, strict=True)])
            else:
                found = (np.where(given > 0, common, 0.0) * given).sum(axis=1) / total
        return np.where(total >= 0.5 - 1e-9, np.clip(found, 0.0, 1.0), np.nan)


def plain(name: Combine, weights: ArrayLike) -> Rule:
    """The rule of jurors whose scores are on a common scale already."""
    of = np.asarray(weights, dtype=np.float64)
    return Rule(name, of / of.sum(), np.zeros(len(of)), np.ones(len(of)))


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(np.where(weights > 0, values, np.inf), kind="stable")
    reached = np.cumsum(weights[order])
    if not reached[-1]:
        return np.nan
    half = reached[-1] / 2
    low = values[order][np.searchsorted(reached, half - 1e-12)]
    high = values[order][min(np.searchsorted(reached, half + 1e-12), int((weights > 0).sum()) - 1)]
    return float((low + high) / 2)


def _weighted_mode(values: Floats, weights: Floats) -> float:
    votes = Counter[float]()
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        if weight > 0:
            votes[round(value, 9)] += weight
    most = max(votes.values(), default=0.0)
    tied = [value for value, weight in votes.items() if weight > most - 1e-9]
    return float(np.mean(tied)) if tied else np.nan


def disagreement(shares: Floats, weights: Floats) -> Floats:
    """(n,) standard deviation of the scores of the jurors that gave one, weighted; 0 where it is a single one."""
    given = np.where(np.isnan(shares), 0.0, weights)
    total = np.maximum(given.sum(axis=1, keepdims=True), 1e-12)
    values = np.nan_to_num(shares)
    mean = (values * given).sum(axis=1, keepdims=True) / total
    spread = np.sqrt((given * (values - mean) ** 2).sum(axis=1) / total[:, 0])
    return np.asarray(spread)


def shares_of(gradings: Sequence[Sequence[Row]], bundle: Bundle) -> list[float]:
    """Each juror's score of a response as a share of the scale, the mean of its samples that have one; NaN without.
    gradings: its rows of each juror."""
    low = bundle.scale.min
    span = bundle.scale.max - bundle.scale.min
    given = [[row["score"] for row in rows if row["score"] is not None] for rows in gradings]
    return [(float(np.mean(scores)) - low) / span if scores else np.nan for scores in given]


def grading(
    of_jurors: Mapping[str, Sequence[Row]], bundle: Bundle, bundle_id: str, rule: Rule, share: float, apart: float
) -> Row:
    """The jury's grading of a response, without its rater: a row of `gradings`.

    of_jurors: juror → its gradings; share: its score under the rule, NaN for none; apart: the jurors' disagreement.
    Traits, signals and confidence are means over the jurors that give them; where jurors are columns of the
    calibration, one that gave no score has a column all the same. Settled without a call is what all that scored it
    settled so. Where there is no score, the reason is that of most jurors.
    """
    every = [row for rows in of_jurors.values() for row in rows]
    first = every[0]
    scored = [row for row in every if row["score"] is not None]
    told = [[row["signals"] for row in rows if row["score"] is not None] for rows in of_jurors.values()]
    signals = _means(list(map(_means, told)))
    traits = _means([_means([row["trait_scores"] for row in rows]) for rows in of_jurors.values()])
    ranges = {trait.id: trait for trait in bundle.traits}
    single = {}
    if rule.name == "columns":
        own = np.array(shares_of(list(of_jurors.values()), bundle))
        # A juror without a score counts as the others together would say it by its own mean.
        own = np.where(np.isnan(own), np.clip(share - rule.shift, 0.0, 1.0), own)
        single = {f"{JUROR}{name}": float(value) for name, value in zip(of_jurors, own, strict=True) if share == share}
    score = None if np.isnan(share) else bundle.scale.min + share * (bundle.scale.max - bundle.scale.min)
    lacking = Counter(row["unscored_reason"] for row in every if row["score"] is None)
    reason = "jurors_missing" if scored else max(sorted(lacking), key=lacking.__getitem__, default=None)
    is_settled = bool(scored) and all(row["status"] == "precheck" for row in scored)
    confidence = [row["confidence"] for row in scored if row["confidence"] is not None]
    return {
        "response_id": first["response_id"],
        "item_id": first["item_id"],
        "sample": 0,
        "bundle_id": bundle_id,
        "score": None if score is None else round(score, 12),
        "low": None,
        "high": None,
        "trait_scores": {name: value for name, value in sorted(traits.items()) if name in ranges},
        "signals": dict(sorted({**signals, **single, "disagreement": apart}.items())),
        "confidence": float(np.mean(confidence)) if confidence else None,
        "status": "unscored" if score is None else "precheck" if is_settled else "scored",
        "unscored_reason": reason if score is None else None,
    }


def judgment(
    criterion: Criterion, bundle: Bundle, bundle_id: str, of_jurors: Sequence[Sequence[Row]], rule: Rule
) -> Row:
    """The jury's decision on a criterion, without its rater: a row of `judgments`.

    of_jurors: each juror's rows about it, none where it was not asked. Each juror has its weight, and of it each of its
    samples a part. The level is the rule's of the levels decided, a half rounded up; by weights alone where the rule
    needs scores of one scale, which levels are.
    """
    rows, weights = [], []
    for weight, own in zip(rule.weights, of_jurors, strict=True):
        decided = [row for row in own if row["decision"] is not None and row["decision"] <= criterion.top]
        rows += decided
        weights += [weight / max(1, len(decided))] * len(decided)
    about = [row for own in of_jurors for row in own]
    made: Row = {
        "response_id": about[0]["response_id"],
        "criterion_id": criterion.id,
        "sample": 0,
        "bundle_id": bundle_id,
        "decision": None,
        "stated": None,
        "unscored_reason": None,
        "level_probabilities": None,
        "evidence": [],
        "verified": None,
        "action": "none",
    }
    given = np.array(weights)
    if given.sum() < 0.5 * sum(rule.weights[j] for j, own in enumerate(of_jurors) if own) - 1e-9 or not given.sum():
        reasons = Counter(row["unscored_reason"] for row in about if row["unscored_reason"])
        return {**made, "unscored_reason": max(sorted(reasons), key=reasons.__getitem__, default="criterion_missing")}
    levels = np.array([row["decision"] for row in rows], dtype=np.float64)
    if rule.name in ("median", "majority"):
        found = (_weighted_median if rule.name == "median" else _weighted_mode)(levels, given)
    else:
        found = float((levels * given).sum() / given.sum())
    stated = int(np.floor(found + 0.5 + 1e-9))
    likely = np.zeros(criterion.top + 1)
    for row, weight in zip(rows, given, strict=True):
        told = row["level_probabilities"]
        if told and len(told) == len(likely):
            likely += weight * np.array(told)
        else:
            likely[row["decision"]] += weight
    is_asked = criterion.evidence not in ("none", "weakly_groundable")
    is_asked = is_asked and PROTOCOLS[bundle.protocol.name].quotes == "criteria"
    level, action = stated, "none"
    while level and not any(_credits(row, level, is_asked) for row in rows):
        level -= 1
    if level < stated:
        action = "demoted"
    supporting = [row for row in rows if level and row["decision"] >= level]
    verified = None if not stated or not is_asked else bool(level) and any(row["verified"] for row in supporting)
    quotes = [quote for row in supporting for quote in row["evidence"] or ()]
    distinct = {(quote["unit_id"], quote["quote"], quote["start"]): quote for quote in quotes}
    return {
        **made,
        "decision": level,
        "stated": stated,
        "level_probabilities": (likely / likely.sum()).tolist(),
        "evidence": list(distinct.values()),
        "verified": verified,
        "action": "counted" if verified is False and level else action,
    }


def _credits(row: Row, level: int, is_asked: bool) -> bool:
    """Whether a juror's decision supports a level: by a quote that holds, or as its protocol counts it without."""
    return row["decision"] >= level and (not is_asked or bool(row["verified"]) or row["action"] == "counted")


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Key → the mean of its values over the rows that have it."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}
