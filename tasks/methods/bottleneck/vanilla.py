"""The joint concept bottleneck model to compare with (Koh et al., 2020; REC-CBM, section 3.2): concepts from one shared
representation, a linear head on them, trained together.

Koh et al. pass a concept's logits or probability on; our concepts are ordinal, so that the head gets the expected
level's share s̃ of each, as REC-CBM's does. A person can set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import (
    Trained,
    concept_levels,
    grade_validation,
    narrowed,
    parameter_count,
    rows_with,
)
from rubricflow.tasks.methods.bottleneck.loop import Losses, concept_loss, task_loss, train_on_states
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, LatentHead, expected_levels
from rubricflow.tasks.methods.bottleneck.plm import Pooled, mean_state, pooled
from rubricflow.tasks.methods.bottleneck.states import Say, StateEncoder, quiet
from rubricflow.tasks.methods.bottleneck.trace import Head

MIXING = 0.2
"""Both parameters of the Beta distribution that λ is drawn from: mostly near 0 or 1."""
NOISY = 0.5
"""How much a machine's label counts beside a person's."""


@dataclass(frozen=True)
class Targets:
    """What a batch is labelled with."""

    levels: Tensor
    """(B, K) integers, MISSING where there is none."""
    weights: Tensor
    """(B, K)."""
    grades: Tensor
    """(B,) integers, MISSING where there is none."""

    @classmethod
    def of(cls, data: LabelledData, rows: Ints, device: torch.device) -> Targets:
        """The labels of some rows."""
        labels = data.levels[rows], data.weights[rows].astype(np.float32), data.grades[rows]
        return cls(*(torch.from_numpy(values).to(device) for values in labels))


class Joint(nn.Module):
    """Token states → logits of each concept's levels, by one mean state, and grade logits by the expected levels."""

    def __init__(self, width: int, data: LabelledData, plan: Training, seed: int, tuned: bool) -> None:
        super().__init__()
        self.reader = ConceptEncoder(width, data.concepts.tops, plan.temperature, False, plan.width, seed)
        self.grader = LatentHead(len(data.concepts.ids), len(data.scores), corrects=False)
        # Steps of AdamW do not depend on the gradient's size, so that this factor gives the head a learning rate of its
        # own: at an encoder's 2e-5 its weights would hardly leave 0.
        self.gain = plan.head_learning_rate_2 / (plan.learning_rate if tuned else plan.head_learning_rate)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Level logits (B, K, M + 1) and grade logits (B, S + 1) of states (B, T, d) and mask (B, T)."""
        logits = self.reader(states, mask)
        return logits, self.gain * self.grader(expected_levels(logits) / self.reader.tops)[0]

    def as_head(self) -> Head:
        """The grade head as plain arrays; A is the identity."""
        head = self.grader.as_head()
        return Head(self.gain * head.weights, self.gain * head.bias)


JointLoss = Callable[[Joint, Tensor, Tensor, Targets], Losses]
"""Of the model, states (B, T, d), mask (B, T) and the batch's labels."""


def vanilla_cbm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    method: str = "vanilla_cbm",
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains concepts and grade together (Eq. 6) with the weights λ_c and λ_t.

    Keeps the epoch with the best macro-F1 of the grade on the calibration split. InputError where a split has no grade,
    or the train split no concept label.
    """
    return train_jointly(data, encoder, plan, seed, plain_loss(plan), method=method, setting=setting, say=say)


def joint_loss(logits: tuple[Tensor, Tensor], targets: Targets, plan: Training) -> dict[str, Tensor]:
    """λ_c times the concepts' loss (Eq. 12) and λ_t times the grade's (Eq. 23); their sum is Eq. 6.

    logits: of levels (B, K, M + 1) and of grades (B, S + 1).
    """
    levels, grades = logits
    return {
        "concept": plan.concept_weight * concept_loss(levels, targets.levels, targets.weights),
        "task": plan.task_weight * task_loss(grades, targets.grades),
    }


def plain_loss(plan: Training) -> JointLoss:
    """The joint loss of a batch as it is."""
    return lambda model, states, mask, targets: joint_loss(model(states, mask), targets, plan)


def train_jointly(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    loss: JointLoss,
    *,
    method: str,
    setting: str,
    say: Say,
) -> Trained:
    """Trains a joint model with a loss of its own, on all responses that have a label of any kind."""
    began = time.perf_counter()
    data, encoder = narrowed(data, plan.concepts), pooled(encoder)
    rows, validation_rows = labelled_rows(data), rows_with(data, "calibration", "grade")
    model = Joint(encoder.width, data, plan, seed, bool(encoder.parameters()))

    def batch_loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        return loss(model, states, mask, Targets.of(data, batch, states.device))

    def validate() -> tuple[float, float]:
        estimated = estimates(model.reader, model.as_head(), encoder, validation_rows)
        return grade_validation(estimated.grades, data.grades[validation_rows])

    course = train_on_states(model, encoder, rows, batch_loss, validate, plan=plan, seed=seed, say=say)
    parameters = parameter_count(model, encoder)
    reader, head, weights = model.cpu().reader, model.as_head(), encoder.state_dict()

    def predict(encoder: StateEncoder, rows: Ints) -> Estimates:
        encoder.load_state_dict(weights)
        return estimates(reader, head, encoder, rows)

    return Trained(
        method=method,
        seed=seed,
        setting=setting,
        concept_encoder=reader,
        head=head,
        encoder_state=weights,
        epochs=(course.epochs, 0),
        validation=course.validation,
        parameters=parameters,
        seconds=time.perf_counter() - began,
        history=course.history,
        predict=predict,
    )


def labelled_rows(data: LabelledData) -> Ints:
    """Training rows with a concept's label or a grade; InputError where none has the one, or none the other."""
    either: Ints = np.union1d(rows_with(data, "train", "concept"), rows_with(data, "train", "grade"))
    return either


def estimates(reader: ConceptEncoder, head: Head, encoder: StateEncoder, rows: Ints) -> Estimates:
    """What a joint model says of some rows; all that its head sees are the shares of the levels."""
    levels: Floats = concept_levels(reader, encoder, rows)
    shares = Estimates(levels, levels).shares(reader.tops.cpu().numpy())
    return Estimates(levels, head.probabilities(shares, calibrated=False))


# C3M (Tan et al., 2024, "Interpreting pretrained language models via concept bottlenecks"), adapted: missing concept
# labels are filled in by a machine, and pairs of responses are mixed.


def c3m(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    noisy: Ints | None = None,
    method: str = "c3m",
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains a joint bottleneck model on augmented labels and mixed pairs.

    noisy: (n, K) levels by a machine, MISSING where it gives none, for concepts that no person labelled; those of a
    teacher where not given. InputError as for the vanilla model.
    """
    encoder, rng = pooled(encoder), np.random.default_rng(seed)
    data = augmented(data, pseudo_levels(data, encoder) if noisy is None else noisy)

    def loss(model: Joint, states: Tensor, mask: Tensor, targets: Targets) -> Losses:
        share, order = float(rng.beta(MIXING, MIXING)), torch.from_numpy(rng.permutation(len(states)))
        plain = joint_loss(model(states, mask), targets, plan)
        mixed = mixed_loss(model, mean_state(states, mask), targets, share, order.to(states.device), plan)
        return {name: (plain[name] + mixed[name]) / 2 for name in plain}

    return train_jointly(data, encoder, plan, seed, loss, method=method, setting=setting, say=say)


def augmented(data: LabelledData, noisy: Ints) -> LabelledData:
    """The labels with what a machine (n, K) says of training responses where no person says anything."""
    filled = (data.levels == MISSING) & (noisy != MISSING) & (data.split == "train")[:, None]
    return replace(
        data,
        levels=np.where(filled, noisy, data.levels),
        weights=np.where(filled, NOISY, data.weights),
    )


def pseudo_levels(data: LabelledData, encoder: StateEncoder) -> Ints:
    """(n, K) levels by a teacher where a training response lacks them, MISSING elsewhere.

    The teacher is a logistic regression for each concept on the mean states of the encoder as it was loaded, fitted on
    the training responses that have its label; a concept whose labels are all the same teaches nothing.
    """
    pseudo, train = np.full_like(data.levels, MISSING), data.split == "train"
    unlabelled = train[:, None] & (data.levels == MISSING)
    if not unlabelled.any():
        return pseudo
    encoder.load_state_dict(None)
    means = encoder.means if isinstance(encoder, Pooled) else Pooled(encoder).means
    scaled = StandardScaler().fit(means[train]).transform(means)
    for concept, levels in enumerate(data.levels.T):
        labelled = train & (levels != MISSING)
        if unlabelled[:, concept].any() and len(np.unique(levels[labelled])) > 1:
            teacher = LogisticRegression(C=0.1, max_iter=1_000).fit(scaled[labelled], levels[labelled])
            pseudo[unlabelled[:, concept], concept] = teacher.predict(scaled[unlabelled[:, concept]])
    return pseudo


def mixed_loss(
    model: Joint, means: Tensor, targets: Targets, share: float, order: Tensor, plan: Training
) -> dict[str, Tensor]:
    """The joint loss of λ·h + (1 − λ)·h′ against λ times the labels and 1 − λ times those of the other one.

    means: (B, d) representations h; share: λ; order: (B,) which h′ each is mixed with.
    """
    mixed = share * means + (1 - share) * means[order]
    logits = model(mixed[:, None], torch.ones(len(mixed), 1, dtype=torch.bool, device=mixed.device))
    other = Targets(targets.levels[order], targets.weights[order], targets.grades[order])
    # Cross-entropy is linear in its target: a mixture of losses is the loss of the mixture.
    losses, other_losses = joint_loss(logits, targets, plan), joint_loss(logits, other, plan)
    return {name: share * losses[name] + (1 - share) * other_losses[name] for name in losses}
