"""Two published bottleneck models for text, as graders to compare with.

CB-LLM (Sun et al., 2025, "Concept bottleneck large language models"), adapted: concepts are scored by a sentence
encoder, learned by a layer on the mean state, and graded by a sparse linear head. No person's concept label is used.

Taken over: automatic concept scores by similarity of sentence embeddings; the cubed cosine loss, features and targets
centred over the concepts; standardised activations cut off at 0 before the head; its elastic net, α = 0.99 with a
strength of 0.0007. Adapted: a response scores by the sentence of it that is most like a concept, as a response is
longer than a concept; the encoder is the study's, frozen or tuned; scikit-learn fits the head. Left out on purpose: the
original's correction of concept scores, which sets to 0 what does not belong to the response's class and so writes the
training label into the concepts.

CT-CBM (Bhan et al., 2025, "Towards achieving concept completeness for textual concept bottleneck models"), adapted:
concepts found in the text join the given ones until the grade is explained as well as it can be.

Taken over: the loop. Once a joint bottleneck model is trained, a residual connection, a linear layer from the
representation straight to the grade with a ridge penalty of 0.01, is fitted to what the model lacks. Where it does not
make the grades of the calibration split better, the concepts are complete. Otherwise the candidate joins that the layer
makes most use of and that is best told from the representation, by its activation vector (difference of mean
representations), and all is trained anew. Predictions never see the layer. Adapted: the first concepts are the
rubric's; candidates are frequent words and word pairs, where theirs are topics worded by a small language model;
importance and identifiability are multiplied, and taken anew in every round; "better" is macro-F1; of all rounds the
best on the calibration split is kept; a tuned encoder moves with the given concepts only and stands still in the loop.

Estimates hold the given concepts alone, as all methods are measured on the same ones. The grade rests on the found ones
too, so that there is no head over the estimates' shares to intervene on. What was found stands in the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import rankdata
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor, nn
from torch.nn.functional import normalize

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.methods.bottleneck.baselines import Pooled, mean_state, plain_loss, pooled, train_jointly
from rubricflow.tasks.methods.bottleneck.data import Concepts, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import (
    Trained,
    concept_estimates,
    grade_validation,
    narrowed,
    parameter_count,
    rows_with,
)
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
    weights = encoder.state_dict()
    parameters = parameter_count(layer, encoder) + head.numbers
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


RIDGE = 0.01
"""Weight of the residual layer's squared weights."""
MOST = 10
"""Concepts that may join."""
_FREQUENT = (0.02, 0.9)
"""Least and largest share of the training responses that a candidate stands in."""
_FEWEST = 5
"""Least number of them."""
_CANDIDATES = 1_000


@dataclass(frozen=True)
class Bank:
    """The candidates."""

    words: tuple[str, ...]
    """C words and pairs of words."""
    present: Bools
    """(n, C) which responses hold them."""


def ct_cbm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    texts: Sequence[str],
) -> Trained:
    """Trains with the given concepts, then with one more in each round.

    texts: (n,) responses, of which the training ones give candidates. InputError as for the vanilla model.
    """
    data, encoder = narrowed(data, plan.concepts), pooled(encoder)
    plan = plan.model_copy(update={"concepts": None})  # found ones are no longer cut off
    train = partial(train_jointly, plan=plan, seed=seed, loss=plain_loss(plan))
    first = train(data, encoder)
    weights = encoder.state_dict()
    tops = data.concepts.tops
    still = Pooled(encoder)
    bank = candidates(texts, data.rows("train"))
    rounds: list[Trained] = [first]
    joined: list[int] = []  # columns of the bank, in the order in which they joined, one in each round
    while len(rounds) <= min(MOST, len(bank.words)):
        target = _next_concept(rounds[-1], joined, data, still, bank)
        if target is None:
            break
        joined.append(target)
        rounds.append(train(_extended(data, bank, joined), still))
    best = max(rounds, key=lambda trained: trained.validation or 0.0)
    reader, head = best.concept_encoder, best.head
    assert reader is not None
    assert head is not None

    def estimate(encoder: StateEncoder, rows: Ints) -> Estimates:
        extended = concept_estimates(reader, head, encoder, rows)
        assert extended.levels is not None
        return Estimates(extended.levels[:, : len(tops), : tops.max() + 1], extended.grades)

    history = []
    for number, trained in enumerate(rounds):
        found = [bank.words[column] for column in joined[:number]]
        history += [{**entry, "found": found} for entry in trained.history]
    later_epochs = sum(trained.epochs[0] for trained in rounds[1:])
    return replace(
        best,
        concept_encoder=None,
        head=None,
        encoder_state=weights,
        epochs=(first.epochs[0], later_epochs),
        parameters=parameter_count(reader, encoder) + head.weights.size + head.bias.size,
        history=history,
        estimate=estimate,
    )


def candidates(texts: Sequence[str], rows: Ints) -> Bank:
    """The words and pairs of words that enough of some responses hold, and not nearly all; the most frequent first."""
    least = max(_FEWEST, round(_FREQUENT[0] * len(rows)))
    largest = round(_FREQUENT[1] * len(rows))
    count: Counter[str] = Counter()
    for row in rows:
        count.update(_phrases(texts[row]))
    frequent_first = sorted(count.items(), key=lambda entry: (-entry[1], entry[0]))
    words = [word for word, n in frequent_first if least <= n <= largest]
    column_of = {word: column for column, word in enumerate(words[:_CANDIDATES])}
    present = np.zeros((len(texts), len(column_of)), bool)
    for row, text in enumerate(texts):
        columns = [column_of[phrase] for phrase in _phrases(text) if phrase in column_of]
        present[row, columns] = True
    return Bank(tuple(column_of), present)


def targeted(weights: Floats, means: Floats, present: Bools) -> Floats:
    """(C,) what speaks for each candidate: importance for the grade's residual times identifiability.

    weights: (S + 1, d) of the residual layer; means: (n, d) representations; present: (n, C), each in some responses
    and not in all. With v the difference of the mean representations with and without a candidate, its importance is
    the length of what v adds to the residual logits, of which a constant is no matter, times the standard deviation of
    its presence, as what few responses hold explains little; its identifiability is 2·AUC − 1 of the projection on v.
    """
    holders = present.sum(axis=0)
    lacking = len(present) - holders
    vectors = present.T @ means / holders[:, None] - (~present).T @ means / lacking[:, None]
    importance = np.linalg.norm(vectors @ (weights - weights.mean(axis=0)).T, axis=1) * present.std(axis=0)
    ranks = rankdata(means @ vectors.T, axis=0)
    area = ((ranks * present).sum(axis=0) / holders - (holders + 1) / 2) / lacking
    speaks: Floats = importance * (2 * area - 1)
    return speaks


def residual(likely: Floats, means: Floats, grades: Ints) -> tuple[Floats, Floats]:
    """Weights (S + 1, d) and bias (S + 1,) of the linear layer that, added to the logits of a grader, explains the
    grades best: least mean cross-entropy plus the ridge penalty on the weights.

    likely: (n, S + 1) the grader's probabilities; means: (n, d) representations; grades: (n,) none of them MISSING.
    """
    logits = _logits(likely)
    right = np.eye(likely.shape[1])[grades]
    inputs = np.hstack([means, np.ones((len(means), 1))])
    shape = (likely.shape[1], inputs.shape[1])
    penalised = np.arange(inputs.shape[1]) < means.shape[1]

    def cost(flat: Floats) -> tuple[float, Floats]:
        layer = flat.reshape(shape)
        scores = logits + inputs @ layer.T
        lost = (logsumexp(scores, axis=1) - (scores * right).sum(axis=1)).mean()
        slope = (softmax(scores, axis=1) - right).T @ inputs / len(inputs)
        weights = layer * penalised
        return lost + RIDGE * (weights**2).sum(), (slope + 2 * RIDGE * weights).ravel()

    layer = minimize(cost, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x.reshape(shape)
    return layer[:, :-1], layer[:, -1]


def _next_concept(last: Trained, joined: list[int], data: LabelledData, still: Pooled, bank: Bank) -> int | None:
    """The candidate that joins; None where the residual connection grades the calibration split no better."""
    rows, validation_rows = rows_with(data, "train", "grade"), rows_with(data, "calibration", "grade")
    means = still.means.astype(np.float64)
    weights, bias = residual(last.predict(still, rows).grades, means[rows], data.grades[rows])
    before = last.predict(still, validation_rows).grades
    after = softmax(_logits(before) + means[validation_rows] @ weights.T + bias, axis=1)
    measures = [grade_validation(likely, data.grades[validation_rows])[0] for likely in (before, after)]
    if measures[1] <= measures[0]:
        return None
    train = data.rows("train")
    speaks = targeted(weights, means[train], bank.present[train])
    speaks[joined] = -np.inf
    return int(speaks.argmax())


def _logits(likely: Floats) -> Floats:
    """Logits of probabilities, none of which counts as 0."""
    logits: Floats = np.log(np.maximum(likely, 1e-12))
    return logits


def _extended(data: LabelledData, bank: Bank, joined: list[int]) -> LabelledData:
    """The labels with presence in the text as concepts of two levels."""
    rubric = data.concepts
    words = tuple(bank.words[column] for column in joined)
    anchors = rubric.anchors + (("absent", "present"),) * len(joined)
    concepts = Concepts(rubric.ids + words, rubric.names + words, rubric.texts + words, anchors)
    present = bank.present[:, joined]
    levels = np.hstack([data.levels, present]).astype(np.int64)
    weights = np.hstack([data.weights, np.ones(present.shape)])
    return replace(data, concepts=concepts, levels=levels, weights=weights)


def _phrases(text: str) -> set[str]:
    """Words and pairs of neighbouring words."""
    words = tokens(text)
    return {*words, *(" ".join(pair) for pair in pairwise(words))}
