"""Token states for training: kept from a frozen backbone, or made anew with gradients from one that is tuned.

Adapters (LoRA) on a text encoder, through PEFT.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import Adapter, EncoderTraining
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.methods.bottleneck.backbone import MARK, Backbone, BatchTokens

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapted(backbone: Backbone, adapter: Adapter) -> Backbone:
    """The backbone with an adapter that changes nothing yet; its weights are shared, and alone the adapter's learn.

    It lies on the projections of attention and feed-forward layers where they have their common names, else on all
    linear layers. Its first numbers are always the same. BackendError where its extra is missing.
    """
    if find_spec("peft") is None:
        raise BackendError(f"encoder 'lora' needs the extras: {install('embedded', 'train')}")
    from peft import LoraConfig, inject_adapter_in_model

    model = deepcopy(backbone.model, {id(parameter): parameter for parameter in backbone.model.parameters()})
    leaves = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=sorted(leaves.intersection(_PROJECTIONS)) or "all-linear",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trainable = copy(backbone)
        trainable.model = inject_adapter_in_model(config, model)
    return trainable


def load_adapter(backbone: Backbone, weights: Mapping[str, torch.Tensor]) -> None:
    """Gives an adapter these weights; ValueError or RuntimeError where they are not those of this adapter."""
    learning = _learning(backbone)
    if learning.keys() != weights.keys():
        raise ValueError("its adapter is not one on this text encoder")
    with torch.no_grad():
        for name, parameter in learning.items():
            parameter.copy_(weights[name])


Rows = Sequence[int] | Ints
Weights = Mapping[str, torch.Tensor]
_VALUES, _STARTS = "states.npy", "starts.npy"
_BATCH_TOKENS = {"cpu": 2_048, "cuda": 65_536}
"""Tokens encoded together: larger batches fall out of a processor's cache; a GPU wants them large."""
_POOL = 16
"""Batches that are drawn together and sorted by length: more would pad less and mix less."""


@dataclass(frozen=True)
class States:
    """The token states of n inputs, one after the other."""

    values: npt.NDArray[np.float16]
    """(total, d); may lie on disk."""
    starts: Ints
    """(n + 1,) where each input starts, as in Tokens."""


class StateEncoder:
    """Gives the token states of inputs by their rows. As it stands here it never learns, and so has no weights and no
    dropout."""

    learning: EncoderTraining = "frozen"
    """What is trained of it."""
    width: int
    """d, numbers in a state."""
    lengths: Ints
    """(n,) tokens of each input."""
    device = torch.device("cpu")
    """Where states come to lie."""

    def __call__(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """H (B, T, d) float32, 0 at padding, and mask (B, T) bool."""
        raise NotImplementedError

    def parameters(self) -> list[torch.nn.Parameter]:
        """What is trained; empty where nothing is."""
        return []

    def train(self, mode: bool = True) -> None:
        """Turns dropout on, or off."""

    def state_dict(self) -> dict[str, torch.Tensor] | None:
        """A copy of the weights in main memory; None where they never move."""

    def load_state_dict(self, weights: Weights | None) -> None:
        """Takes such a copy; None for the weights that it began with."""


class Cached(StateEncoder):
    """The states of a frozen backbone."""

    def __init__(self, states: States) -> None:
        self.width = states.values.shape[1]
        self.lengths = np.diff(states.starts)
        self._states = states

    def __call__(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """H (B, T, d) float32, 0 at padding, and mask (B, T)."""
        lengths = self.lengths[rows]
        padded = np.zeros((len(rows), int(lengths.max()), self.width), np.float32)
        for place, start, length in zip(padded, self._states.starts[rows], lengths, strict=True):
            place[:length] = self._states.values[start : start + length]
        return torch.from_numpy(padded), mask_of(lengths)


class TunedBackbone(StateEncoder):
    """A copy of a backbone that learns."""

    learning: EncoderTraining = "tuned"

    def __init__(self, backbone: Backbone, tokens: BatchTokens) -> None:
        self.width, self.lengths, self.device = backbone.width, tokens.lengths, backbone.device
        self._tokens, self._first = tokens, backbone.model
        self._backbone = copy(backbone)
        self._backbone.model = deepcopy(backbone.model)

    def __call__(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """H (B, T, d) float32, 0 at padding, and mask (B, T), on the backbone's device."""
        ids, mask, segments = padded(self._backbone, self._tokens, rows)
        return self._backbone.states(ids, mask, segments) * mask[..., None], mask

    def parameters(self) -> list[torch.nn.Parameter]:
        """What learns of the backbone."""
        return [weights for weights in self._backbone.model.parameters() if weights.requires_grad]

    def train(self, mode: bool = True) -> None:
        """Turns the backbone's dropout on, or off."""
        self._backbone.model.train(mode)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the weights, in main memory."""
        return _copied(self._backbone.model.state_dict())

    def load_state_dict(self, weights: Weights | None) -> None:
        """Takes such a copy; None for the backbone's own weights."""
        self._backbone.model.load_state_dict(self._first.state_dict() if weights is None else weights)


class Adapted(TunedBackbone):
    """A backbone whose own weights, not a copy of them, stay, with an adapter that learns."""

    learning: EncoderTraining = "lora"

    def __init__(self, backbone: Backbone, tokens: BatchTokens, adapter: Adapter) -> None:
        self.width, self.lengths, self.device = backbone.width, tokens.lengths, backbone.device
        self._tokens, self._backbone = tokens, adapted(backbone, adapter)
        self._start = self.state_dict()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the adapter's weights, in main memory."""
        return _copied(_learning(self._backbone))

    def load_state_dict(self, weights: Weights | None) -> None:
        """Takes such a copy; None for an adapter that changes nothing yet."""
        load_adapter(self._backbone, self._start if weights is None else weights)


def _learning(backbone: Backbone) -> dict[str, torch.Tensor]:
    return {name: weights for name, weights in backbone.model.named_parameters() if weights.requires_grad}


def _copied(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}


def encode(backbone: Backbone, tokens: BatchTokens, folder: Path | None = None) -> States:
    """The states of all inputs, in half precision; an input's states do not depend on the others beyond rounding.

    With a folder they are read from there, as they are used. Where it is not there they are written first, as they
    come, so that memory does not grow with the data; it appears whole or not at all. Dropout is off.
    """
    shape = (int(tokens.starts[-1]), backbone.width)
    if folder is None:
        values = np.empty(shape, np.float16)
        _encode(backbone, tokens, values)
        return States(values, tokens.starts)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
        unfinished.mkdir()
        try:
            np.save(unfinished / _STARTS, tokens.starts)
            values = np.lib.format.open_memmap(unfinished / _VALUES, "w+", np.float16, shape)
            _encode(backbone, tokens, values)
            values.flush()
            if not folder.exists():  # another process may have been first; its states are the same
                unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return States(np.load(folder / _VALUES, mmap_mode="r"), np.load(folder / _STARTS))


def batches(lengths: Ints, size: int, generator: torch.Generator) -> list[Ints]:
    """Places 0…n − 1 in random batches of `size`, the last one smaller, whose inputs are about as long.

    Random pools of some batches are sorted by length and cut; then the batches are shuffled.
    """
    places = torch.randperm(len(lengths), generator=generator).numpy()
    pools = [places[start : start + _POOL * size] for start in range(0, len(places), _POOL * size)]
    alike = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    cut = [alike[start : start + size] for start in range(0, len(alike), size)]
    return [cut[number] for number in torch.randperm(len(cut), generator=generator).tolist()]


def by_length(lengths: Ints, most: int) -> Iterator[Ints]:
    """Places 0…n − 1, longest first, in batches of at most `most` tokens with padding, or of one input."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, most // int(lengths[order[start]]))
        yield order[start : start + size]
        start += size


def mask_of(lengths: Ints) -> torch.Tensor:
    """(B, T) True where an input of these lengths (B,) has a token."""
    return torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])


def _encode(backbone: Backbone, tokens: BatchTokens, values: npt.NDArray[np.float16]) -> None:
    """Fills (total, d) states."""
    limit = float(np.finfo(np.float16).max)
    backbone.model.eval()
    done = 0
    for rows in by_length(tokens.lengths, _BATCH_TOKENS.get(backbone.device.type, _BATCH_TOKENS["cpu"])):
        with torch.inference_mode():
            states = backbone.states(*padded(backbone, tokens, rows))
            halves = states.clamp(-limit, limit).half().cpu().numpy()
        for row, padded_states in zip(rows, halves, strict=True):
            values[tokens.row(row)] = padded_states[: tokens.lengths[row]]
        done += len(rows)
        print(f"{done:,} of {len(tokens.lengths):,} responses encoded")


def padded(backbone: Backbone, tokens: BatchTokens, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token ids, mask and segments of some rows, each (B, T), on the backbone's device."""
    lengths = tokens.lengths[rows]
    shape = len(rows), int(lengths.max())
    ids = np.full(shape, backbone.marks.padding, np.int64)
    segments = np.full(shape, MARK, np.int64)
    for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids[place, :length] = tokens.ids[tokens.row(row)]
        segments[place, :length] = tokens.segments[tokens.row(row)]
    device = backbone.device
    return torch.from_numpy(ids).to(device), mask_of(lengths).to(device), torch.from_numpy(segments).to(device)
