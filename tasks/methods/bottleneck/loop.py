"""The training loop of every method: AdamW, linear warm-up and decay, early stopping on a validation measure.

The losses of REC-CBM (Eqs. 12-16 and 23-25). A label that is MISSING enters none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.states import StateEncoder, batches, by_length


def concept_loss(logits: Tensor, levels: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy summed over concepts, mean over the batch (Eq. 12), each label times its weight.

    logits (B, K, M + 1), −inf beyond a concept's own top; levels (B, K) integers; weights (B, K).
    """
    terms = cross_entropy(logits.transpose(1, 2), levels, ignore_index=MISSING, reduction="none")
    return (terms * weights).sum() / len(logits)


def ranking_loss(expected: Tensor, levels: Tensor) -> Tensor:
    """Logistic loss of ordered pairs, mean over a concept's pairs, then over concepts that have one (Eqs. 14-16).

    expected (B, K) expected levels ĉ; levels (B, K) integers. 0, with gradient 0, where there is no pair.
    """
    labelled = levels != MISSING
    above = (levels[:, None] > levels[None]) & labelled[:, None] & labelled[None]
    # −log σ(ĉ_i − ĉ_j) is the softplus of the difference the other way round.
    terms = softplus(expected[None] - expected[:, None]) * above
    pairs = above.sum((0, 1))
    of_concept = terms.sum((0, 1)) / pairs.clamp(min=1)
    return of_concept.sum() / (pairs > 0).sum().clamp(min=1)


def task_loss(logits: Tensor, grades: Tensor) -> Tensor:
    """Cross-entropy of the grade, mean over those labelled (Eq. 23); 0, with gradient 0, where none is.

    logits (B, S + 1); grades (B,) integers.
    """
    summed = cross_entropy(logits, grades, ignore_index=MISSING, reduction="sum")
    return summed / (grades != MISSING).sum().clamp(min=1)


def denoising_loss(posterior: Tensor, levels: Tensor, tops: Tensor, weights: Tensor) -> Tensor:
    """Squared distance of μ_post from the labels' shares, each times its weight, mean over the labels (Eq. 24).

    posterior (B, K); levels (B, K) integers; tops (K,) M_k; weights (B, K). 0, with gradient 0, without any label.
    """
    labelled = levels != MISSING
    terms = (posterior - levels.to(posterior.dtype) / tops) ** 2 * weights
    return (terms * labelled).sum() / labelled.sum().clamp(min=1)


def sparsity_loss(factor: Tensor) -> Tensor:
    """Sum of |L_ij| below the diagonal of the Cholesky factor L (K, K) (Eq. 25)."""
    return factor.tril(-1).abs().sum()


READ_TOKENS = 8_192
"""Tokens read together where nothing is trained."""
Batch = TypeVar("Batch")
Losses = Mapping[str, Tensor]
"""Term → its value times its weight; their sum is minimised."""


@dataclass(frozen=True)
class Course:
    """How a stage went."""

    epochs: int
    """Epochs run."""
    validation: float | None
    """Measure of the epoch chosen; None where training broke down before the first was over."""
    history: list[Record]
    """One entry an epoch: stage, epoch, the mean of each loss term, validation and validation_loss."""


def minimise(
    groups: Sequence[Record],
    batches: Callable[[], Sequence[Batch]],
    loss: Callable[[Batch], Losses],
    validate: Callable[[], tuple[float, float]],
    plan: Training,
    stage: int = 1,
) -> Course:
    """Minimises the losses and leaves the parameters of the best epoch.

    groups: parameter groups of AdamW, {"params": [...], "lr": …, "weight_decay": …}; batches: an epoch's, anew at each
    call and always as many; validate: (measure, loss) after an epoch. The best epoch has the highest measure and, among
    equals, the lowest loss. The stage ends after `plan.patience` epochs without `plan.progress`: macro-F1 alone
    stands still for so long by chance while the loss still falls. It also ends when a loss is no longer finite, as with
    too high a learning rate.
    """
    optimizer = torch.optim.AdamW(groups)
    parameters = list(chain.from_iterable(group["params"] for group in groups))
    epoch_batches = batches()
    # The share of the learning rate goes up to 1 over the warm-up, then down towards 0 after the last step.
    steps = plan.epochs * len(epoch_batches)
    rise = plan.warmup * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / max(rise, 1.0), (steps - step) / (steps - rise))
    )
    best = (-math.inf, -math.inf)
    best_values = [parameter.detach().clone() for parameter in parameters]
    least, since = math.inf, 0
    history = []
    for epoch in range(1, plan.epochs + 1):
        sums: dict[str, Tensor] = {}
        for batch in epoch_batches:
            losses = loss(batch)
            optimizer.zero_grad()
            torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            for name, value in losses.items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach()
        terms = {name: float(value) / len(epoch_batches) for name, value in sums.items()}
        measure, lost = validate()
        history.append({"stage": stage, "epoch": epoch, **terms, "validation": measure, "validation_loss": lost})
        if not math.isfinite(sum(terms.values()) + lost):
            break
        is_lower = lost < least and plan.progress == "measure_or_loss"
        since = 0 if measure > best[0] or is_lower else since + 1
        least = min(least, lost)
        if (measure, -lost) > best:
            best = (measure, -lost)
            best_values = [parameter.detach().clone() for parameter in parameters]
        if since == plan.patience:
            break
        epoch_batches = batches()
    with torch.no_grad():
        for parameter, value in zip(parameters, best_values, strict=True):
            parameter.copy_(value)
    return Course(len(history), best[0] if best[0] > -math.inf else None, history)


def train_on_states(
    model: nn.Module,
    encoder: StateEncoder,
    rows: Ints,
    loss: Callable[[Tensor, Tensor, Ints], Losses],
    validate: Callable[[], tuple[float, float]],
    plan: Training,
    seed: int,
) -> Course:
    """Trains a model on the token states of `rows`, and the encoder with it where it is tuned.

    loss: of states (B, T, d), mask (B, T) and the batch's rows (B,). A tuned encoder begins with the weights that it
    was loaded with. Both are left with the parameters of the best epoch and dropout off, the model on the encoder's
    device. The learning rate of a tuned encoder is the model's, too (Table 7); on a frozen one a model needs a higher
    one, and so does an adapter. The same seed gives the same numbers on one machine, and no global state is left
    changed.
    """
    rng = torch.Generator().manual_seed(seed)
    encoder.load_state_dict(None)
    model.to(encoder.device)
    rate = plan.learning_rate if encoder.learning == "tuned" else plan.head_learning_rate
    encoder_rate = plan.adapter_learning_rate if encoder.learning == "lora" else rate
    groups = decayed(model.parameters(), rate, plan.weight_decay)
    groups += decayed(encoder.parameters(), encoder_rate, plan.weight_decay)

    def set_training(mode: bool) -> None:
        model.train(mode)
        encoder.train(mode)

    def epoch_batches() -> list[Ints]:
        return [rows[places] for places in batches(encoder.lengths[rows], plan.batch_size, rng)]

    def validation() -> tuple[float, float]:
        set_training(False)
        measured = validate()
        set_training(True)
        return measured

    with torch.random.fork_rng():
        torch.manual_seed(seed)  # dropout draws from the global generator
        set_training(True)
        course = minimise(groups, epoch_batches, lambda batch: loss(*encoder(batch), batch), validation, plan)
    set_training(False)
    return course


def decayed(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> list[Record]:
    """AdamW's groups: weight decay for matrices, none for biases and norms."""
    ordered = list(parameters)
    return [
        {"params": [parameter for parameter in ordered if parameter.ndim > 1], "lr": rate, "weight_decay": decay},
        {"params": [parameter for parameter in ordered if parameter.ndim < 2], "lr": rate, "weight_decay": 0.0},
    ]


def read(model: Callable[[Tensor, Tensor], Tensor], encoder: StateEncoder, rows: Ints, device: torch.device) -> Floats:
    """What a model gives for the states of some rows, (len(rows), …) in their order, without gradients.

    model: of states (B, T, d) and mask (B, T) to B rows of numbers; device: where it lies.
    """
    parts = list(by_length(encoder.lengths[rows], READ_TOKENS))
    outputs = []
    with torch.inference_mode():
        for places in parts:
            states, mask = (tensor.to(device) for tensor in encoder(rows[places]))
            outputs.append(model(states, mask).double().cpu().numpy())
    in_order: Floats = np.concatenate(outputs)[np.argsort(np.concatenate(parts))]
    return in_order
