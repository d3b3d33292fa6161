"""What each response of a batch is worth flat and by its dependencies, side by side from one judging."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.graph import Relation
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.rewards.reward.aggregate import Aggregated
from rubricflow.tasks.rewards.reward.compiled import Batch
from rubricflow.tasks.rewards.reward.leakage import RELATIONS, Cases, edge_cases


class CriterionShares(NamedTuple):
    """How far a criterion counts, in [0, 1]; None where it is unscored, or hangs on what is."""

    local: float | None
    licensed: float | None


class Appraisal(NamedTuple):
    """One response."""

    flat: float | None
    gear: float | None
    false_credit: float | None
    """Credit that the flat sum pays and the dependencies do not, as a share of the rubric's mass: at least 0, and
    penalties are no part of it. None where there is no reward."""
    shares: dict[str, CriterionShares]
    leaked: dict[Relation, float]
    """What the flat sum pays for supported children of an unsupported parent (Eq. 15), by relation."""
    supported: int
    """Dependencies with a supported child."""
    violated: int
    """Of these, those with an unsupported parent."""


def appraisals(batch: Batch, flat: Aggregated, gear: Aggregated, threshold: float) -> list[Appraisal]:
    """Every response of a batch, in order. flat, gear: its rewards by these two aggregations."""
    local = np.where(batch.scored, batch.local, np.nan)
    unlicensed = _credit(batch, np.maximum(0.0, np.nan_to_num(local) - np.nan_to_num(gear.marginal)))
    cases = edge_cases(batch, flat.marginal, threshold)
    leaked = _leaked(cases)
    supported = np.bincount(cases.response, minlength=len(batch.rubric_index)).tolist()
    violated = np.bincount(cases.response[cases.violated], minlength=len(batch.rubric_index)).tolist()
    local_shares, licensed_shares = _numbers(local), _numbers(gear.marginal)
    flats, gears = _numbers(flat.reward), _numbers(gear.reward)
    falses = _numbers(np.where(np.isnan(flat.reward + gear.reward), np.nan, unlicensed))
    worth = []
    for response, rubric in enumerate(batch.rubric_index.tolist()):
        first = int(batch.start[response])
        names = batch.compiled[rubric].criteria
        end = first + len(names)
        of_criteria = map(CriterionShares, local_shares[first:end], licensed_shares[first:end])
        shares = dict(zip(names, of_criteria, strict=True))
        figures = flats[response], gears[response], falses[response]
        worth.append(Appraisal(*figures, shares, leaked[response], supported[response], violated[response]))
    return worth


def _credit(batch: Batch, shares: Floats) -> Floats:
    """(n,) what these shares of the criteria with positive weights earn, as a share of the mass."""
    weights = np.concatenate([np.maximum(0.0, compiled.weights) / compiled.mass for compiled in batch.compiled])
    sizes = np.diff(batch.start)
    begins = np.cumsum([0, *(len(compiled.weights) for compiled in batch.compiled)])[batch.rubric_index]
    places = np.arange(len(shares)) + np.repeat(begins - batch.start[:-1], sizes)
    earned = np.concatenate([[0.0], np.cumsum(weights[places] * shares)])
    credit: Floats = earned[batch.start[1:]] - earned[batch.start[:-1]]
    return credit


def _leaked(cases: Cases) -> defaultdict[int, dict[Relation, float]]:
    """Response → relation → what leaks there."""
    leaked: defaultdict[int, dict[Relation, float]] = defaultdict(dict)
    rows = zip(cases.response.tolist(), cases.relation.tolist(), cases.leaked.tolist(), strict=True)
    for response, relation, share in rows:
        if share == share:  # NaN where the dependency is satisfied
            name = RELATIONS[relation]
            leaked[response][name] = leaked[response].get(name, 0.0) + share
    return leaked


def _numbers(values: Floats) -> list[float | None]:
    """NaN as None."""
    return [None if value != value else value for value in values.tolist()]
