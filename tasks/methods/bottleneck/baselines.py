"""Graders to compare with. PLM: the fine-tuned language model, mean token state → grade, no concepts (REC-CBM, appendix
D.1). Vanilla CBM: the joint concept bottleneck model (Koh et al., 2020; REC-CBM, section 3.2): concepts from one shared
representation, a linear head on them, trained together. C3M (Tan et al., 2024, "Interpreting pretrained language models
via concept bottlenecks"), adapted: missing concept labels are filled in by a machine, and pairs of responses are mixed.

Koh et al. pass a concept's logits or probability on; our concepts are ordinal, so that the head gets the expected
level's share s̃ of each, as REC-CBM's does. A person can set it. The mean state is all that baselines see of a response,
so that it is kept here where nothing moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import (
    Trained,
    concept_estimates,
    grade_validation,
    narrowed,
    parameter_count,
    rows_with,
)
from rubricflow.tasks.methods.bottleneck.loop import Losses, concept_loss, read, task_loss, train_on_states
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, Head, LatentHead, expected_levels
from rubricflow.tasks.methods.bottleneck.states import Rows, StateEncoder

MIXING = 0.2
"""Both parameters of the Beta distribution that λ is drawn from: mostly near 0 or 1."""
NOISY = 0.5
"""How much a machine's label counts when a person's counts 1."""


class GradeHead(nn.Module):
    """Mean token state → grade logits, with a bias."""

    def __init__(self, width: int, grades: int, projection: int | None, seed: int) -> None:
        super().__init__()
        # The grade is read as a concept of one shared representation is: as the only one.
        self.reader = ConceptEncoder(width, [grades - 1], rubric_aware=False, projection=projection, seed=seed)
        self.bias = nn.Parameter(torch.zeros(grades))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, S + 1) of states (B, T, d) and mask (B, T)."""
        logits: Tensor = self.reader(states, mask)
        return logits[:, 0] + self.bias


class Pooled(StateEncoder):
    """An encoder whose inputs are one state each: the mean of those that another one gives for them now."""

    def __init__(self, encoder: StateEncoder) -> None:
        encoder.train(False)
        rows = np.arange(len(encoder.lengths))
        self.width, self.lengths = encoder.width, np.ones_like(rows)
        self.means = read(mean_state, encoder, rows, encoder.device).astype(np.float32)
        """(n, d)."""

    def __call__(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """H (B, 1, d) and mask (B, 1)."""
        return torch.from_numpy(self.means[rows])[:, None], torch.ones(len(rows), 1, dtype=torch.bool)


def pooled(encoder: StateEncoder) -> StateEncoder:
    """The encoder where it is tuned, else its mean states: an epoch then reads one row a response, not all tokens."""
    return encoder if encoder.parameters() or isinstance(encoder, Pooled) else Pooled(encoder)


def mean_state(states: Tensor, mask: Tensor) -> Tensor:
    """(B, d) mean of the states (B, T, d) that the mask (B, T) holds."""
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def plm(data: LabelledData, encoder: StateEncoder, plan: Training, seed: int) -> Trained:
    """Trains a linear grade head on the mean token state by cross-entropy, and the encoder with it where it is tuned.

    Keeps the epoch with the best macro-F1 of the grade on the calibration split. InputError where a split has no grade.
    """
    rows, validation_rows = rows_with(data, "train", "grade"), rows_with(data, "calibration", "grade")
    encoder, grades = pooled(encoder), torch.from_numpy(data.grades)
    model = GradeHead(encoder.width, len(data.scores), plan.width, seed)

    def probabilities(encoder: StateEncoder, rows: Ints) -> Floats:
        likely: Floats = softmax(read(model, encoder, rows, model.bias.device), axis=1)
        return likely

    def loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        return {"task": task_loss(model(states, mask), grades[batch].to(states.device))}

    def validate() -> tuple[float, float]:
        return grade_validation(probabilities(encoder, validation_rows), data.grades[validation_rows])

    course = train_on_states(model, encoder, rows, loss, validate, plan=plan, seed=seed)
    model.cpu()

    def estimate(encoder: StateEncoder, rows: Ints) -> Estimates:
        return Estimates(None, probabilities(encoder, rows))

    weights = encoder.state_dict()
    parameters = parameter_count(model, encoder)
    return Trained(weights, (course.epochs, 0), course.validation, parameters, course.history, estimate)


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


def vanilla_cbm(data: LabelledData, encoder: StateEncoder, plan: Training, seed: int) -> Trained:
    """Trains concepts and grade together (Eq. 6) with the weights λ_c and λ_t.

    Keeps the epoch with the best macro-F1 of the grade on the calibration split. InputError where a split has no grade,
    or the train split no concept label.
    """
    return train_jointly(data, encoder, plan, seed, plain_loss(plan))


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


def train_jointly(data: LabelledData, encoder: StateEncoder, plan: Training, seed: int, loss: JointLoss) -> Trained:
    """Trains a joint model with a loss of its own, on all responses that have a label of any kind."""
    data, encoder = narrowed(data, plan.concepts), pooled(encoder)
    rows, validation_rows = labelled_rows(data), rows_with(data, "calibration", "grade")
    model = Joint(encoder.width, data, plan, seed, bool(encoder.parameters()))

    def batch_loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        return loss(model, states, mask, Targets.of(data, batch, states.device))

    def validate() -> tuple[float, float]:
        estimated = concept_estimates(model.reader, model.as_head(), encoder, validation_rows)
        return grade_validation(estimated.grades, data.grades[validation_rows])

    course = train_on_states(model, encoder, rows, batch_loss, validate, plan=plan, seed=seed)
    reader = model.cpu().reader
    head = model.as_head()
    return Trained(
        encoder_state=encoder.state_dict(),
        epochs=(course.epochs, 0),
        validation=course.validation,
        parameters=parameter_count(model, encoder),
        history=course.history,
        estimate=partial(concept_estimates, reader, head),
        concept_encoder=reader,
        head=head,
    )


def labelled_rows(data: LabelledData) -> Ints:
    """Training rows with a concept's label or a grade; InputError where none has the one, or none the other."""
    either: Ints = np.union1d(rows_with(data, "train", "concept"), rows_with(data, "train", "grade"))
    return either


def c3m(data: LabelledData, encoder: StateEncoder, plan: Training, seed: int) -> Trained:
    """Trains a joint bottleneck model on augmented labels and mixed pairs. InputError as for the vanilla model."""
    encoder, rng = pooled(encoder), np.random.default_rng(seed)
    data = augmented(data, pseudo_levels(data, encoder))

    def loss(model: Joint, states: Tensor, mask: Tensor, targets: Targets) -> Losses:
        share = float(rng.beta(MIXING, MIXING))
        order = torch.from_numpy(rng.permutation(len(states)))
        plain = joint_loss(model(states, mask), targets, plan)
        mixed = mixed_loss(model, mean_state(states, mask), targets, share, order.to(states.device), plan)
        return {name: (plain[name] + mixed[name]) / 2 for name in plain}

    return train_jointly(data, encoder, plan, seed, loss)


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
    pseudo = np.full_like(data.levels, MISSING)
    train = data.split == "train"
    unlabelled = train[:, None] & (data.levels == MISSING)
    if not unlabelled.any():
        return pseudo
    encoder.load_state_dict(None)
    means = Pooled(encoder).means
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
    losses = joint_loss(logits, targets, plan)
    other_losses = joint_loss(logits, other, plan)
    return {name: share * losses[name] + (1 - share) * other_losses[name] for name in losses}
