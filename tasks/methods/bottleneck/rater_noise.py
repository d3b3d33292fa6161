"""The noise of each person who marks concepts, and labels that weigh people by it.

The measurement model of Eq. 18, carried over from one grader to several raters r of concept k, on shares of the levels:

    c̃_nkr = z_nk + s_kr + ε,   ε ~ N(0, σ²_kr),   z_nk ~ N(m_k, v_k)

with severity s (positive: lenient) and noise variance σ². It is fitted by expectation-maximisation (Dempster, Laird and
Rubin 1977) with any pattern of missing marks; severities are relative to the mean mark. Levels are whole numbers, z is
not: with two or three levels the normal model is a rough one.

What marks can tell. The difference of two raters shows the sum of their noise. Two who mark together by themselves
cannot be told apart in that; only the spread of their marks could, where a rater who keeps to the middle of the scale
would pass for a precise one. It takes three who mark in pairs all round (an odd cycle), each on `FEWEST` shared
responses at least. Raters without that share one noise variance; one who shares no response with anybody gets that of
all who do, and severity 0. Groups of raters that share no response compare only as far as chance dealt out responses.
Where nobody shares, or marks agree hardly better than by chance, a concept has no estimates but a note.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING

FEWEST = 20
"""Shared responses that a rater needs for a noise variance of their own."""
LEAST = 1e-4
"""Smallest variance, squared shares: one rater's luck must not outweigh everybody else."""
ITERATIONS = 2000
CHANCE = 0.05
"""Reliability of a single mark below which there are no estimates: labels would all be the mean."""
SETTLED = 1e-8
"""Greatest step of a variance, in squared shares, at which the fit ends."""
NOBODY_SHARES = "no response was marked by two persons: their noise cannot be told"
BY_CHANCE = "the marks of different persons agree hardly better than by chance"
ONE_MARK = "all marks are one"
EQUAL = "noise taken as equal where fewer than three persons mark in pairs all round"


class RaterNoise(NamedTuple):
    """Estimates for K concepts, R raters and n responses; NaN where a rater has no marks, or a concept no estimates.

    severity, noise: (K, R) s and σ, shares of the levels; reliability: (K, R) Spearman's ρ = v/(v + σ²) of a single
    mark; mean, variance: (K,) m and v; latent, latent_variance: (n, K) posterior mean and variance of z, those of a
    response without marks being m and v; notes: (K,) what to know, or why there are no estimates.
    """

    severity: Floats
    noise: Floats
    reliability: Floats
    mean: Floats
    variance: Floats
    latent: Floats
    latent_variance: Floats
    notes: tuple[str | None, ...]


class Consensus(NamedTuple):
    """levels, (n, K): 0…M_k, MISSING without marks; weights, (n, K) in (0, 1], 1 without marks; notes, (K,)."""

    levels: Ints
    weights: Floats
    notes: tuple[str | None, ...]


def rater_noise(marks: Floats, tops: Ints) -> RaterNoise:
    """Severity, noise and reliability of every rater on every concept.

    marks: (n, K, R) levels 0…M_k, NaN where a rater gave none; tops: (K,) M_k, at least 1. InputError where no response
    was marked by two persons on any concept.
    """
    if not ((~np.isnan(marks)).sum(axis=2) > 1).any():
        raise InputError(NOBODY_SHARES, hint="leave rater_noise off, or have some responses marked by several")
    shares = marks / tops[:, None]
    fits = zip(*(_concept_fit(shares[:, k]) for k in range(len(tops))), strict=True)
    severity, noise, mean, variance, latent, latent_variance, notes = fits
    spread = np.stack(noise)
    v = np.array(variance)
    reliability = v[:, None] / (v[:, None] + spread**2)
    of_responses = np.stack(latent).T, np.stack(latent_variance).T
    return RaterNoise(np.stack(severity), spread, reliability, np.array(mean), v, *of_responses, notes)


def consensus(marks: Floats, tops: Ints) -> Consensus:
    """One label of each concept from the marks of several, and how much it counts.

    The weight is the reliability of the response's marks together, w = 1 − Var(z | marks)/v. The level is the one next
    to m + (E(z | marks) − m)/√w, halves up: a posterior mean spreads less than z, so that rounding it would empty the
    outer levels; this has z's own spread (Louis 1984). A concept without estimates has the rounded plain mean and
    weight 1. Arguments and errors as in `rater_noise`.

    Better than the rounded mean where raters differ in noise and z is near normal; worse where most marks lie at one
    end of five levels, or a rater keeps to the middle (tests/studies/rater_noise.py).
    """
    fit = rater_noise(marks, tops)
    present = ~np.isnan(marks)
    marked = present.any(axis=2)
    counts = present.sum(axis=2)
    plain = np.where(present, marks, 0.0).sum(axis=2) / np.maximum(counts, 1)
    fitted = marked & ~np.isnan(fit.latent)
    weights = np.where(fitted, 1 - fit.latent_variance / fit.variance, 1.0)
    spread = fit.mean + (fit.latent - fit.mean) / np.sqrt(weights)
    nearest = np.floor(np.where(fitted, spread * tops, plain) + 0.5)
    return Consensus(np.where(marked, np.clip(nearest, 0, tops), MISSING).astype(np.int64), weights, fit.notes)


_Fit = tuple[Floats, Floats, float, float, Floats, Floats, str | None]
"""Of one concept severity and noise (R,), mean, variance, latent and its variance (n,), note."""


def _concept_fit(shares: Floats) -> _Fit:
    """shares: (n, R), NaN where there is none."""
    # Marks are few whole levels, so that many responses have the same ones.
    coded, back, counts = np.unique(
        np.where(np.isnan(shares), -1.0, shares), axis=0, return_inverse=True, return_counts=True
    )
    present = coded >= 0
    times = counts.astype(np.float64)
    marks = np.where(present, coded, 0.0)
    if not (present.sum(axis=1) > 1).any():
        return _no_fit(shares, NOBODY_SHARES)
    if np.ptp(marks[present]) == 0:
        return _no_fit(shares, ONE_MARK)
    pool, tied, lone = _pools(present, times)
    severity, noise, mean, variance = _maximise(marks, present, times, pool, lone)
    used = present.any(axis=0)
    if variance < CHANCE * (variance + noise[used].mean()):
        return _no_fit(shares, BY_CHANCE)
    latent, spread = _posterior(marks, present, severity, noise, mean, variance)
    severity, noise = np.where(used, severity, np.nan), np.where(used, np.sqrt(noise), np.nan)
    return severity, noise, mean, variance, latent[back], spread[back], EQUAL if tied else None


def _no_fit(shares: Floats, note: str) -> _Fit:
    of_raters = np.full(shares.shape[1], np.nan)
    of_responses = np.full(len(shares), np.nan)
    return of_raters, of_raters, np.nan, np.nan, of_responses, of_responses, note


def _pools(present: Bools, times: Floats) -> tuple[Floats, bool, Bools]:
    """(pool, tied, lone): pool (R, R) says whose residuals a rater's noise is the mean of; tied, whether any are
    pooled; lone (R,), who shares no response with anybody."""
    marked = present.astype(np.float64)
    both_marked = (marked * times[:, None]).T @ marked
    np.fill_diagonal(both_marked, 0.0)
    by_several = present.sum(axis=1) > 1
    shared = times[by_several] @ present[by_several]
    linked = both_marked > 0
    # A graph's signless Laplacian has one null vector for each part without an odd cycle, and it spans that part.
    values, vectors = np.linalg.eigh(np.diag(linked.sum(axis=1)) + linked.astype(np.float64))
    no_cycle = (vectors[:, values < 1e-9] ** 2).sum(axis=1) > 1e-9
    lone = shared == 0
    separate = ~no_cycle & (shared >= FEWEST)
    pooled = ~separate & ~lone
    pool = np.diag(separate.astype(np.float64))
    pool[pooled] = pooled
    pool[lone] = ~lone
    return pool, bool((~separate & present.any(axis=0)).any()), lone


def _maximise(
    marks: Floats, present: Bools, times: Floats, pool: Floats, lone: Bools
) -> tuple[Floats, Floats, float, float]:
    """(severity, noise variance, m, v) by expectation-maximisation, rows counting `times`."""
    weight = times @ present
    heard = times * present.any(axis=1)
    shared = np.where(lone, 0.0, weight)
    everybody = heard.sum()
    mean = float(times @ marks.sum(axis=1) / weight.sum())
    variance = max(float(times @ ((marks - mean) ** 2 * present).sum(axis=1) / weight.sum()) / 2, LEAST)
    severity = np.zeros(len(weight))
    noise = np.full(len(weight), variance)
    for _ in range(ITERATIONS):
        latent, spread = _posterior(marks, present, severity, noise, mean, variance)
        before = np.append(noise, variance)
        apart = np.where(present, marks - latent[:, None], 0.0)
        severity = np.where(lone, 0.0, times @ apart / np.maximum(weight, 1))
        mean = float(heard @ latent / everybody)
        # What all raters have in common is the mean's.
        shift = float(shared @ severity / shared.sum())
        severity, mean = np.where(lone, 0.0, severity - shift), mean + shift
        variance = max(float(heard @ (spread + (latent + shift - mean) ** 2) / everybody), LEAST)
        apart = np.where(present, (marks - severity - latent[:, None] - shift) ** 2 + spread[:, None], 0.0)
        noise = np.maximum(pool @ (times @ apart) / np.maximum(pool @ weight, 1), LEAST)
        if np.abs(np.append(noise, variance) - before).max() < SETTLED:
            break
    return severity, noise, mean, variance


def _posterior(
    marks: Floats, present: Bools, severity: Floats, noise: Floats, mean: float, variance: float
) -> tuple[Floats, Floats]:
    """Mean and variance of z given each row's marks."""
    spread = 1 / (1 / variance + present @ (1 / noise))
    evidence = np.where(present, marks - severity, 0.0) @ (1 / noise)
    return spread * (mean / variance + evidence), spread
