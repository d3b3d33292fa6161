"""The fine-tuned language model to compare with: mean token state → grade, no concepts (REC-CBM, appendix D.1).

The mean state is also all that the other baselines see of a response, so that it is kept here where nothing moves it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from rubricflow.tasks.core.contracts.settings.bottleneck import Learning, Training
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.fit import Trained, grade_validation, parameter_count, rows_with
from rubricflow.tasks.methods.bottleneck.loop import Losses, task_loss, train_on_states
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder
from rubricflow.tasks.methods.bottleneck.states import Rows, Say, StateEncoder, Weights, by_length, quiet

Read = Callable[[Tensor, Tensor], Tensor]
"""Of states (B, T, d) and mask (B, T) to B rows of numbers."""
_READ_TOKENS = 8_192
"""Tokens read together where nothing is trained."""


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


class Pooled:
    """An encoder whose inputs are one state each: the mean of those that another one gives for them now."""

    learning: Learning = "frozen"

    def __init__(self, encoder: StateEncoder) -> None:
        encoder.train(False)
        rows = np.arange(len(encoder.lengths))
        self.width, self.lengths, self.device = encoder.width, np.ones_like(rows), torch.device("cpu")
        self.means = read(mean_state, encoder, rows).astype(np.float32)
        """(n, d)."""

    def __call__(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """H (B, 1, d) and mask (B, 1)."""
        return torch.from_numpy(self.means[rows])[:, None], torch.ones(len(rows), 1, dtype=torch.bool)

    def parameters(self) -> list[nn.Parameter]:
        """None."""
        return []

    def train(self, mode: bool = True) -> None:
        """Nothing: there is no dropout."""

    def state_dict(self) -> None:
        """None: there are no weights."""

    def load_state_dict(self, weights: Weights | None) -> None:
        """Nothing."""


def pooled(encoder: StateEncoder) -> StateEncoder:
    """The encoder where it is tuned, else its mean states: an epoch then reads one row a response, not all tokens."""
    return encoder if encoder.parameters() or isinstance(encoder, Pooled) else Pooled(encoder)


def plm(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    method: str = "plm",
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains a linear grade head on the mean token state by cross-entropy, and the encoder with it where it is tuned.

    Keeps the epoch with the best macro-F1 of the grade on the calibration split. InputError where a split has no grade.
    """
    began = time.perf_counter()
    rows, validation_rows = rows_with(data, "train", "grade"), rows_with(data, "calibration", "grade")
    encoder, grades = pooled(encoder), torch.from_numpy(data.grades)
    model = GradeHead(encoder.width, len(data.scores), plan.width, seed)

    def loss(states: Tensor, mask: Tensor, batch: Ints) -> Losses:
        return {"task": task_loss(model(states, mask), grades[batch].to(states.device))}

    def validate() -> tuple[float, float]:
        return grade_validation(_probabilities(model, encoder, validation_rows), data.grades[validation_rows])

    course = train_on_states(model, encoder, rows, loss, validate, plan=plan, seed=seed, say=say)
    weights, parameters = encoder.state_dict(), parameter_count(model, encoder)
    model.cpu()

    def predict(encoder: StateEncoder, rows: Ints) -> Estimates:
        encoder.load_state_dict(weights)
        return Estimates(None, _probabilities(model, encoder, rows))

    return Trained(
        method=method,
        seed=seed,
        setting=setting,
        concept_encoder=None,
        head=None,
        encoder_state=weights,
        epochs=(course.epochs, 0),
        validation=course.validation,
        parameters=parameters,
        seconds=time.perf_counter() - began,
        history=course.history,
        predict=predict,
    )


def mean_state(states: Tensor, mask: Tensor) -> Tensor:
    """(B, d) mean of the states (B, T, d) that the mask (B, T) holds."""
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def read(model: Read, encoder: StateEncoder, rows: Ints) -> Floats:
    """What a model says of the states of some rows, (len(rows), …) in their order, without gradients."""
    batches = list(by_length(encoder.lengths[rows], _READ_TOKENS))
    outputs = []
    with torch.inference_mode():
        for places in batches:
            states, mask = _to_model(model, *encoder(rows[places]))
            outputs.append(model(states, mask).double().cpu().numpy())
    in_order: Floats = np.concatenate(outputs)[np.argsort(np.concatenate(batches))]
    return in_order


def _to_model(model: Read, *tensors: Tensor) -> Sequence[Tensor]:
    """Tensors where the model's parameters lie: a tuned encoder may be elsewhere."""
    first = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return tensors if first is None else [tensor.to(first.device) for tensor in tensors]


def _probabilities(model: GradeHead, encoder: StateEncoder, rows: Ints) -> Floats:
    likely: Floats = softmax(read(model, encoder, rows), axis=1)
    return likely
