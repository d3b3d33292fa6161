"""Up to which risk each step of a cascade lets an answer stop, so that a promise holds for all that go out together.

An answer stops at the first step whose risk of it is at most the step's limit; what stops nowhere goes to people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import poisson

from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.promise import (
    UNLIKELY,
    effective,
    fewest_without_error,
    likeness,
    tolerated,
    upper_bound,
)

POLICIES = 4_000
"""About as many combinations of limits are looked at."""
_CELLS = 20_000_000
"""Combinations times answers that are held at a time."""
NEVER = -1.0
"""The limit of a step at which nothing stops, and which therefore is not asked; the first one always is."""
CHEAPER = 0.1
"""Share of the cost that each test of the sequence must save: every test may be the one that ends it."""
LEAST_CHANCE = 0.2
"""Limits that by the risks have a smaller chance to pass are not tried (both: tests/studies/cascades.py)."""


class StepRisks(NamedTuple):
    """Labelled answers at each of K steps, none of whose scores has seen the answer's own label.

    risk: (n, K), 0 .. 1; wrong: (n, K), whether the score of that step is; open: (n, K), whether that score may go out
    but for its risk; cluster: (n,) whose answers may be alike; constant: (n,) share of the labels of each answer's item
    that the best constant score misses, None where every promise asks something.
    """

    risk: Floats
    wrong: Bools
    open: Bools
    cluster: npt.NDArray[np.str_]
    constant: Floats | None = None


class CascadeTerms(NamedTuple):
    """What a cascade promises, and what its answers cost.

    costs: (K,) of an answer at each step; by_people: of one that is left to people, in the same unit, dearer than any
    step; target, confidence: at most this share of what goes out is wrong, in so many of such studies; unlikely: as in
    `promise`; most: what the steps may cost an answer in the mean, without people.
    """

    costs: Sequence[float]
    by_people: float
    target: float
    confidence: float
    unlikely: float = UNLIKELY
    most: float = np.inf


class ChosenLimits(NamedTuple):
    """What a cascade lets out, and at what cost.

    limits: largest risk that stops at each step, NEVER where none does; released, wrong, worth, upper: as in `Promise`,
    of the labelled answers that stop anywhere; asking, cost: of an answer in the mean, without and with people.
    """

    limits: tuple[float, ...]
    released: int
    wrong: int
    worth: float
    upper: float
    asking: float
    cost: float


def stopping(risk: Floats, is_open: Bools, limits: Sequence[float]) -> Ints:
    """Step at which each answer stops, (n,), K where at none. risk, is_open: (n, K); limits: (K,)."""
    stops = is_open & (risk <= np.asarray(limits))
    return np.asarray(np.where(stops.any(axis=1), stops.argmax(axis=1), risk.shape[1]), dtype=np.int64)


def least_cost(rows: StepRisks, terms: CascadeTerms) -> ChosenLimits | None:
    """The limits of least cost among those by which the promise is kept; None where no limits are shown to keep it.

    Combinations of limits are put on a path that knows risks, costs and clusters, not which scores are wrong: from the
    one that by the risks is likeliest to pass, on over those that are the cheapest of all that are as likely. Each is
    tested at the full level, up to the first that fails: a fixed sequence (Bauer 1991), as in Learn then Test
    (Angelopoulos et al. 2021), so that with the stated confidence none that passes breaks the promise, and the cheapest
    of them is taken. The test is that of `promise`, of all that the cascade lets out together, so that it does not
    matter how the errors of its steps hang together.
    """
    return next(least_costs(rows, _once(rows), terms))


def least_costs(rows: StepRisks, times: npt.NDArray[np.float32], terms: CascadeTerms) -> Iterator[ChosenLimits | None]:
    """`least_cost` of each of D samples of the clusters, of the limits that are tried for all rows.

    times: (n, D), how often each row, with all of its cluster, is in a sample, each time as a cluster of its own.
    """
    policies = _grid(rows)
    samples = zip(*(column.T for column in _tried_often(rows, policies, terms, times)), strict=True)
    for tried, size in zip(map(_Tried._make, samples), times.sum(axis=0), strict=True):
        enough = size >= fewest_without_error(terms.target, terms.confidence)
        at = _last_passed(tried, *_chance(rows, tried, terms), tried.cost) if enough else None
        yield None if at is None else _limits(policies, tried, at, terms.confidence)


def _last_passed(tried: _Tried, allowed: Ints, chance: Floats, costs: Floats) -> int | None:
    """The last combination of the path that passes, as do all before it. allowed, chance: as of `_chance`; costs: (m,),
    what is known of them without the labels."""
    last, cost = None, np.inf
    for at in np.lexsort((costs, -chance)):  # the likeliest first, of those the cheapest
        if chance[at] < LEAST_CHANCE and (cost < np.inf or not chance[at]):
            break
        if costs[at] <= (1 - CHEAPER) * cost:
            if tried.wrong[at] > allowed[at]:
                break
            last, cost = int(at), costs[at]
    return last


def foreseen_cost(rows: StepRisks, terms: CascadeTerms) -> float:
    """What an answer costs, people included, under the cheapest limits that by the risks alone are as likely to pass as
    not; of answers that all go to people where there are none. It looks at no label, so that the cascade for which it
    is least may be tested as if it had been named beforehand."""
    tried = _tried(rows, _grid(rows), terms)
    _, chance = _chance(rows, tried, terms)
    return float(np.min(tried.cost[chance >= 0.5], initial=terms.costs[0] + terms.by_people))


def _chance(rows: StepRisks, tried: _Tried, terms: CascadeTerms) -> tuple[Ints, Floats]:
    """Most wrong scores with which each combination of limits passes, and how likely it does by the risks, (m,)."""
    out = np.maximum(tried.released, 1)
    allowed = tolerated(out, tried.worth, terms.target, 1 - terms.confidence)
    if rows.constant is not None:
        allowed = np.minimum(allowed, tolerated(out, tried.worth, tried.constant / out, terms.unlikely))
    chance = np.asarray(poisson.cdf(allowed, tried.expected))
    chance[(allowed < 0) | (tried.released == 0) | (tried.asking > terms.most)] = 0.0
    return allowed, chance


class _Tried(NamedTuple):
    """What each of m combinations of limits does to the labelled answers, (m,) each.

    expected, constant: sums over the released of their risks and of what constants miss; worth: independent answers
    that these are worth; asking, cost: of an answer in the mean, without and with people.
    """

    released: Ints
    wrong: Ints
    expected: Floats
    constant: Floats
    worth: Floats
    asking: Floats
    cost: Floats


def _grid(rows: StepRisks) -> Floats:
    """Combinations of limits, (m, K): of every step as many of its risks, evenly spaced in rank, and NEVER."""
    steps = rows.risk.shape[1]
    size = max(3, int(POLICIES ** (1 / steps)))
    marks = []
    for risk, is_open in zip(rows.risk.T, rows.open.T, strict=True):
        distinct = np.unique(risk[is_open])
        places = np.unique(np.linspace(0, max(len(distinct) - 1, 0), size - 1).astype(int))
        marks.append(np.concatenate([[NEVER], distinct[places[: len(distinct)]]]))
    return np.stack(np.meshgrid(*marks, indexing="ij"), axis=-1).reshape(-1, steps)


def _once(rows: StepRisks) -> npt.NDArray[np.float32]:
    return np.ones((len(rows.risk), 1), np.float32)


def _tried(rows: StepRisks, policies: Floats, terms: CascadeTerms) -> _Tried:
    return _Tried._make(column[:, 0] for column in _tried_often(rows, policies, terms, _once(rows)))


def _tried_often(rows: StepRisks, policies: Floats, terms: CascadeTerms, times: npt.NDArray[np.float32]) -> _Tried:
    """The same in D samples, (m, D) each; times: see `least_costs`."""
    (n, steps), draws = rows.risk.shape, times.shape[1]
    if len(policies) > (size := max(1, _CELLS // n)):
        blocks = [policies[at : at + size] for at in range(0, len(policies), size)]
        parts = [_tried_often(rows, block, terms, times) for block in blocks]
        return _Tried(*map(np.concatenate, zip(*parts, strict=True)))
    left = np.ones((len(policies), n), dtype=np.bool_)
    counted = np.zeros((4, len(policies), draws))
    missed = np.zeros(n) if rows.constant is None else rows.constant
    rest = np.tile(times.sum(axis=0, dtype=np.float64), (len(policies), 1))
    asking = np.zeros((len(policies), draws))
    for step in range(steps):
        is_asked = (policies[:, [step]] >= 0) | (step == 0)
        asking += terms.costs[step] * is_asked * rest
        may_stop = rows.open[:, step]
        stops = left & may_stop & (rows.risk[:, step] <= policies[:, [step]])
        of_row = np.ones(n), rows.wrong[:, step], np.where(may_stop, rows.risk[:, step], 0.0), missed
        columns = np.hstack([times * part[:, None].astype(np.float32) for part in of_row])
        counted += (stops.astype(np.float32) @ columns).reshape(-1, 4, draws).swapaxes(0, 1)
        left &= ~stops
        rest = times.sum(axis=0) - counted[0]
    released = counted[0].round().astype(np.int64)
    names, first, codes = np.unique(rows.cluster, return_index=True, return_inverse=True)
    squares = released
    if len(names) < n:
        by_cluster = (~left).astype(np.float32) @ csr_array((np.ones(n, np.float32), (np.arange(n), codes)))
        squares = (by_cluster**2 @ times[first]).round().astype(np.int64)
    alike = [_most_alike(rows.wrong, codes, column.round().astype(np.int64)) for column in times.T]
    sizes = times.sum(axis=0)
    return _Tried(
        released=released,
        wrong=counted[1].round().astype(np.int64),
        expected=counted[2],
        constant=counted[3],
        worth=effective(np.maximum(released, 1), np.maximum(squares, 1), np.array(alike)),
        asking=asking / sizes,
        cost=(asking + terms.by_people * rest) / sizes,
    )


def _most_alike(wrong: Bools, codes: Ints, times: Ints) -> float:
    """How alike the errors of a cluster are in a sample at the most alike step: what stops is a mixture of all. codes:
    (n,), of clusters."""
    copies = np.arange(times.max(initial=0))
    rows, copy = np.nonzero(copies < times[:, None])
    return max(likeness(bad[rows], codes[rows] * len(copies) + copy) for bad in wrong.T)


def _limits(policies: Floats, tried: _Tried, at: int, confidence: float) -> ChosenLimits:
    released = int(tried.released[at])
    wrong = int(tried.wrong[at])
    worth = float(tried.worth[at])
    upper = upper_bound(wrong * worth / released, worth, confidence)
    limits = tuple(policies[at].tolist())
    return ChosenLimits(limits, released, wrong, worth, upper, float(tried.asking[at]), float(tried.cost[at]))
