"""REC-CBM's two halves: what reads concepts in token states, and the head that corrects them and grades; and how a
grade came about: the estimate of each concept of a response, where it looked, and what it adds to the grade's logit.

The head is linear behind the bottleneck, so that the decomposition is exact (REC-CBM, section 5.7 and appendix E.5):
logit = bias + Σ_k W[grade, k]·μ_post,k.

Greek letters in code: temperature is τ, log_noise η, factor L, precision Ω, shares s̃, posterior μ_post.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import BIAS, Concepts

MOST = 12
"""Words kept per concept."""


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
        highest = torch.as_tensor(np.asarray(tops, np.int64))
        d = projection or width
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


@dataclass(frozen=True)
class Attention:
    """Where the concepts look in one response; t of its tokens are in the input."""

    spans: Ints
    """(t, 2) first character of each token in the response's text, and one past its last; in order."""
    weights: Floats
    """(K, t) attention (Eq. 9), as a share of all that a concept pays to the whole input, so that rows sum to 1 at
    most."""


def traces(
    response_ids: Sequence[str],
    texts: Sequence[str],
    concepts: Concepts,
    head: Head,
    scores: Floats,
    levels: Floats,
    attention: Sequence[Attention],
) -> list[Record]:
    """Rows of the table `traces` of n responses: one for each concept, in order, and one for the bias.

    texts: n texts of the responses; scores: (S + 1,) as `LabelledData.scores`; levels: (n, K, M + 1) as
    `Estimates.levels`. No concept is called as the bias is, see `class_set.common_bundle`.
    """
    expected = levels @ np.arange(levels.shape[2], dtype=np.float64)
    shares = expected / concepts.tops
    corrected = head.posterior(shares)
    logits = head.logits(shares)
    likely = head.probabilities(shares)
    ranked = np.argsort(-logits, axis=1, kind="stable")
    added = head.contributions(shares, ranked[:, 0])
    numbers = {"expected": expected, "share": shares, "corrected": corrected, "contribution": added}
    unknown = dict.fromkeys(("level_probabilities", "expected", "share", "corrected"))
    rows = []
    for n, response_id in enumerate(response_ids):
        grade = ranked[n, 0]
        response = {
            "response_id": response_id,
            "score": float(scores[grade]),
            "probability": float(likely[n, grade]),
            "logit": float(logits[n, grade]),
            "runner_up": float(scores[ranked[n, 1]]) if len(scores) > 1 else None,
        }
        words = looked_at(texts[n], attention[n])
        for k, criterion_id in enumerate(concepts.ids):
            likely_levels = levels[n, k, : concepts.tops[k] + 1].tolist()
            concept = {"criterion_id": criterion_id, "level_probabilities": likely_levels, "attention": words[k]}
            rows.append({**response, **concept, **{name: float(values[n, k]) for name, values in numbers.items()}})
        bias = {"criterion_id": BIAS, "contribution": float(head.bias[grade]), "attention": []}
        rows.append({**response, **unknown, **bias})
    return rows


def looked_at(text: str, attention: Attention) -> list[list[dict[str, float]]]:
    """The words of a response that each concept looks at most, heaviest first, at most `MOST` of each: rows as the
    contract `Attended` has them. A word's weight is the sum of its tokens' weights."""
    if not len(attention.spans):
        return [[] for _ in attention.weights]
    first = _words(text, attention.spans)
    weights = np.add.reduceat(attention.weights, first, axis=1)
    starts = np.minimum.reduceat(attention.spans[:, 0], first)
    ends = np.maximum.reduceat(attention.spans[:, 1], first)
    # Some tokenizers count the space before a word to it.
    words = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    starts += [len(word) - len(word.lstrip()) for word in words]
    weights[:, starts == ends] = 0
    heaviest: list[list[dict[str, float]]] = [[] for _ in weights]
    for found, of_concept in zip(heaviest, weights, strict=True):
        for word in np.argsort(-of_concept, kind="stable")[:MOST]:
            if of_concept[word] > 0:
                span = {"start": int(starts[word]), "end": int(ends[word])}
                found.append({**span, "weight": float(of_concept[word])})
    return heaviest


def contribution_error(rows: Iterable[Fields]) -> float:
    """The largest difference, over responses, between the sum of the contributions and the logit that they make up; 0
    without rows."""
    logits: dict[str, float] = {}
    sums: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        logits[row["response_id"]] = row["logit"]
        sums[row["response_id"]] += row["contribution"]
    return max((abs(sums[response] - logit) for response, logit in logits.items()), default=0.0)


def _words(text: str, spans: Ints) -> list[int]:
    """The first token of each word: one that goes on where the token before it ends, letter to letter, or that shares a
    character with it, belongs to the same word."""
    before, first = -1, []
    for token, (start, end) in enumerate(spans.tolist()):
        goes_on = start == before < end and text[start - 1].isalnum() and text[start].isalnum()
        if not goes_on and start >= before:
            first.append(token)
        before = max(before, end)
    return first
