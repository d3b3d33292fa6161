"""The losses against plain loops over pairs and labels, their gradients, and what missing labels do: nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from torch.autograd import gradcheck

from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.loop import (
    concept_loss,
    denoising_loss,
    ranking_loss,
    sparsity_loss,
    task_loss,
)
from rubricflow.tasks.methods.bottleneck.model import expected_levels

TOPS = torch.tensor([2, 1, 3])
BEYOND = torch.arange(4) > TOPS[:, None]


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (B, K, M + 1), levels (B, K) with gaps, weights (B, K)."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n = draw(st.integers(1, 7))
    levels = np.stack([rng.integers(0, top + 1, n) for top in TOPS.tolist()], axis=1)
    levels[rng.random(levels.shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = MISSING
    logits = torch.from_numpy(rng.normal(size=(n, 3, 4))).masked_fill(BEYOND, -torch.inf)
    return logits, torch.from_numpy(levels), torch.from_numpy(rng.uniform(0.1, 1, levels.shape))


@given(cases())
def test_concept_loss_sums_over_concepts(case: tuple[torch.Tensor, ...]) -> None:
    logits, levels, weights = case
    plain = 0.0
    for row in range(len(logits)):
        for concept, top in enumerate(TOPS.tolist()):
            if levels[row, concept] != MISSING:
                shown = np.exp(logits[row, concept, : top + 1].numpy())
                plain -= float(weights[row, concept] * math.log(shown[levels[row, concept]] / shown.sum()))
    assert concept_loss(logits, levels, weights).item() == pytest.approx(plain / len(logits))


@given(cases())
def test_ranking_loss_is_that_of_all_pairs(case: tuple[torch.Tensor, ...]) -> None:
    logits, levels, _ = case
    expected, of_concepts = expected_levels(logits), []
    for concept in range(3):
        label, score = levels[:, concept].tolist(), expected[:, concept].tolist()
        pairs = [
            math.log1p(math.exp(-(score[i] - score[j])))
            for i in range(len(label))
            for j in range(len(label))
            if MISSING not in (label[i], label[j]) and label[i] > label[j]
        ]
        if pairs:
            of_concepts.append(sum(pairs) / len(pairs))
    plain = sum(of_concepts) / len(of_concepts) if of_concepts else 0.0
    assert ranking_loss(expected, levels).item() == pytest.approx(plain)


def test_ranking_without_a_pair_has_a_gradient_of_zero() -> None:
    expected = torch.rand(3, 2, requires_grad=True)
    loss = ranking_loss(expected, torch.tensor([[1, MISSING], [1, 0], [1, MISSING]]))
    loss.backward()
    assert loss.item() == 0
    assert not expected.grad.any()  # type: ignore[union-attr]


def test_ranking_does_not_overflow() -> None:
    far = torch.tensor([[-1e4], [1e4]], requires_grad=True)
    loss = ranking_loss(far, torch.tensor([[1], [0]]))
    loss.backward()
    assert loss.item() == pytest.approx(2e4)
    assert torch.isfinite(far.grad).all()  # type: ignore[arg-type]


def test_expected_levels_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3), -math.inf], [0.0, 0.0, math.log(2)]]], dtype=torch.float64)
    torch.testing.assert_close(expected_levels(logits), torch.tensor([[0.75, 1.25]], dtype=torch.float64))


def test_task_loss_is_the_librarys_over_the_labelled() -> None:
    rng = np.random.default_rng(0)
    logits, grades = torch.from_numpy(rng.normal(size=(9, 3))), np.array([0, 2, MISSING, 1, 1, MISSING, 0, 2, 2])
    known = grades != MISSING
    theirs = log_loss(grades[known], logits.softmax(1).numpy()[known])
    assert task_loss(logits, torch.from_numpy(grades)).item() == pytest.approx(theirs)
    none = logits.clone().requires_grad_()
    task_loss(none, torch.full((9,), MISSING)).backward()
    assert not none.grad.any()  # type: ignore[union-attr]


@given(cases())
def test_denoising_loss_by_a_loop(case: tuple[torch.Tensor, ...]) -> None:
    logits, levels, weights = case
    posterior = logits[:, :, 0]
    cells = [(i, k) for i in range(len(levels)) for k in range(3) if levels[i, k] != MISSING]
    plain = sum(float(weights[i, k] * (posterior[i, k] - levels[i, k] / TOPS[k]) ** 2) for i, k in cells)
    found = denoising_loss(posterior, levels, TOPS, weights).item()
    assert found == pytest.approx(plain / max(1, len(cells)), rel=1e-6, abs=1e-12)


def test_sparsity_counts_below_the_diagonal_only() -> None:
    factor = torch.tensor([[5.0, 7, 7], [-1, 5, 7], [0.5, -2, 5]])
    assert sparsity_loss(factor).item() == pytest.approx(3.5)


@given(cases())
@settings(max_examples=15)
def test_gradients_are_those_of_finite_differences(case: tuple[torch.Tensor, ...]) -> None:
    logits, levels, weights = case
    free = torch.randn(
        logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )

    def concept(free: torch.Tensor) -> torch.Tensor:
        return concept_loss(free.masked_fill(BEYOND, -torch.inf), levels, weights)

    def ranking(free: torch.Tensor) -> torch.Tensor:
        return ranking_loss(expected_levels(free.masked_fill(BEYOND, -torch.inf)), levels)

    def denoising(free: torch.Tensor) -> torch.Tensor:
        return denoising_loss(free[:, :, 0], levels, TOPS, weights)

    for loss in (concept, ranking, denoising):
        assert gradcheck(loss, (free,))
        (gradient,) = torch.autograd.grad(loss(free), free)
        assert not gradient[levels == MISSING].any()
        assert torch.isfinite(gradient).all()
