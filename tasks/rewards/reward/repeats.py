"""Which criteria are worth another reply of the judge, and what two replies come to.

The doubt about a criterion moves the reward by what depends on it: with verdict 1 in place of 0 by a slope, and so by
slope² · v, where v is the variance of its local score. Another reply takes about half of that away, whatever the
criterion, so the doubts that weigh most are asked about first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from rubricflow.tasks.core.contracts.settings.reward import Aggregation, Reward
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import Batch

PLAIN_DOUBT = 3 / 16
"""Variance of a verdict that came without a probability: half a verdict of each kind is added to the one that was seen,
so that its probability is 3/4 or 1/4."""


def weights_of_doubts(batch: Batch, aggregation: Aggregation, settings: Reward) -> Floats:
    """(Σk,) the part of the reward's variance that settling a criterion would take away; 0 in responses of which a
    criterion is unscored."""
    pay = partial(aggregate, aggregation=aggregation, threshold=settings.threshold, inference=settings.inference)
    doubts = np.where(np.isnan(batch.variance), PLAIN_DOUBT, batch.variance)
    weights = np.zeros(len(batch.local))
    sizes = np.diff(batch.start)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        cells = batch.start[rows] + place
        met, missed = (pay(_settled(batch, cells, verdict)).reward[rows] for verdict in (1.0, 0.0))
        weights[cells] = np.nan_to_num((met - missed) ** 2 * doubts[cells])
    return weights


def _settled(batch: Batch, cells: Ints, verdict: float) -> Batch:
    """The batch with this verdict at some places."""
    local, decided = batch.local.copy(), batch.decided.copy()
    local[cells] = decided[cells] = verdict
    return replace(batch, local=local, decided=decided)


def averaged(batch: Batch, again: Batch, rows: Ints) -> Batch:
    """The batch with the mean of two judgings of some of its responses, where both have a score.

    again: the second judging of the responses `rows`, in that order. The variance of a mean share is that of drawing
    one of the two replies and then a level: that they differ adds to it.
    """
    cells = np.concatenate([np.arange(batch.start[row], batch.start[row + 1]) for row in rows])
    both = batch.scored[cells] & again.scored
    cells, second = cells[both], np.flatnonzero(both)
    local, decided, variance = batch.local.copy(), batch.decided.copy(), batch.variance.copy()
    squares = (variance[cells] + local[cells] ** 2 + again.variance[second] + again.local[second] ** 2) / 2
    local[cells] = (local[cells] + again.local[second]) / 2
    decided[cells] = (decided[cells] + again.decided[second]) / 2
    variance[cells] = np.clip(squares - local[cells] ** 2, 0.0, local[cells] * (1.0 - local[cells]))
    return replace(batch, local=local, decided=decided, variance=variance)
