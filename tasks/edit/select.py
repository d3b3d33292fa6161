"""Which steps of a wrong rollout are worth mending: those that moved the belief away from the gold mark and rest on
nothing (section 2.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasks.contracts.tables.edit import Fate
from tasks.edit.intervene import read
from tasks.stats.arrays import Bools, Floats


class Selection(NamedTuple):
    """What became of the T steps of a rollout."""

    chosen: tuple[int, ...]
    """Steps to mend, 0-based, the most harmful first."""
    fates: tuple[Fate, ...]
    """Of every step in order."""


def thresholds(grounding: Floats, below: float = 0.25) -> Floats:
    """(3,) the value under which each kind of grounding counts as weak: its quantile over all steps of the data set.

    grounding: (n, 3) G^ρ, G^a and G̃^p (rho: scheme, a: answer, p: prefix, residualised; Eqs. 3-4) of every step of
    every rollout, right and wrong ones. below: in [0, 1]; the paper takes the 25th percentile. NaN without any step,
    and nothing is weak then. ValueError where a value is not finite.
    """
    if not np.isfinite(grounding).all():
        raise ValueError("grounding values are finite")
    return np.quantile(grounding, below, axis=0) if len(grounding) else np.full(3, np.nan)


def weak(grounding: Floats, limits: Floats) -> Bools:
    """(T,) whether a step is under all three thresholds; (T, 3) and (3,) as in `thresholds`."""
    return np.asarray((grounding < limits).all(axis=1))


def candidates(change: Floats, unsupported: Bools, count: int, near_tie: float) -> Selection:
    """The steps of one wrong rollout that are to be mended.

    change: (T,) Δε (delta epsilon, Eq. 2) in marks, negative where the step did harm; unsupported: (T,), as `weak`
    says. Steps with Δε ≥ −near_tie leave first; of the others the `count` most negative stay, the earlier one of
    equals; of these the weak ones are chosen. ValueError where a change is not finite.
    """
    if not np.isfinite(change).all():
        raise ValueError("changes of belief are finite")
    harmful = change < -near_tie
    ranked = [int(step) for step in np.argsort(change, kind="stable") if harmful[step]][:count]
    fates: list[Fate] = ["helped" if gain > 0 else "near_tie" for gain in change]
    for step in np.flatnonzero(harmful).tolist():
        fates[step] = "not_top_k"
    for step in ranked:
        fates[step] = "chosen" if unsupported[step] else "grounded"
    return Selection(tuple(step for step in ranked if unsupported[step]), tuple(fates))


def named_step(reply: str, steps: int) -> tuple[int, ...]:
    """The step that the policy names itself, 0-based; none where it names none of the rollout's `steps`.

    The ablation without internal signals: a prompted self-audit, by the reply to `Prompts.intervene`. What that reply
    puts in the step's place is not used.
    """
    step = read(reply, steps).step
    return () if step is None else (step,)
