"""Candidate selection against a plain reading of section 2.2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit.intervene import candidates, named_step, thresholds, weak

CHANGES = st.lists(st.floats(-3, 3).map(lambda value: round(value, 2)), max_size=12)


@settings(max_examples=50)
@given(CHANGES, st.integers(0, 2**12 - 1), st.integers(1, 4), st.sampled_from([0.0, 0.01, 0.5]))
def test_selection_is_what_the_paper_says(changes: list[float], bits: int, count: int, near_tie: float) -> None:
    unsupported = [bool(bits >> step & 1) for step in range(len(changes))]
    found = candidates(np.array(changes), np.array(unsupported, bool), count, near_tie)

    harmful = [step for step, change in enumerate(changes) if not change >= -near_tie]
    worst = sorted(harmful, key=lambda step: (changes[step], step))[:count]
    assert found.chosen == tuple(step for step in worst if unsupported[step])
    for step, fate in enumerate(found.fates):
        if step in worst:
            assert fate == ("chosen" if unsupported[step] else "grounded")
        elif step in harmful:
            assert fate == "not_top_k"
        else:
            assert fate == ("helped" if changes[step] > 0 else "near_tie")
    assert len(found.fates) == len(changes)


def test_a_worked_rollout() -> None:
    change = np.array([0.4, -0.9, -0.005, -0.2, -0.9, -0.6, -0.01])
    unsupported = np.array([True, True, True, True, False, True, True])
    found = candidates(change, unsupported, 3, 0.01)
    assert found.chosen == (1, 5)
    assert found.fates == ("helped", "chosen", "near_tie", "not_top_k", "grounded", "chosen", "near_tie")


def test_zero_is_no_harm_even_without_a_tolerance() -> None:
    assert candidates(np.array([0.0, -1e-9]), np.array([True, True]), 3, 0.0).fates == ("near_tie", "chosen")


def test_a_step_is_weak_only_under_all_three_thresholds() -> None:
    limits = np.array([1.0, 2.0, -0.5])
    grounding = np.array([[0.9, 1.9, -0.6], [1.0, 1.9, -0.6], [0.9, 2.1, -0.6], [0.9, 1.9, -0.5]])
    assert weak(grounding, limits).tolist() == [True, False, False, False]


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_thresholds_are_quantiles_over_all_steps(n: int, seed: int, below: float) -> None:
    grounding = np.random.default_rng(seed).normal(size=(n, 3))
    place = below * (n - 1)
    for column, limit in zip(grounding.T, thresholds(grounding, below), strict=True):
        ordered = sorted(column)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, n - 1)]
        assert limit == pytest.approx(low + (place - int(place)) * (high - low))


def test_a_quarter_of_all_steps_is_under_each_threshold() -> None:
    grounding = np.random.default_rng(0).normal(size=(400, 3))
    assert ((grounding < thresholds(grounding)).sum(axis=0) == 100).all()


def test_no_steps() -> None:
    none = np.empty((0, 3))
    limits = thresholds(none)
    assert weak(none, limits).tolist() == []
    assert candidates(np.empty(0), np.empty(0, bool), 3, 0.01) == ((), ())
    assert not weak(np.full((1, 3), -9.0), limits).any()


def test_five_hundred_steps() -> None:
    change = np.linspace(-1, 1, 500)
    found = candidates(change, np.ones(500, bool), 3, 0.01)
    assert found.chosen == (0, 1, 2)
    assert len(found.fates) == 500


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_signal_is_no_silent_selection(broken: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        thresholds(np.array([[0.0, broken, 0.0]]))
    with pytest.raises(ValueError, match="finite"):
        candidates(np.array([-1.0, broken]), np.array([True, True]), 3, 0.01)


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("Step 2: P2 is not met.", (1,)),
        ("Step 4: beyond", ()),
        ("Step 0: before", ()),
        ("I see no mistake.", ()),
        ("Step 1: a\nStep 2: b", ()),
        ("", ()),
    ],
)
def test_without_signals_the_policy_names_the_step(reply: str, chosen: tuple[int, ...]) -> None:
    assert named_step(reply, 3) == chosen
