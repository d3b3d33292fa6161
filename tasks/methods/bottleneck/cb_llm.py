"""CB-LLM (Sun et al., 2025, "Concept bottleneck large language models"), adapted: concepts are scored by a sentence
encoder, learned by a layer on the mean state, and graded by a sparse linear head. No person's concept label is used.

Taken over: automatic concept scores by similarity of sentence embeddings; the cubed cosine loss, features and targets
centred over the concepts; standardised activations cut off at 0 before the head; its elastic net, α = 0.99 with a
strength of 0.0007. Adapted: a response scores by the sentence of it that is most like a concept, as a response is
longer than a concept; the encoder is the study's, frozen or tuned; scikit-learn fits the head. Left out on purpose: the
original's correction of concept scores, which sets to 0 what does not belong to the response's class and so writes the
training label into the concepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor, nn
from torch.nn.functional import normalize

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.methods.bottleneck.baselines import mean_state, pooled
from rubricflow.tasks.methods.bottleneck.data import Concepts, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import Trained, grade_validation, narrowed, parameter_count, rows_with
from rubricflow.tasks.methods.bottleneck.loop import Losses, read, train_on_states
from rubricflow.tasks.methods.bottleneck.states import StateEncoder

Embed = Callable[[Sequence[str]], np.ndarray]
ELASTIC = 0.99
"""α, the share of the L1 penalty."""
STRENGTH = 0.0007
"""Weight of the penalty, that of the mean loss of a response being 1."""
_ITERATIONS = 5_000


class ConceptLayer(nn.Module):
    """Mean token state → one activation for each concept."""

    def __init__(self, width: int, concepts: int, seed: int) -> None:
        super().__init__()
        first = torch.randn(concepts, width, generator=torch.Generator().manual_seed(seed))
        self.weights = nn.Parameter(first / width**0.5)
        self.bias = nn.Parameter(torch.zeros(concepts))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, K) of states (B, T, d) and mask (B, T)."""
        return mean_state(states, mask) @ self.weights.T + self.bias


class SparseHead:
    """Activations → grade probabilities, by an elastic-net logistic regression on their standardised positive part."""

    def __init__(self, activations: Floats, grades: Ints, classes: int, seed: int) -> None:
        """activations: (n, K); grades: (n,) none of them MISSING; classes: S + 1."""
        self._classes, self._grades = classes, np.unique(grades)
        self.model: Any = DummyClassifier()  # where all have one grade
        if len(self._grades) > 1:
            strength = 1 / (STRENGTH * len(grades))
            self.model = LogisticRegression(
                C=strength, l1_ratio=ELASTIC, solver="saga", max_iter=_ITERATIONS, random_state=seed
            )
        positive = FunctionTransformer(lambda standard: np.maximum(standard, 0))
        self._pipeline = make_pipeline(StandardScaler(), positive, self.model).fit(activations, grades)

    @property
    def numbers(self) -> int:
        """Numbers that are not 0."""
        coefficients = [getattr(self.model, name, 0) for name in ("coef_", "intercept_")]
        return sum(int(np.count_nonzero(values)) for values in coefficients)

    def __call__(self, activations: Floats) -> Floats:
        """(n, S + 1) of activations (n, K); 0 for a grade that no training response has."""
        likely = np.zeros((len(activations), self._classes))
        likely[:, self._grades] = self._pipeline.predict_proba(activations)
        return likely


def cb_llm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    texts: Sequence[str],
    embed: Embed,
) -> Trained:
    """Trains the concept layer on automatic scores, then the sparse head on what the layer says.

    texts: (n,) responses; embed: texts to unit vectors. The layer keeps the epoch with the best mean cubed cosine on
    the calibration split, as there is no grade yet. `plan.width` is not used. InputError where a split has no grade, or
    for a single concept: centred over the concepts nothing of it is left.
    """
    data, encoder = narrowed(data, plan.concepts), pooled(encoder)
    rows, validation_rows = rows_with(data, "train", "grade"), rows_with(data, "calibration", "grade")
    if len(data.concepts.ids) < 2:
        raise InputError("cb_llm needs two concepts at least", field="methods")
    targets = torch.from_numpy(concept_scores(texts, data.concepts, embed)).float()
    layer = ConceptLayer(encoder.width, len(data.concepts.ids), seed)

    def activations(rows: Ints) -> Floats:
        return read(layer, encoder, rows, layer.bias.device)

    def loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        return {"concept": -cubed_cosine(layer(states, mask), targets[batch].to(states.device)).mean()}

    def validate() -> tuple[float, float]:
        found = torch.from_numpy(activations(validation_rows)).float()
        alike = float(cubed_cosine(found, targets[validation_rows]).mean())
        return alike, -alike

    course = train_on_states(layer, encoder, data.rows("train"), loss, validate, plan=plan, seed=seed)
    head = SparseHead(activations(rows), data.grades[rows], len(data.scores), seed)
    validation, _ = grade_validation(head(activations(validation_rows)), data.grades[validation_rows])
    weights, parameters = encoder.state_dict(), parameter_count(layer, encoder) + head.numbers
    layer.cpu()

    def estimate(encoder: StateEncoder, rows: Ints) -> Estimates:
        return Estimates(None, head(read(layer, encoder, rows, layer.bias.device)))

    return Trained(weights, (course.epochs, 0), validation, parameters, course.history, estimate)


def concept_scores(texts: Sequence[str], concepts: Concepts, embed: Embed) -> Floats:
    """(n, K) cosine of each concept with the sentence of a response that is most like it; 0 for an empty response.

    A concept is embedded as its text followed by its highest anchor.
    """
    scores = np.zeros((len(texts), len(concepts.ids)))
    sentences = [[text[unit.start : unit.end] for unit in units(text) if unit.kind == "sentence"] for text in texts]
    lengths = np.array([len(of_text) for of_text in sentences], np.int64)
    if not lengths.any():
        return scores
    descriptions = [f"{text} {anchors[-1]}" for text, anchors in zip(concepts.texts, concepts.anchors, strict=True)]
    vectors = embed(descriptions)
    alike = embed(list(chain.from_iterable(sentences))) @ vectors.T
    starts = np.cumsum(lengths) - lengths
    scores[lengths > 0] = np.maximum.reduceat(alike, starts[lengths > 0], axis=0)
    return scores


def cubed_cosine(activations: Tensor, targets: Tensor) -> Tensor:
    """(B,) cosine of the cubes of two (B, K), each centred over the concepts; 1 where they are alike."""
    cubes = [(values - values.mean(1, keepdim=True)) ** 3 for values in (activations, targets)]
    return (normalize(cubes[0], dim=1) * normalize(cubes[1], dim=1)).sum(1)
