"""How far a policy's belief has moved from the frozen reference that shapes its reward (appendix C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from tasks.stats.arrays import Floats


class Divergence(NamedTuple):
    """Means over step boundaries, in nats; None without boundaries, in a part too, or where not finite."""

    kl: float | None
    """KL(policy ‖ reference), ≥ 0."""
    jsd: float | None
    """Jensen-Shannon divergence, 0…ln 2."""
    early: float | None
    """JSD of the boundaries k of T steps up to k/T = 1/3."""
    mid: float | None
    """Of those behind it up to 2/3."""
    late: float | None
    """Of those behind that."""


def divergence(policy: Sequence[Floats], reference: Sequence[Floats]) -> Divergence:
    """Table 7. policy, reference: beliefs at the boundaries of the same rollouts, each (T + 1, M + 1), rows that sum
    to 1. A rollout without steps has no relative position and so no part. ValueError where rollouts or shapes differ.
    """
    if [belief.shape for belief in policy] != [belief.shape for belief in reference]:
        raise ValueError("beliefs must be of the same boundaries and marks")
    kl = _joined([_kl(p, q) for p, q in zip(policy, reference, strict=True)])
    jsd = _joined([_jsd(p, q) for p, q in zip(policy, reference, strict=True)])
    third = _joined([_thirds(len(p) - 1) for p in policy])
    early, mid, late = (_mean(jsd[third == number]) for number in range(3))
    return Divergence(_mean(kl), _mean(jsd), early, mid, late)


def _kl(p: Floats, q: Floats) -> Floats:
    return np.asarray(rel_entr(p, q).sum(axis=1), dtype=np.float64)


def _jsd(p: Floats, q: Floats) -> Floats:
    between = (p + q) / 2
    return (_kl(p, between) + _kl(q, between)) / 2


def _thirds(steps: int) -> Floats:
    """Third of the chain that each boundary lies in, 0…2; whole numbers, so that k/T = 1/3 is exact."""
    if not steps:
        return np.array([np.nan])
    boundary = np.arange(steps + 1)
    return np.where(3 * boundary <= steps, 0.0, np.where(3 * boundary <= 2 * steps, 1.0, 2.0))


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.empty(0), *parts])


def _mean(values: Floats) -> float | None:
    mean = float(values.mean()) if len(values) else np.nan
    return mean if np.isfinite(mean) else None
