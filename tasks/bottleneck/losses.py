"""The losses of REC-CBM (Eqs. 12-16 and 23-25). A label that is MISSING enters none of them."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from tasks.bottleneck.data import MISSING


def concept_loss(logits: Tensor, levels: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy summed over concepts, mean over the batch (Eq. 12), each label times its weight.

    logits (B, K, M + 1), −inf beyond a concept's own top; levels (B, K) integers; weights (B, K).
    """
    terms = cross_entropy(logits.transpose(1, 2), levels, ignore_index=MISSING, reduction="none")
    return (terms * weights).sum() / len(logits)


def ranking_loss(expected: Tensor, levels: Tensor) -> Tensor:
    """Logistic loss of ordered pairs, mean over a concept's pairs, then over concepts that have one (Eqs. 14-16).

    expected (B, K) expected levels ĉ; levels (B, K) integers. 0, with gradient 0, where there is no pair.
    """
    labelled = levels != MISSING
    above = (levels[:, None] > levels[None]) & labelled[:, None] & labelled[None]
    # −log σ(ĉ_i − ĉ_j) is the softplus of the difference the other way round.
    terms = softplus(expected[None] - expected[:, None]) * above
    pairs = above.sum((0, 1))
    of_concept = terms.sum((0, 1)) / pairs.clamp(min=1)
    return of_concept.sum() / (pairs > 0).sum().clamp(min=1)


def task_loss(logits: Tensor, grades: Tensor) -> Tensor:
    """Cross-entropy of the grade, mean over those labelled (Eq. 23); 0, with gradient 0, where none is.

    logits (B, S + 1); grades (B,) integers.
    """
    summed = cross_entropy(logits, grades, ignore_index=MISSING, reduction="sum")
    return summed / (grades != MISSING).sum().clamp(min=1)


def denoising_loss(posterior: Tensor, levels: Tensor, tops: Tensor, weights: Tensor) -> Tensor:
    """Squared distance of μ_post from the labels' shares, each times its weight, mean over the labels (Eq. 24).

    posterior (B, K); levels (B, K) integers; tops (K,) M_k; weights (B, K). 0, with gradient 0, without any label.
    """
    labelled = levels != MISSING
    terms = (posterior - levels.to(posterior.dtype) / tops) ** 2 * weights
    return (terms * labelled).sum() / labelled.sum().clamp(min=1)


def sparsity_loss(factor: Tensor) -> Tensor:
    """Sum of |L_ij| below the diagonal of the Cholesky factor L (K, K) (Eq. 25)."""
    return factor.tril(-1).abs().sum()
