"""Candidate selection against a plain reading of section 2.2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit.revise import fates, thresholds

CHANGES = st.lists(st.floats(-3, 3).map(lambda value: round(value, 2)), max_size=12)


@settings(max_examples=15)
@given(CHANGES, st.integers(0, 2**12 - 1), st.integers(1, 4), st.sampled_from([0.0, 0.01, 0.5]))
def test_selection_is_what_the_paper_says(changes: list[float], bits: int, count: int, near_tie: float) -> None:
    unsupported = [bool(bits >> step & 1) for step in range(len(changes))]
    found = fates(np.array(changes), np.array(unsupported, bool), count, near_tie)

    harmful = [step for step, change in enumerate(changes) if not change >= -near_tie]
    worst = sorted(harmful, key=lambda step: (changes[step], step))[:count]
    for step, fate in enumerate(found):
        if step in worst:
            assert fate == ("chosen" if unsupported[step] else "grounded")
        elif step in harmful:
            assert fate == "not_top_k"
        else:
            assert fate == ("helped" if changes[step] > 0 else "near_tie")
    assert len(found) == len(changes)


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_thresholds_are_quantiles_over_all_steps(n: int, seed: int, below: float) -> None:
    grounding = np.random.default_rng(seed).normal(size=(n, 3))
    place = below * (n - 1)
    for column, limit in zip(grounding.T, thresholds(grounding, below), strict=True):
        ordered = sorted(column)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, n - 1)]
        assert limit == pytest.approx(low + (place - int(place)) * (high - low))


def test_no_steps() -> None:
    assert np.isnan(thresholds(np.empty((0, 3)), 0.25)).all()
    assert fates(np.empty(0), np.empty(0, bool), 3, 0.01) == []


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_signal_is_no_silent_selection(broken: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        thresholds(np.array([[0.0, broken, 0.0]]), 0.25)
    with pytest.raises(ValueError, match="finite"):
        fates(np.array([-1.0, broken]), np.array([True, True]), 3, 0.01)
