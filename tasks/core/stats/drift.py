"""Whether values that keep coming are like earlier ones, looked at as often as one likes.

Each new value is ranked among all before it of its stratum. While nothing has changed these ranks are independent and
even, whatever the values' distribution (Vovk 2021, testing exchangeability online). Bets on ranks that are too high,
too low, too far out or too near the middle then win no more than chance, and by Ville's inequality they ever make 1 / a
of 1 with probability at most a. Values that hang together in time are first merged to blocks that do not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import ceil, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import f_oneway, t

from rubricflow.tasks.core.stats.arrays import Floats, welch

POWERS = (0.3, 0.6, 0.85)
"""Bets of density k p^(k - 1) on ranks p: from on far ones only to on all that lean to one side."""
FEWEST_BLOCKS = 20
DOUBT = 0.1
"""Chance below which logs are taken to differ from each other."""


class Values(NamedTuple):
    """One channel in one log, in the log's order; all of length n."""

    values: Floats
    strata: Sequence[Hashable]
    """What values are compared within: a case that comes again, its class; one and the same where there is none."""


class DriftEvidence(NamedTuple):
    """Against a channel being as it was."""

    log_peak: float
    """Natural logarithm of the highest that bets against that ever made of 1: above log(1 / a) with probability at most
    a if nothing changed."""
    after: int | None
    """Values of the new logs up to the first crossing of `bar`; None without one."""


def evidence(
    old: Sequence[Values], new: Sequence[Values], bar: float, seed: int = 0, is_single: bool = False
) -> DriftEvidence:
    """Bets that the values of `new`, log by log, are not as those of `old` and of each other.

    bar: the logarithm that an alarm needs. seed: breaks ties of equal values, which must not depend on them. Ranks
    of strata that were never seen say nothing and are passed over. is_single: no log will follow, so that a value equal
    to the only one before it is passed over, too, in place of being ranked by chance. Capital is kept back for changes
    that begin later: 1 / (k + 2) of what is left at each log.
    """
    level, whole = _level(old)
    block = block_length([_apart(part, level, whole) for part in old])
    sizes = [len(part.values) for part in new]
    if block != 1:
        old, new = ([_merged(_apart(part, level, whole), block) for part in logs] for logs in (old, new))
    past = _by_stratum(old)
    for seen in past.values():
        seen.sort()
    chance = np.random.default_rng(seed)
    capital = np.full(4 * len(POWERS), -np.inf)
    left, highest, after = 0.0, 0.0, None
    for look, part in enumerate(new):
        capital = np.logaddexp(capital, left - log(look + 2) - log(len(capital)))
        left += log((look + 1) / (look + 2))
        path = capital + np.cumsum(_log_bets(*_ranks(part, past, chance.random(len(part.values)), is_single)), axis=0)
        if len(path):
            totals = np.logaddexp(logsumexp(path, axis=1), left)
            if after is None and (totals >= bar).any():
                crossed = int(np.argmax(totals >= bar)) + 1
                after = sum(sizes[:look]) + ceil(sizes[look] * crossed / len(path))
            capital, highest = path[-1], max(highest, float(totals.max()))
    return DriftEvidence(highest, after)


def _ranks(part: Values, past: dict[Hashable, list[float]], chance: Floats, is_single: bool) -> tuple[Floats, Floats]:
    """(values above each one, values there with it) in its stratum until then; (0, 1) where that says nothing."""
    ranks = np.zeros((2, len(part.values)))
    ranks[1] = 1.0
    for row, (value, stratum, tie) in enumerate(zip(part.values.tolist(), part.strata, chance.tolist(), strict=True)):
        seen = past.setdefault(stratum, [])
        above = len(seen) - bisect_right(seen, value)
        below = bisect_left(seen, value)
        equal = len(seen) - above - below
        if seen and not (is_single and len(seen) == 1 and equal):
            ranks[:, row] = above + int(tie * (equal + 1)), len(seen) + 1
        insort(seen, value)
    return ranks[0], ranks[1]


def _log_bets(ranks: Floats, sizes: Floats) -> Floats:
    """(n, bets): logarithms of the bets' mean over each rank's slot of 0 .. 1; every row is 0 in expectation of its exp
    less 1."""
    low = ranks / sizes
    high = (ranks + 1) / sizes
    width, columns = high - low, []
    for power in POWERS:
        up = high**power - low**power
        down = (1 - low) ** power - (1 - high) ** power
        # Distance from the nearer end, and from the middle: 0 .. 1, folded at a half.
        folded = np.abs(_folded(high, power) - _folded(low, power))
        inner = np.abs(_inner(high, power) - _inner(low, power))
        columns += [up, down, folded, inner]
    return np.asarray(np.log(np.stack(columns, axis=1) / width[:, None]))


def _folded(p: Floats, power: float) -> Floats:
    """The distribution function of bets on both ends."""
    return np.where(p <= 0.5, (2 * np.minimum(p, 0.5)) ** power / 2, 1 - (2 * np.minimum(1 - p, 0.5)) ** power / 2)


def _inner(p: Floats, power: float) -> Floats:
    """That of bets on the middle."""
    return np.asarray(0.5 + np.sign(p - 0.5) * np.abs(2 * p - 1) ** power / 2)


def block_length(logs: Sequence[Floats]) -> int:
    """How many values of mean 0 in a row hang together: 0, all of a log, where logs differ by more than chance; else
    twice the shortest power of 2 whose block means show no correlation with the next beyond chance, 1 where single
    values show none. At least FEWEST_BLOCKS blocks are left, and what is shown is at most what these can show."""
    values = np.concatenate([*logs, np.zeros(0)])
    block = 1
    several = [log for log in logs if len(log) > 1]
    if len(several) > 1 and np.ptp(values) > 0 and f_oneway(*several).pvalue < DOUBT:
        return 0
    while len(values) // block >= FEWEST_BLOCKS:
        means = values[: len(values) // block * block].reshape(-1, block).mean(axis=1)
        spread = float(means @ means)
        if spread == 0 or float(means[1:] @ means[:-1]) / spread < 2 / sqrt(len(means)):
            return block if block == 1 else min(2 * block, max(1, len(values) // FEWEST_BLOCKS))
        block *= 2
    return max(1, len(values) // FEWEST_BLOCKS)


def _level(logs: Iterable[Values]) -> tuple[dict[Hashable, float], float]:
    """Stratum → its mean, and the mean of all."""
    means = {stratum: float(np.mean(of)) for stratum, of in _by_stratum(logs).items()}
    return means, float(np.mean(list(means.values()))) if means else 0.0


def _apart(part: Values, level: Mapping[Hashable, float], whole: float) -> Floats:
    """Values less what their strata were before."""
    return np.asarray(part.values - np.array([level.get(stratum, whole) for stratum in part.strata]))


def _merged(apart: Floats, block: int) -> Values:
    """Means of blocks; a log gives one at least."""
    parts = np.array_split(apart, max(1, len(apart) // block if block else 1)) if len(apart) else []
    return Values(np.array([float(part.mean()) for part in parts]), [None] * len(parts))


class MeanChange(NamedTuple):
    """How far a channel moved."""

    old: float
    new: float
    difference: float
    low: float | None
    """95% interval of the difference, as if looked at once; None with fewer than two of either."""
    high: float | None
    n_old: int
    n_new: int
    since: int
    """Number of the first new log that is like the last ones rather than those before."""


def change(old: Sequence[Values], new: Sequence[Values]) -> MeanChange:
    """Of the new logs from the one on that parts them best from what was before; paired where strata are single cases
    that both have."""
    sums = [(len(part.values), part.values.sum()) for part in (*old, *new)]
    n, total = np.cumsum(np.array(sums, dtype=float), axis=0).T
    first = len(old)
    before = np.arange(first - 1, len(sums) - 1)
    after = n[-1] - n[first - 1 : -1]
    with np.errstate(all="ignore"):
        apart = (total[-1] - total[before]) / after - total[before] / n[before]
        z = np.nan_to_num(np.abs(apart) * np.sqrt(after * n[before] / n[-1]))
    since = int(np.argmax(z)) if len(z) else 0
    earlier = [*old, *new[:since]]
    later = new[since:]
    a, b = (np.concatenate([part.values for part in logs]) for logs in (earlier, later))
    mean_a, mean_b = (float(np.mean(of)) if len(of) else float("nan") for of in (a, b))
    # Of pairs: both sides of a case, by its mean.
    sides = [_by_stratum(logs) for logs in (earlier, later)]
    both = [case for case in sides[1] if case in sides[0]]
    if len(both) > 1 and all(len(side) * 2 > len(of) for side, of in zip(sides, (a, b), strict=True)):
        gaps = np.array([np.mean(sides[1][case]) - np.mean(sides[0][case]) for case in both])
        value = float(gaps.mean())
        error = float(gaps.std(ddof=1)) / sqrt(len(gaps))
        freedom = len(gaps) - 1.0
    elif min(len(a), len(b)) > 1:
        value, (error, freedom) = mean_b - mean_a, welch(a, b)
    else:
        return MeanChange(mean_a, mean_b, mean_b - mean_a, None, None, len(a), len(b), since)
    half = float(t.ppf(0.975, freedom)) * error
    return MeanChange(mean_a, mean_b, value, value - half, value + half, len(a), len(b), since)


def _by_stratum(logs: Iterable[Values]) -> dict[Hashable, list[float]]:
    values: dict[Hashable, list[float]] = {}
    for part in logs:
        for value, stratum in zip(part.values.tolist(), part.strata, strict=True):
            values.setdefault(stratum, []).append(value)
    return values
