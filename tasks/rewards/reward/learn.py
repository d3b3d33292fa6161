"""Retention factors of single edges from human scores: what GEAR leaves to future work.

Per rubric, the factor λ_e of each edge, one for all responses, and a line from reward to score minimise

    mean((y − a − b·R(λ))²) / var(y) + α·Σ_e (λ_e − λ⁰_e)²,    0 ≤ λ_e ≤ 1, b ≥ 0

over the responses with a human score y. R is the reward by the topological update (Eqs. 12 and 14), λ⁰_e the relation's
factor and α the strength of the pull to it. α is the one with the least error on folds left out; an infinite one, which
leaves the relations' factors as they are, is among those tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import folds_of
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, Shorts

STRENGTHS = (math.inf, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001)
"""Values of α tried; with 0.01, moving one factor from end to end costs a hundredth of the scores' variance."""
SPARE = 3
"""Labelled responses needed beyond one for each edge: two for the line, and one to err."""
SAME = 1e-9
"""Errors this near are equal, and the stronger pull is taken."""


@dataclass(frozen=True)
class Learned:
    """What was learned about one rubric."""

    rubric_id: str
    n: int
    """Responses with a human score and every criterion scored."""
    factors: Mapping[tuple[str, str], float] | None = None
    """(parent, child) → its retention factor before η; None where nothing could be fitted. An edge that the responses
    say nothing about keeps the relation's."""
    note: str | None = None
    """Why nothing was fitted, or what to know about what was."""


def learn(batch: Batch, scores: Floats, clusters: NDArray[Any], folds: int = 5, seed: int = 0) -> list[Learned]:
    """The factors of every rubric of a batch, in its order.

    The batch is compiled at η = 1 with the relations' factors. scores: (n,) finite human scores, NaN where there is
    none; clusters: (n,) ids of what stays together in a fold, such as authors; folds: at least 2. Responses with an
    unscored criterion are left out.
    """
    learned = []
    for rubric, compiled in enumerate(batch.compiled):
        rows, local = complete(batch, rubric)
        labelled = ~np.isnan(scores[rows])
        rows = rows[labelled]
        fold = folds_of(clusters[rows], folds, seed)
        learned.append(_learn_rubric(compiled, local[:, labelled], scores[rows], fold, folds))
    return learned


PRIOR = 4.0
"""Marked cases that the relation's factor counts as, and that a relation's own share counts as for an edge of it."""


def paying(batch: Batch, marks: Floats, threshold: float) -> list[tuple[Floats, Ints]]:
    """For every rubric the factor of each edge (e,), and the cases behind it (e,): how far credit of the child where
    the parent fails is right by people's marks.

    A case is a response in which the child's own score reaches the threshold, its parent's does not, and a person
    marked the child. marks: (Σk,) people's shares of the batch's criteria, NaN where there is none. Beta-binomial: the
    share that is right by relation over all rubrics is shrunk to the relation's factor, and that of an edge to its
    relation's, each by PRIOR cases. Where it is right more often than not the edge pays what it should not withhold:
    its factor is 1.
    """
    found = list[tuple[Floats, Ints]]()
    pooled = dict[str, Floats]()
    for rubric, compiled in enumerate(batch.compiled):
        cells = batch.start[:-1][batch.rubric_index == rubric, None] + np.arange(len(compiled.criteria))
        own = np.where(batch.scored[cells], batch.local[cells], np.nan)
        case = (own[:, compiled.child] >= threshold) & (own[:, compiled.parent] < threshold)
        mark = marks[cells][:, compiled.child]
        case &= ~np.isnan(mark)
        right = np.where(case, mark, 0.0).sum(axis=0)
        found.append((right, case.sum(axis=0)))
        for relation, factor, of_edge, n in zip(
            compiled.relation, compiled.retention, right, found[-1][1], strict=True
        ):
            pooled[relation] = pooled.get(relation, PRIOR * np.array([factor, 1.0])) + np.array([of_edge, n])
    learned = []
    for compiled, (right, cases) in zip(batch.compiled, found, strict=True):
        share = np.array([pooled[relation][0] / pooled[relation][1] for relation in compiled.relation])
        factor = (right + PRIOR * share) / (cases + PRIOR)
        learned.append((np.where(factor > 0.5, 1.0, factor), cases))
    return learned


def complete(batch: Batch, rubric: int) -> tuple[Shorts, Floats]:
    """The responses under one rubric of a batch, by its place, that have all criteria scored: their places (m,) and
    their local scores (k, m)."""
    rows = np.flatnonzero(batch.rubric_index == rubric)
    cells = batch.start[rows] + np.arange(len(batch.compiled[rubric].criteria))[:, None]
    is_complete = batch.scored[cells].all(axis=0)
    return rows[is_complete].astype(np.int32), batch.local[cells[:, is_complete]]


def line(reward: Floats, scores: Floats) -> tuple[float, float]:
    """(a, b) of the least-squares line from rewards to scores, both (n,), among those with b ≥ 0."""
    spread = float(reward.var())
    slope = max(0.0, float(np.mean((reward - reward.mean()) * scores)) / spread) if spread > 0 else 0.0
    return float(scores.mean() - slope * reward.mean()), slope


def rewards_and_slopes(compiled: CompiledGraph, local: Floats, factors: Floats) -> tuple[Floats, Floats]:
    """Rewards (n,) by the topological update with the given factors (e,), and their derivatives by each of them (e, n).

    local: (k, n) local scores. Differentiated by hand, edges in reverse: a child's share is a product over its edges.
    """
    share = local.copy()
    retained = np.empty((len(factors), local.shape[1]))
    for edge, (parent, child) in enumerate(zip(compiled.parent, compiled.child, strict=True)):
        retained[edge] = factors[edge] + share[parent] * (1 - factors[edge])
        share[child] *= retained[edge]
    pull = np.repeat((compiled.weights / compiled.mass)[:, None], local.shape[1], axis=1)
    slopes = np.empty_like(retained)
    starts = sorted(np.unique(compiled.child, return_index=True)[1].tolist())
    for first, end in reversed(list(itertools.pairwise([*starts, len(factors)]))):
        child = compiled.child[first]
        parents = compiled.parent[first:end]
        # Each row's product of all the other rows, (d, n); division would fail where one is 0.
        rows = retained[first:end]
        ones = np.ones((1, rows.shape[1]))
        before = np.cumprod(np.vstack([ones, rows[:-1]]), axis=0)
        after = np.cumprod(np.vstack([ones, rows[:0:-1]]), axis=0)[::-1]
        through = pull[child] * local[child] * np.asarray(before * after)
        slopes[first:end] = through * (1 - share[parents])
        pull[parents] += through * (1 - factors[first:end])[:, None]
    return compiled.weights @ share / compiled.mass, slopes


def _learn_rubric(compiled: CompiledGraph, local: Floats, scores: Floats, fold: Ints, folds: int) -> Learned:
    """One rubric's factors; local (k, n), scores and fold (n,)."""
    n = len(scores)
    edges = len(compiled.retention)
    if n < edges + SPARE:
        return Learned(compiled.rubric_id, n, note=f"{n} labelled responses for {edges} edges; needs {edges + SPARE}")
    if len(np.unique(fold)) < folds:
        return Learned(compiled.rubric_id, n, note=f"too few clusters for {folds} folds")
    if np.ptp(scores) == 0:
        return Learned(compiled.rubric_id, n, note=f"every human score is {scores[0]:g}")
    standard = (scores - scores.mean()) / scores.std()
    strengths = STRENGTHS if edges > _silent(compiled, local).sum() else (math.inf,)
    errors = [error_left_out(compiled, local, standard, fold, strength) for strength in strengths]
    strength = next(tried for tried, error in zip(strengths, errors, strict=True) if error <= min(errors) + SAME)
    factors = _fit(compiled, local, standard, strength)
    rises = line(rewards_and_slopes(compiled, local, factors)[0], standard)[1] > 0
    note = None if rises else "the human score does not rise with the reward"
    return Learned(compiled.rubric_id, n, dict(zip(compiled.edges, factors.tolist(), strict=True)), note)


def _silent(compiled: CompiledGraph, local: Floats) -> Bools:
    """Edges whose factor moves no reward, or all of them alike, (e,): mostly because the parent is never unsupported
    where the child is supported. Looked for halfway, where no other factor of 0 hides it."""
    slopes = rewards_and_slopes(compiled, local, np.full(len(compiled.retention), 0.5))[1]
    return np.asarray(np.ptp(slopes, axis=1) < SAME)


def error_left_out(compiled: CompiledGraph, local: Floats, scores: Floats, fold: Ints, strength: float) -> float:
    """Mean squared error of every fold by a fit to the others with a pull; local (k, n), scores and fold (n,)."""
    error = 0.0
    for out in (fold == number for number in np.unique(fold)):
        factors = _fit(compiled, local[:, ~out], scores[~out], strength)
        intercept, slope = line(rewards_and_slopes(compiled, local[:, ~out], factors)[0], scores[~out])
        reward = rewards_and_slopes(compiled, local[:, out], factors)[0]
        error += float(np.sum((scores[out] - intercept - slope * reward) ** 2))
    return error / len(scores)


def _fit(compiled: CompiledGraph, local: Floats, scores: Floats, strength: float) -> Floats:
    """Factors (e,) in [0, 1] at the least loss, by L-BFGS-B from the relations' factors."""
    prior = compiled.retention
    if math.isinf(strength) or not len(prior):
        return prior

    def loss(factors: Floats) -> tuple[float, Floats]:
        # The line is the best one for these factors, so that moving along it changes nothing to first order.
        reward, slopes = rewards_and_slopes(compiled, local, factors)
        intercept, slope = line(reward, scores)
        missed = intercept + slope * reward - scores
        value = np.mean(missed**2) + strength * np.sum((factors - prior) ** 2)
        return float(value), 2 * slope * (slopes @ missed) / len(scores) + 2 * strength * (factors - prior)

    silent = _silent(compiled, local)
    bounds = [(0.0, 1.0)] * len(prior)
    for edge in np.flatnonzero(silent).tolist():
        bounds[edge] = (float(prior[edge]), float(prior[edge]))
    minimum = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(minimum.x, dtype=np.float64)
