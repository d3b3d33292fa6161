"""How a grade came about: what each concept of a response was seen as, where, and what it adds to the grade's logit.

The head is linear behind the bottleneck, so that the decomposition is exact (REC-CBM, section 5.7 and appendix E.5):
logit = bias + Σ_k W[grade, k]·μ_post,k.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import Concepts

# The grade head with its error correction, as plain arrays: what a person moves, a page draws and a trace adds up.


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


BIAS = "bias"
"""What stands in place of a concept for what the head adds whatever the response says."""
MOST = 12
"""Words kept per concept."""


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
) -> list[dict[str, Any]]:
    """Rows of the table `traces` of n responses: one for each concept, in order, and one for the bias.

    texts: n texts of the responses; scores: (S + 1,) as `LabelledData.scores`; levels: (n, K, M + 1) as
    `Estimates.levels`. InputError for a concept that is called as the bias is.
    """
    if BIAS in concepts.ids:
        raise InputError(f"a concept cannot be called '{BIAS}': a trace calls something else so", field="rubrics")
    expected = levels @ np.arange(levels.shape[2], dtype=np.float64)
    shares = expected / concepts.tops
    corrected, logits, likely = head.posterior(shares), head.logits(shares), head.probabilities(shares)
    ranked = np.argsort(-logits, axis=1, kind="stable")
    added = head.contributions(shares, ranked[:, 0])
    numbers = {"expected": expected, "share": shares, "corrected": corrected, "contribution": added}
    unknown = dict.fromkeys(("level_probabilities", "expected", "share", "corrected"))
    rows: list[dict[str, Any]] = []
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
    return [_heaviest(starts, ends, of_concept) for of_concept in weights]


def _heaviest(starts: Ints, ends: Ints, weights: Floats) -> list[dict[str, float]]:
    """The words of the largest weights, heaviest first; all (words,)."""
    words = []
    for word in np.argsort(-weights, kind="stable")[:MOST]:
        if weights[word] > 0:
            words.append({"start": int(starts[word]), "end": int(ends[word]), "weight": float(weights[word])})
    return words


def contribution_error(rows: Iterable[Mapping[str, Any]]) -> float:
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
