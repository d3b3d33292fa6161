"""The training loop of every method: AdamW, linear warm-up and decay, early stopping on a validation measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tasks.bottleneck.states import Say, StateEncoder, batches, quiet
from tasks.contracts.settings.bottleneck import Training
from tasks.stats.arrays import Ints

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
    history: list[dict[str, Any]]
    """One entry an epoch: stage, epoch, the mean of each loss term, validation and validation_loss."""


def minimise(
    groups: Sequence[dict[str, Any]],
    batches: Callable[[], Sequence[Batch]],
    loss: Callable[[Batch], Losses],
    validate: Callable[[], tuple[float, float]],
    plan: Training,
    stage: int = 1,
    say: Say = quiet,
) -> Course:
    """Minimises the losses and leaves the parameters of the best epoch.

    groups: parameter groups of AdamW, {"params": [...], "lr": …, "weight_decay": …}; batches: an epoch's, anew at each
    call and always as many; validate: (measure, loss) after an epoch. The best epoch has the highest measure and, among
    equals, the lowest loss. The stage ends after `plan.patience` epochs with neither a higher measure nor a lower loss
    than all before: macro-F1 alone stands still for so long by chance while the loss still falls. It also ends when a
    loss is no longer finite, as with too high a learning rate.
    """
    optimizer = torch.optim.AdamW(groups)
    parameters = list(chain.from_iterable(group["params"] for group in groups))
    epoch_batches = batches()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _slope(plan, plan.epochs * len(epoch_batches)))
    best, best_values = (-math.inf, -math.inf), _copied(parameters)
    least, since = math.inf, 0
    history: list[dict[str, Any]] = []
    for epoch in range(1, plan.epochs + 1):
        terms = _epoch(epoch_batches, loss, optimizer, schedule)
        measure, lost = validate()
        history.append({"stage": stage, "epoch": epoch, **terms, "validation": measure, "validation_loss": lost})
        say(f"stage {stage}, epoch {epoch}: loss {sum(terms.values()):.4f}, validation {measure:.4f}")
        if not math.isfinite(sum(terms.values()) + lost):
            break
        since = 0 if measure > best[0] or lost < least else since + 1
        least = min(least, lost)
        if (measure, -lost) > best:
            best, best_values = (measure, -lost), _copied(parameters)
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
    say: Say = quiet,
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

    def training_loss(batch: Ints) -> Losses:
        return loss(*encoder(batch), batch)

    def validation() -> tuple[float, float]:
        _train(model, encoder, False)
        measured = validate()
        _train(model, encoder, True)
        return measured

    with torch.random.fork_rng():
        torch.manual_seed(seed)  # dropout draws from the global generator
        _train(model, encoder, True)
        course = minimise(
            groups,
            lambda: [rows[places] for places in batches(encoder.lengths[rows], plan.batch_size, rng)],
            training_loss,
            validation,
            plan,
            say=say,
        )
    _train(model, encoder, False)
    return course


def decayed(parameters: Iterable[nn.Parameter], rate: float, decay: float) -> list[dict[str, Any]]:
    """AdamW's groups: weight decay for matrices, none for biases and norms."""
    ordered = list(parameters)
    return [
        {"params": [parameter for parameter in ordered if parameter.ndim > 1], "lr": rate, "weight_decay": decay},
        {"params": [parameter for parameter in ordered if parameter.ndim < 2], "lr": rate, "weight_decay": 0.0},
    ]


def _epoch(
    epoch_batches: Sequence[Batch],
    loss: Callable[[Batch], Losses],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> dict[str, float]:
    """One pass; the mean of each loss term over the batches."""
    sums: dict[str, Tensor] = {}
    for batch in epoch_batches:
        terms = loss(batch)
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        for name, value in terms.items():
            sums[name] = sums.get(name, torch.zeros(())) + value.detach()
    return {name: float(value) / len(epoch_batches) for name, value in sums.items()}


def _slope(plan: Training, steps: int) -> Callable[[int], float]:
    """Step, from 0, → share of the learning rate: up to 1 over the warm-up, then down towards 0 after the last."""
    rise = plan.warmup * steps
    return lambda step: min(1.0, (step + 1) / max(rise, 1.0), (steps - step) / (steps - rise))


def _copied(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def _train(model: nn.Module, encoder: StateEncoder, mode: bool) -> None:
    model.train(mode)
    encoder.train(mode)
