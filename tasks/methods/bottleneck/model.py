"""REC-CBM's two halves: what reads concepts in token states, and the head that corrects them and grades.

Greek letters in code: temperature is τ, log_noise η, factor L, precision Ω, shares s̃, posterior μ_post.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.trace import Head


class ConceptEncoder(nn.Module):
    """Token states → logits of each concept's levels (Eqs. 8-11), all concepts in one product.

    Without `rubric_aware` (no rubric-aware concept encoder) all concepts read one representation, the mean of the
    states.
    """

    tops: Tensor
    """(K,) M_k, each concept's highest level, at least 1."""
    beyond: Tensor
    """(K, M + 1) True for levels above a concept's own top."""

    def __init__(
        self,
        width: int,
        tops: Sequence[int] | Ints,
        temperature: float = 1.0,
        rubric_aware: bool = True,
        projection: int | None = None,
        seed: int = 0,
    ) -> None:
        """width: of the states; projection: d, the width that they are first brought to, None for their own."""
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        highest, d = torch.as_tensor(np.asarray(tops, np.int64)), projection or width
        self.temperature, self.rubric_aware = temperature, rubric_aware
        self.register_buffer("tops", highest)
        self.register_buffer("beyond", torch.arange(int(highest.max()) + 1) > highest[:, None])
        self.projection = None if projection is None else nn.Parameter(_uniform((d, width), rng))
        self.queries = nn.Parameter(orthogonal(len(highest), d, rng)) if rubric_aware else None
        self.classifiers = nn.Parameter(_uniform((*self.beyond.shape, d), rng))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, K, M + 1) logits, −inf beyond a concept's top, of states (B, T, width) and mask (B, T)."""
        states = self._projected(states)
        read = torch.einsum("bkt,btd->bkd", self._attention(states, mask), states)
        return torch.einsum("bkd,kld->bkl", read, self.classifiers).masked_fill(self.beyond, -torch.inf)

    def attend(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, K, T) attention α, exactly 0 at padding (Eq. 9)."""
        return self._attention(self._projected(states), mask)

    def _projected(self, states: Tensor) -> Tensor:
        return states if self.projection is None else states @ self.projection.T

    def _attention(self, states: Tensor, mask: Tensor) -> Tensor:
        if self.queries is None:
            shared = mask / mask.sum(1, keepdim=True)
            return shared.to(states.dtype)[:, None].expand(-1, len(self.tops), -1)
        scores = torch.einsum("kd,btd->bkt", self.queries, states) / self.temperature
        return scores.masked_fill(~mask[:, None], -torch.inf).softmax(2)


class LatentHead(nn.Module):
    """Shares s̃ → grade logits through the posterior mean (Eqs. 19-22), with a bias: Eq. 22 prints
    none, but the example of appendix E.5 adds one.

    Without `corrects` (no latent error correction) the posterior mean is s̃ itself. L begins as the identity, η, W and b
    as zeros.
    """

    def __init__(self, concepts: int, grades: int, epsilon: float = 1e-4, corrects: bool = True) -> None:
        """concepts: K; grades: S + 1."""
        super().__init__()
        self.epsilon = epsilon
        self.weights = nn.Parameter(torch.zeros(grades, concepts))
        self.bias = nn.Parameter(torch.zeros(grades))
        self.factor = nn.Parameter(torch.eye(concepts)) if corrects else None
        self.log_noise = nn.Parameter(torch.zeros(concepts)) if corrects else None

    @property
    def precision(self) -> Tensor | None:
        """Ω = LLᵀ + εI, (K, K) (Eq. 21); None where nothing is corrected."""
        if self.factor is None:
            return None
        lower = self.factor.tril()
        return lower @ lower.T + self.epsilon * torch.eye(len(lower), dtype=lower.dtype, device=lower.device)

    @property
    def noise(self) -> Tensor | None:
        """σ², (K,), the variances of measurement; None where nothing is corrected."""
        return None if self.log_noise is None else self.log_noise.exp()

    def posterior(self, shares: Tensor) -> Tensor:
        """μ_post (B, K) of shares (B, K) (Eqs. 19-20): solved for, never by an inverse."""
        precision, noise = self.precision, self.noise
        if precision is None or noise is None:
            return shares
        factor = torch.linalg.cholesky(precision + noise.reciprocal().diag())
        return torch.cholesky_solve((shares / noise).T, factor).T

    def forward(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Grade logits (B, S + 1) and μ_post (B, K) of shares (B, K)."""
        posterior = self.posterior(shares)
        return posterior @ self.weights.T + self.bias, posterior

    def as_head(self) -> Head:
        """The same as plain arrays."""
        precision, noise = self.precision, self.noise
        return Head(
            _array(self.weights),
            _array(self.bias),
            None if precision is None else _array(precision),
            None if noise is None else _array(noise),
        )

    @property
    def numbers(self) -> int:
        """Numbers that are trained: of L only those on and below the diagonal."""
        upper = 0 if self.factor is None else len(self.factor) * (len(self.factor) - 1) // 2
        return sum(parameter.numel() for parameter in self.parameters()) - upper


def expected_levels(logits: Tensor) -> Tensor:
    """(…, K) ĉ of logits (…, K, M + 1) (Eq. 13)."""
    levels = torch.arange(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    expected: Tensor = logits.softmax(-1) @ levels
    return expected


def orthogonal(rows: int, width: int, generator: torch.Generator) -> Tensor:
    """(rows, width) rows of length 1 from QR decompositions of Gaussian matrices (after Eq. 8).

    Orthogonal to each other within blocks of `width` rows: no more can be.
    """
    blocks = []
    for start in range(0, rows, width):
        gaussian = torch.randn(width, min(width, rows - start), generator=generator)
        blocks.append(torch.linalg.qr(gaussian).Q.T)
    return torch.cat(blocks).contiguous()


def _uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform within ±1/√(last size), as linear layers commonly begin."""
    return (2 * torch.rand(*shape, generator=generator) - 1) / math.sqrt(shape[-1])


def _array(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().cpu().double().numpy(), np.float64)
