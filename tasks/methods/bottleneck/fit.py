"""REC-CBM's training in two stages (Algorithm 1), and what every trained method gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.core.stats.agreement import macro_f1
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, Estimates, LabelledData, shares_of
from rubricflow.tasks.methods.bottleneck.loop import (
    Course,
    Losses,
    concept_loss,
    denoising_loss,
    minimise,
    ranking_loss,
    read,
    sparsity_loss,
    task_loss,
    train_on_states,
)
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, Head, LatentHead, expected_levels
from rubricflow.tasks.methods.bottleneck.states import StateEncoder, batches

_LEAST = 1e-12
"""No probability counts as less in a validation loss, which must stay finite."""


@dataclass(frozen=True)
class Trained:
    """A trained grader."""

    encoder_state: dict[str, Tensor] | None
    """The tuned encoder's weights at the epoch chosen; None where it is frozen."""
    epochs: tuple[int, int]
    """Epochs run in Stage I, or the only one, and in Stage II."""
    validation: float | None
    """Macro-F1 of the grade on the calibration split at the epoch chosen; None where training broke down."""
    parameters: int
    """Numbers trained."""
    history: list[Record]
    """One entry an epoch, see `Course`."""
    estimate: Callable[[StateEncoder, Ints], Estimates]
    """Estimates for rows of an encoder with the weights above, in their order."""
    concept_encoder: ConceptEncoder | None = None
    """In evaluation mode, in main memory; None where a method reads concepts in another way, or has none."""
    head: Head | None = None
    """None where no linear head over shares makes the grade."""

    def predict(self, encoder: StateEncoder, rows: Ints) -> Estimates:
        """Estimates for rows of an encoder, in their order; a tuned one takes its weights first."""
        encoder.load_state_dict(self.encoder_state)
        return self.estimate(encoder, rows)


def rec_cbm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    race: bool = True,
    opcc: bool = True,
    lcec: bool = True,
) -> Trained:
    """Trains REC-CBM, or an ablation of it, on the train split (section 4.4, Algorithm 1).

    encoder: of all responses, in the rows of `data`. race, opcc, lcec: whether concepts have queries of their own,
    whether pairs are ranked, whether the head corrects errors. With `plan.concepts`, concepts beyond the first so many
    are left out, of the estimates too.

    Stage I trains on responses with a concept label and keeps the epoch with the best mean macro-F1 of the concepts on
    the calibration split, as there is no grade yet. Stage II trains on the estimates of Stage I, computed once, and
    keeps the epoch with the best macro-F1 of the grade there. InputError where a split has no labels to train on or to
    choose by.
    """
    data = narrowed(data, plan.concepts)
    for split in ("train", "calibration"):  # before hours go into Stage I
        rows_with(data, split, "grade")
    tops = data.concepts.tops
    reader = ConceptEncoder(encoder.width, tops, plan.temperature, race, plan.width, seed)
    course_1 = _stage_1(reader, encoder, data, plan, seed, opcc=opcc)
    head = LatentHead(len(tops), len(data.scores), plan.epsilon, lcec).double()
    course_2 = _stage_2(head, reader, encoder, data, plan, seed=seed)
    return Trained(
        encoder_state=encoder.state_dict(),
        epochs=(course_1.epochs, course_2.epochs),
        validation=course_2.validation,
        parameters=parameter_count(reader, encoder) + head.numbers,
        history=[*course_1.history, *course_2.history],
        estimate=partial(concept_estimates, reader, head.as_head()),
        concept_encoder=reader.cpu(),
        head=head.as_head(),
    )


def concept_estimates(reader: ConceptEncoder, head: Head, encoder: StateEncoder, rows: Ints) -> Estimates:
    """The levels of some rows, and the grades that follow from their shares alone."""
    levels = concept_levels(reader, encoder, rows)
    shares = shares_of(levels, reader.tops.cpu().numpy())
    return Estimates(levels, head.probabilities(shares, calibrated=False))


def parameter_count(model: nn.Module, encoder: StateEncoder) -> int:
    """Numbers trained."""
    return sum(parameter.numel() for parameter in [*model.parameters(), *encoder.parameters()])


def rows_with(data: LabelledData, split: str, label: Literal["concept", "grade"]) -> Ints:
    """Rows of a split that have a label of some concept, or of the grade; InputError where none has."""
    rows = data.rows(split)
    labelled = data.grades != MISSING if label == "grade" else (data.levels != MISSING).any(axis=1)
    usable: Ints = rows[labelled[rows]]
    if not len(usable):
        rule = f"no response of the {split} split has a {label} label; graders are trained on the train split and "
        raise InputError(rule + "chosen by the calibration split", field="split")
    return usable


def concept_levels(model: ConceptEncoder, encoder: StateEncoder, rows: Ints) -> Floats:
    """(len(rows), K, M + 1) probability of each level (Eq. 11) in the order of `rows`, without gradients."""
    return read(lambda states, mask: model(states, mask).double().softmax(2), encoder, rows, model.tops.device)


def grade_validation(grades: Floats, labels: Ints) -> tuple[float, float]:
    """(macro-F1, mean cross-entropy) of grade probabilities (n, S + 1) for labels (n,), none of them MISSING.

    Macro-F1 is `tasks.core.stats.agreement.macro_f1`: over the grades that are given or right at least once, so that
    one which is never right but given counts 0, and one that is neither does not count.
    """
    likely = np.maximum(grades[np.arange(len(labels)), labels], _LEAST)
    measure = macro_f1(labels, grades.argmax(axis=1), 0, grades.shape[1] - 1).value
    return measure or 0.0, float(-np.log(likely).mean())


def concept_validation(levels: Floats, labels: Ints, tops: Ints) -> tuple[float, float]:
    """(macro-F1, mean over concepts; mean cross-entropy) of level probabilities (n, K, M + 1) for labels (n, K).

    Labels that are MISSING are left out, and so are concepts without any other.
    """
    labelled = labels != MISSING
    n, k = np.nonzero(labelled)
    likely = np.maximum(levels[n, k, labels[labelled]], _LEAST)
    chosen = levels.argmax(axis=2)
    scores = []
    for concept, rows in enumerate(labelled.T):
        if rows.any():
            scores.append(macro_f1(labels[rows, concept], chosen[rows, concept], 0, int(tops[concept])).value or 0.0)
    return float(np.mean(scores)), float(-np.log(likely).mean())


def narrowed(data: LabelledData, count: int | None) -> LabelledData:
    """The same labels with the first `count` concepts only; all of them for None."""
    if count is None:
        return data
    rubric = data.concepts
    concepts = Concepts(rubric.ids[:count], rubric.names[:count], rubric.texts[:count], rubric.anchors[:count])
    return replace(data, concepts=concepts, levels=data.levels[:, :count], weights=data.weights[:, :count])


def _stage_1(
    reader: ConceptEncoder, encoder: StateEncoder, data: LabelledData, plan: Training, seed: int, opcc: bool
) -> Course:
    """Learns to read concepts (Eq. 27)."""
    rows, validation_rows = rows_with(data, "train", "concept"), rows_with(data, "calibration", "concept")
    levels = torch.from_numpy(data.levels)
    weights = torch.from_numpy(data.weights).float()

    def loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        logits = reader(states, mask)
        right = levels[batch].to(states.device)
        terms = {"concept": plan.concept_weight * concept_loss(logits, right, weights[batch].to(states.device))}
        if opcc:
            terms["ranking"] = plan.ranking_weight * ranking_loss(expected_levels(logits), right)
        return terms

    def validate() -> tuple[float, float]:
        found = concept_levels(reader, encoder, validation_rows)
        return concept_validation(found, data.levels[validation_rows], data.concepts.tops)

    return train_on_states(reader, encoder, rows, loss, validate, plan=plan, seed=seed)


def _stage_2(
    head: LatentHead, reader: ConceptEncoder, encoder: StateEncoder, data: LabelledData, plan: Training, seed: int
) -> Course:
    """Learns to correct concepts and to grade (Eq. 28), on the estimates of Stage I, read once."""
    rows = data.rows("train")
    rows = rows[(data.grades[rows] != MISSING) | (data.levels[rows] != MISSING).any(axis=1)]
    validation_rows = rows_with(data, "calibration", "grade")
    tops = torch.from_numpy(data.concepts.tops)
    shares, validation_shares = (
        torch.from_numpy(shares_of(concept_levels(reader, encoder, some), data.concepts.tops))
        for some in (rows, validation_rows)
    )
    grades = torch.from_numpy(data.grades[rows])
    levels = torch.from_numpy(data.levels[rows])
    weights = torch.from_numpy(data.weights[rows])
    rng = torch.Generator().manual_seed(seed)

    def loss(batch: Ints) -> Losses:
        logits, posterior = head(shares[batch])
        terms = {"task": plan.task_weight * task_loss(logits, grades[batch])}
        if head.factor is not None:
            away = denoising_loss(posterior, levels[batch], tops, weights[batch])
            terms["denoising"] = plan.denoising_weight * away
            terms["sparsity"] = plan.sparsity_weight * sparsity_loss(head.factor)
        return terms

    def validate() -> tuple[float, float]:
        with torch.inference_mode():
            likely = head(validation_shares)[0].softmax(1).numpy()
        return grade_validation(likely, data.grades[validation_rows])

    others = [parameter for parameter in (head.bias, head.factor, head.log_noise) if parameter is not None]
    groups = [
        {"params": [head.weights], "lr": plan.head_learning_rate_2, "weight_decay": plan.weight_decay},
        # The sparsity loss shrinks L already; a decayed noise would be drawn to 1.
        {"params": others, "lr": plan.head_learning_rate_2, "weight_decay": 0.0},
    ]
    alike = np.ones(len(rows), np.int64)  # nothing is padded here
    return minimise(groups, lambda: batches(alike, plan.batch_size, rng), loss, validate, plan, stage=2)
