"""Evidence of drift: bets that are fair by brute force, false alarms and power in simulated streams."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.drift import Values, _log_bets, block_length, change, evidence

BAR = log(1000)


def values(numbers: object, strata: object = None) -> Values:
    array = np.asarray(numbers, float)
    return Values(array, [0] * len(array) if strata is None else strata)


@given(st.integers(1, 60))
def test_bets_on_a_rank_win_nothing_in_the_mean(size: int) -> None:
    ranks = np.arange(size, dtype=float)
    won = np.exp(_log_bets(ranks, np.full(size, float(size))))
    assert won.mean(axis=0) == pytest.approx(np.ones(won.shape[1]))


def stream(kind: str, rng: np.random.Generator, days: int = 60) -> tuple[list[Values], list[Values]]:
    """Old logs and daily ones that are alike."""
    if kind == "levels":
        return [values(rng.integers(1, 4, 200))], [values(rng.integers(1, 4, 20)) for _ in range(days)]
    if kind == "autocorrelated":
        x = rng.normal(size=400 + 20 * days)
        for i in range(1, len(x)):
            x[i] += 0.5 * x[i - 1]
        return [values(x[:400])], [values(x[i : i + 20]) for i in range(400, len(x), 20)]
    if kind == "canary":
        level = rng.normal(size=20)
        logs = [values(np.round(level + 0.3 * rng.normal(size=20)), list(range(20))) for _ in range(days + 1)]
        return logs[:1], logs[1:]
    logs = [values(rng.normal(size=20) + 0.5 * rng.normal()) for _ in range(days + 30)]
    return logs[:30], logs[30:]


@pytest.mark.parametrize("kind", ["levels", "autocorrelated", "canary", "days that differ"])
def test_streams_that_do_not_change_raise_no_alarm(kind: str) -> None:
    peaks = [evidence(*stream(kind, np.random.default_rng(seed)), bar=BAR).log_peak for seed in range(20)]
    assert sum(peak >= log(20) for peak in peaks) <= 5  # at most 1 expected; 1 in 1,000 tests of that has more
    assert sum(peak >= BAR for peak in peaks) == 0


def test_a_shift_is_found_and_dated() -> None:
    rng = np.random.default_rng(0)
    old, new = [values(rng.normal(size=500))], [values(rng.normal(size=40) + (day >= 20)) for day in range(30)]
    found, moved = evidence(old, new, BAR), change(old, new)
    assert found.log_peak > BAR
    assert found.after is not None
    assert 20 * 40 < found.after <= 21 * 40
    assert evidence(old, new[:20], BAR).log_peak < BAR < evidence(old, new[:21], BAR).log_peak
    assert moved.since == 20
    assert moved.low < 1 < moved.high


def test_the_same_cases_are_compared_with_themselves() -> None:
    rng = np.random.default_rng(0)
    level = rng.normal(size=60) * 5
    noise = rng.normal(size=(2, 60)) * 0.3
    strata = list(range(60))
    old, new = [values(level + noise[0], strata)], [values(level + noise[1] + 0.5, strata)]
    assert evidence(old, new, BAR).log_peak > BAR
    assert evidence([values(old[0].values)], [values(new[0].values)], BAR).log_peak < BAR
    moved = change(old, new)
    assert moved.high - moved.low < 0.4
    assert moved.low < 0.5 < moved.high


def test_less_spread_and_another_mix_of_classes() -> None:
    rng = np.random.default_rng(0)
    assert evidence([values(rng.normal(size=300))], [values(0.2 * rng.normal(size=80))], BAR).log_peak > BAR

    def classes(share: float, n: int) -> Values:
        kind = (rng.random(n) < share).astype(int)
        return values(kind * 5 + rng.normal(size=n), kind.tolist())

    old, new = classes(0.2, 400), classes(0.8, 400)
    assert evidence([old], [new], BAR).log_peak < log(20)
    assert evidence([values(old.values)], [values(new.values)], BAR).log_peak > BAR


def test_how_long_values_hang_together() -> None:
    rng = np.random.default_rng(0)
    assert block_length([rng.normal(size=1000)]) == 1
    assert block_length([np.repeat(rng.normal(size=200), 5)]) >= 8
    assert block_length([np.zeros(50)]) == 1
    assert block_length([rng.normal(size=30) + rng.normal() for _ in range(20)]) == 0


def test_nothing_to_compare_is_no_evidence() -> None:
    old = [values(np.arange(30))]
    assert evidence(old, [], BAR).log_peak == 0
    assert evidence(old, [values([])], BAR).after is None
    assert evidence(old, [values([1.0], ["unseen"])], BAR).log_peak == 0
