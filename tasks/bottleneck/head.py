"""The grade head with its error correction, as plain arrays: what a person moves, a page draws and a trace adds up.

logits = W·A·s̃ + b: concept shares s̃ in [0, 1], the denoising matrix A (Eq. 20; the identity where nothing is
corrected), the grade head W with a bias (Eq. 22 prints none, the example of appendix E.5 adds one).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from tasks.stats.arrays import Floats, Ints


@dataclass(frozen=True)
class Head:
    """Everything behind the bottleneck; K concepts, S + 1 grades."""

    weights: Floats
    """W, (S + 1, K)."""
    bias: Floats
    """b, (S + 1,)."""
    precision: Floats | None = None
    """Ω, (K, K), positive definite; None where nothing is corrected."""
    noise: Floats | None = None
    """σ²_k, (K,), the measurement-noise variances; None with `precision`."""
    temperature: float = 1.0
    """What logits are divided by for calibrated probabilities."""

    @property
    def correction(self) -> Floats:
        """A = (Ω + D⁻¹)⁻¹D⁻¹, (K, K) (Eqs. 19-20)."""
        if self.precision is None or self.noise is None:
            return np.eye(self.weights.shape[1])
        # Solved by column: never the inverse of a matrix that may be badly conditioned.
        measured = np.diag(1 / self.noise)
        return np.asarray(np.linalg.solve(self.precision + measured, measured), np.float64)

    def posterior(self, shares: Floats) -> Floats:
        """μ_post of shares (..., K), same shape (Eq. 20)."""
        corrected: Floats = shares @ self.correction.T
        return corrected

    def logits(self, shares: Floats) -> Floats:
        """(..., S + 1) of shares (..., K)."""
        scored: Floats = self.posterior(shares) @ self.weights.T + self.bias
        return scored

    def probabilities(self, shares: Floats, calibrated: bool = True) -> Floats:
        """(..., S + 1) probability of each grade."""
        likely: Floats = softmax(self.logits(shares) / (self.temperature if calibrated else 1.0), axis=-1)
        return likely

    def contributions(self, shares: Floats, grade: int | Ints) -> Floats:
        """(..., K) what each concept adds to a grade's logit, of all or each response; with the bias they sum to it."""
        added: Floats = self.weights[grade] * self.posterior(shares)
        return added
