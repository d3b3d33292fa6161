"""CT-CBM (Bhan et al., 2025, "Towards achieving concept completeness for textual concept bottleneck models"), adapted:
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

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import rankdata

from tasks.bottleneck.data import Concepts, Estimates, LabelledData
from tasks.bottleneck.fit import Trained, grade_validation, narrowed, rows_with
from tasks.bottleneck.plm import Pooled, numbers, pooled
from tasks.bottleneck.states import Say, StateEncoder, quiet
from tasks.bottleneck.vanilla import estimates, plain_loss, train_jointly
from tasks.contracts.settings.bottleneck import Training
from tasks.stats.arrays import Bools, Floats, Ints
from tasks.text.tokens import tokens

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


@dataclass(frozen=True)
class _Round:
    """A joint model with some of the candidates."""

    trained: Trained
    found: tuple[int, ...]
    """Their columns in the bank, in the order in which they joined."""

    @property
    def measure(self) -> float:
        """Macro-F1 of the grade on the calibration split."""
        return self.trained.validation or 0.0


def ct_cbm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    texts: Sequence[str],
    method: str = "ct_cbm",
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains with the given concepts, then with one more in each round.

    texts: (n,) responses, of which the training ones give candidates. InputError as for the vanilla model.
    """
    began = time.perf_counter()
    data, encoder = narrowed(data, plan.concepts), pooled(encoder)
    plan = plan.model_copy(update={"concepts": None})  # found ones are no longer cut off
    train = partial(train_jointly, plan=plan, seed=seed, loss=plain_loss(plan), method=method, setting=setting, say=say)
    first = train(data, encoder)
    weights, given = encoder.state_dict(), data.concepts.tops
    still = encoder if isinstance(encoder, Pooled) else Pooled(encoder)
    bank = candidates(texts, data.rows("train"))
    rounds = [_Round(first, ())]
    while len(rounds) <= min(MOST, len(bank.words)):
        target = _next(rounds[-1], data, still, bank)
        if target is None:
            break
        found = (*rounds[-1].found, target)
        rounds.append(_Round(train(_extended(data, bank, found), still), found))
        say(f"'{bank.words[target]}' joins the concepts: validation {rounds[-1].measure:.4f}")
    best = max(rounds, key=lambda one: one.measure).trained
    reader, head = best.concept_encoder, best.head
    assert reader is not None
    assert head is not None

    def predict(encoder: StateEncoder, rows: Ints) -> Estimates:
        encoder.load_state_dict(weights)
        all_ = estimates(reader, head, encoder, rows)
        assert all_.levels is not None
        return Estimates(all_.levels[:, : len(given), : given.max() + 1], all_.grades)

    return replace(
        best,
        concept_encoder=None,
        head=None,
        encoder_state=weights,
        epochs=(first.epochs[0], sum(one.trained.epochs[0] for one in rounds[1:])),
        parameters=numbers(reader, encoder) + head.weights.size + head.bias.size,
        seconds=time.perf_counter() - began,
        history=[{**entry, "found": _names(one, bank)} for one in rounds for entry in one.trained.history],
        predict=predict,
    )


def candidates(texts: Sequence[str], rows: Ints) -> Bank:
    """The words and pairs of words that enough of some responses hold, and not nearly all; the most frequent first."""
    least, largest = max(_FEWEST, round(_FREQUENT[0] * len(rows))), round(_FREQUENT[1] * len(rows))
    count = Counter(phrase for row in rows for phrase in _phrases(texts[row]))
    words = [word for word, n in sorted(count.items(), key=lambda one: (-one[1], one[0])) if least <= n <= largest]
    column = {word: at for at, word in enumerate(words[:_CANDIDATES])}
    present = np.zeros((len(texts), len(column)), bool)
    for row, text in enumerate(texts):
        present[row, [column[phrase] for phrase in _phrases(text) if phrase in column]] = True
    return Bank(tuple(column), present)


def targeted(weights: Floats, means: Floats, present: Bools) -> Floats:
    """(C,) what speaks for each candidate: importance for the grade's residual times identifiability.

    weights: (S + 1, d) of the residual layer; means: (n, d) representations; present: (n, C), each in some responses
    and not in all. With v the difference of the mean representations with and without a candidate, its importance is
    the length of what v adds to the residual logits, of which a constant is no matter, times the standard deviation of
    its presence, as what few responses hold explains little; its identifiability is 2·AUC − 1 of the projection on v.
    """
    held = present.sum(axis=0)
    lacking = len(present) - held
    vectors = present.T @ means / held[:, None] - (~present).T @ means / lacking[:, None]
    importance = np.linalg.norm(vectors @ (weights - weights.mean(axis=0)).T, axis=1) * present.std(axis=0)
    ranks = rankdata(means @ vectors.T, axis=0)
    area = ((ranks * present).sum(axis=0) / held - (held + 1) / 2) / lacking
    speaks: Floats = importance * (2 * area - 1)
    return speaks


def residual(likely: Floats, means: Floats, grades: Ints) -> tuple[Floats, Floats]:
    """Weights (S + 1, d) and bias (S + 1,) of the linear layer that, added to the logits of a grader, explains the
    grades best: least mean cross-entropy plus the ridge penalty on the weights.

    likely: (n, S + 1) the grader's probabilities; means: (n, d) representations; grades: (n,) none of them MISSING.
    """
    logits, right = _logits(likely), np.eye(likely.shape[1])[grades]
    inputs = np.hstack([means, np.ones((len(means), 1))])
    shape, penalised = (likely.shape[1], inputs.shape[1]), np.arange(inputs.shape[1]) < means.shape[1]

    def cost(flat: Floats) -> tuple[float, Floats]:
        layer = flat.reshape(shape)
        scores = logits + inputs @ layer.T
        lost = (logsumexp(scores, axis=1) - (scores * right).sum(axis=1)).mean()
        slope = (softmax(scores, axis=1) - right).T @ inputs / len(inputs)
        held = layer * penalised
        return lost + RIDGE * (held**2).sum(), (slope + 2 * RIDGE * held).ravel()

    layer = minimize(cost, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x.reshape(shape)
    return layer[:, :-1], layer[:, -1]


def _next(last: _Round, data: LabelledData, still: Pooled, bank: Bank) -> int | None:
    """The candidate that joins; None where the residual connection grades the calibration split no better."""
    rows, held = rows_with(data, "train", "grade"), rows_with(data, "calibration", "grade")
    means = still.means.astype(np.float64)
    weights, bias = residual(last.trained.predict(still, rows).grades, means[rows], data.grades[rows])
    before = last.trained.predict(still, held).grades
    after = softmax(_logits(before) + means[held] @ weights.T + bias, axis=1)
    if grade_validation(after, data.grades[held])[0] <= grade_validation(before, data.grades[held])[0]:
        return None
    train = data.rows("train")
    speaks = targeted(weights, means[train], bank.present[train])
    speaks[list(last.found)] = -np.inf
    return int(speaks.argmax())


def _logits(likely: Floats) -> Floats:
    """Logits of probabilities, none of which counts as 0."""
    logits: Floats = np.log(np.maximum(likely, 1e-12))
    return logits


def _extended(data: LabelledData, bank: Bank, found: tuple[int, ...]) -> LabelledData:
    """The labels with presence in the text as concepts of two levels."""
    given, words = data.concepts, tuple(bank.words[at] for at in found)
    more = (("absent", "present"),) * len(found)
    return replace(
        data,
        concepts=Concepts(given.ids + words, given.names + words, given.texts + words, given.anchors + more),
        levels=np.hstack([data.levels, bank.present[:, list(found)]]).astype(np.int64),
        weights=np.hstack([data.weights, np.ones((len(data.levels), len(found)))]),
    )


def _phrases(text: str) -> set[str]:
    """Words and pairs of neighbouring words."""
    words = tokens(text)
    return {*words, *(" ".join(pair) for pair in pairwise(words))}


def _names(one: _Round, bank: Bank) -> list[str]:
    return [bank.words[at] for at in one.found]
