"""DGPO, the token-level baseline of RL (Jin et al. 2026, arXiv 2605.03327): a rollout's advantage, shared out anew.

The paper's abstract gives the parts: no KL penalty; how far the policy is from the reference at a token, as a bounded
Hellinger distance; an entropy gate; a softmax over the tokens. The forms are those that public re-implementations
report: s_t = d_t · H_t^κ, w_t = T softmax(s_t / τ), A_t = w_t A, with τ (tau) = 0.5 and κ (kappa) = 1. They differ in
whether d is the distance or its square, and in how H is scaled. Ours: the square, and entropy over log |V|.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TEMPERATURE = 0.5
"""τ, of the softmax over tokens."""
GATE = 1.0
"""κ, exponent of the entropy gate."""


def hellinger(policy: Tensor, reference: Tensor) -> Tensor:
    """d = 1 − Σ_v √(π(v) π_ref(v)), the squared Hellinger distance in [0, 1]; log-probabilities (…, V) to (…)."""
    return (1 - ((policy + reference) / 2).exp().sum(-1)).clamp(0, 1)


def entropy(policy: Tensor) -> Tensor:
    """H = −Σ_v π(v) log π(v) / log |V| in [0, 1]; log-probabilities (…, V) to (…)."""
    share: Tensor = torch.special.entr(policy.exp()).sum(-1) / math.log(policy.shape[-1])
    return share.clamp(0, 1)


def weights(hellinger: Tensor, entropy: Tensor, mask: Tensor) -> Tensor:
    """w (B, T): the mean over a rollout's tokens is 1, and 0 stands outside the mask. All inputs (B, T).

    Where the policy is the reference all weights are 1, which is GRPO.
    """
    real = mask.bool()
    scores = (hellinger * entropy**GATE / TEMPERATURE).masked_fill(~real, -torch.inf)
    shares = torch.softmax(scores, dim=-1).masked_fill(~real, 0.0)  # a row without tokens is NaN before the fill
    return shares * real.sum(-1, keepdim=True)


def reallocate(hellinger: Tensor, entropy: Tensor, mask: Tensor, advantage: Tensor) -> Tensor:
    """A_t = w_t A, (B, T), of the rollouts' advantages (B,): their mean over a rollout's tokens stays A."""
    return weights(hellinger, entropy, mask) * advantage[:, None]
