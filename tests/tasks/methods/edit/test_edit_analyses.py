"""The validation analyses of appendices C and D against scipy, plain loops and worked numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, mannwhitneyu

from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.methods.edit.belief import HIGHER, Label, separations
from rubricflow.tasks.methods.edit.measures import divergence

RNG = np.random.default_rng(5)


def beliefs(steps: int, top: int) -> Floats:
    return RNG.dirichlet(np.ones(top + 1), steps + 1)


def test_divergences_are_those_of_scipy() -> None:
    policy = [beliefs(steps, top) for steps, top in ((0, 2), (3, 4), (7, 12), (500, 1))]
    reference = [beliefs(len(one) - 1, one.shape[1] - 1) for one in policy]
    kl, jsd = list[float](), list[float]()
    parts: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for mine, other in zip(policy, reference, strict=True):
        for step, (p, q) in enumerate(zip(mine, other, strict=True)):
            kl.append(entropy(p, q))
            jsd.append(jensenshannon(p, q) ** 2)
            if len(mine) > 1:
                share = step / (len(mine) - 1)
                parts[0 if share <= 1 / 3 else 1 if share <= 2 / 3 else 2].append(jsd[-1])
    found = divergence(policy, reference)
    assert found["kl"] == pytest.approx(np.mean(kl))
    assert found["jsd"] == pytest.approx(np.mean(jsd))
    assert [*found.values()][2:] == pytest.approx([np.mean(of) for of in parts.values()])


def test_a_rollout_without_steps_has_no_part_and_none_has_nothing() -> None:
    found = divergence([beliefs(0, 3)], [beliefs(0, 3)])
    assert found["jsd"] is not None
    assert [*found.values()][2:] == [None, None, None]
    assert set(divergence([], []).values()) == {None}


values = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@given(grounding=values, synthesis=values)
@settings(max_examples=15)
def test_the_effect_is_the_share_of_pairs_in_order_less_those_against_it(
    grounding: list[int], synthesis: list[int]
) -> None:
    labels: list[Label] = ["grounding"] * len(grounding) + ["synthesis"] * len(synthesis)  # type: ignore[assignment]
    found = np.array([*grounding, *synthesis], dtype=np.float64)
    rollouts = [f"r{at}" for at in range(len(found))]
    for signal, kind in HIGHER.items():
        step, mean = separations(labels, {signal: found}, rollouts)
        high, low = (grounding, synthesis) if kind == "grounding" else (synthesis, grounding)
        pairs = [np.sign(a - b) for a in high for b in low]
        assert step["effect"] == pytest.approx(np.mean(pairs))
        assert step["p"] == mannwhitneyu(high, low, alternative="greater").pvalue
        assert (step["grounding"], step["synthesis"]) == (len(grounding), len(synthesis))
        assert mean == step | {"unit": "rollout"}


def test_means_are_of_each_rollouts_steps_of_a_kind() -> None:
    labels: list[Label] = ["grounding", "grounding", "synthesis", "grounding", "synthesis"]
    signal = np.array([1.0, 3.0, 2.5, 5.0, 4.0])
    _, found = separations(labels, {"answer": signal}, ["a", "a", "a", "b", "b"])
    # grounding means 2 and 5, synthesis means 2.5 and 4: two of four pairs in order
    p = mannwhitneyu([2, 5], [2.5, 4], alternative="greater").pvalue
    counts = {"grounding": 2, "synthesis": 2}
    assert found == {"signal": "answer", "unit": "rollout", "effect": 0.0, "p": p, **counts}


def test_one_kind_alone_separates_nothing() -> None:
    found = list(separations(["synthesis"] * 3, {"prefix": np.arange(3.0)}, ["a", "a", "b"]))
    assert [(one["effect"], one["p"], one["grounding"], one["synthesis"]) for one in found] == [
        (None, None, 0, 3),
        (None, None, 0, 2),
    ]
