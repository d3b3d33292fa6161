"""Rewards of Edit-RL: the distance-aware outcome and the belief-guided shaping (section 2.3, Eqs. 5-7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.stats.arrays import Floats


def outcomes(marks: Sequence[int | None], golds: Sequence[int], tops: Sequence[int]) -> Floats:
    """r_out = max(0, 1 − |m − m*| / M_q) of n rollouts, (n,), in [0, 1] (Eq. 5); 0 where the mark cannot be read.

    marks: m, 0…top or None. golds: m*. tops: M_q, ≥ 1.

    >>> outcomes([3, None], [4, 0], [4, 4]).tolist()
    [0.75, 0.0]
    """
    read = np.array([np.nan if mark is None else mark for mark in marks], np.float64)
    reward = np.maximum(0.0, 1.0 - np.abs(read - np.asarray(golds, np.float64)) / np.asarray(tops, np.float64))
    return np.nan_to_num(reward, nan=0.0)


def shape(expected: Floats, gold: int, top: int, tolerance: float) -> float:
    """r_shape = −1/(M_q T) Σ_k max(0, |m̄_k − m*| − β_drift) over k = 1…T, in [−1, 0] (Eq. 6).

    expected: m̄, (T+1,) expected marks at the boundaries 0…T; the one before any step does not count.
    tolerance: β_drift ≥ 0, in marks. Exactly 0 where no boundary is further off, and for a rollout without steps.
    """
    if len(expected) == 1:
        return 0.0
    drift = np.maximum(0.0, np.abs(expected[1:] - gold) - tolerance)
    return -float(drift.mean()) / top if drift.any() else 0.0
