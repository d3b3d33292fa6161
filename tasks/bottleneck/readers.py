"""The part of a transformer that makes token states: its encoder or decoder, up to the layer that is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tasks.contracts.errors import InputError

_FINAL = ("norm", "ln_f", "final_layer_norm")
"""Names of what brings a model's last states to a common size."""

_LENGTH = 3.5
"""Of a state: as long as the packaged encoder's, for which the settings of training were found."""


def reader(model: Any, layer: int | None = None, name: str = "") -> Any:
    """The part of a model that makes token states, in evaluation mode, on a GPU where there is one.

    layer: the last that is computed, from 1; None for all. name: for errors. InputError where there is no such layer.
    """
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # reads states and makes none; it would be counted and stored
    model.config.use_cache = False
    if layer is not None:
        _shorten(model, layer, name)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def positions_of(model: Any) -> float:
    """Most tokens that a model reads; infinite where positions are relative."""
    positions = getattr(model.config, "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    # RoBERTa's positions begin behind that of its padding.
    reserved = 0 if table is None or table.padding_idx is None else table.padding_idx + 1
    return float("inf") if positions is None else positions - reserved


def _shorten(model: Any, layer: int, name: str) -> None:
    """Takes off what lies above a layer.

    Where a model normalises what a layer reads instead of what it writes, as decoders do, states are as the layer above
    would read them: by themselves some of their numbers are hundreds of times as large as the others. They are brought
    to `_LENGTH`, since attention is the sharper, and a step of training the larger, the longer they are.
    """
    stack = _stack(model)
    if layer > len(stack):
        raise InputError(f"backbone '{name}' has {len(stack)} layers, and so no layer {layer}", field="layer")
    final = next((part for part in _FINAL if isinstance(getattr(model, part, None), nn.Module)), None)
    if final is not None:
        if layer < len(stack):
            setattr(model, final, _first_like(getattr(model, final), stack[layer]))
        _scale(getattr(model, final))
    del stack[layer:]
    model.config.num_hidden_layers = layer
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:layer]


def _scale(norm: nn.Module) -> None:
    """Makes states of `_LENGTH`: a norm leaves them as long as its own weights are, by and large."""
    with torch.no_grad():
        size = _weight(norm).norm()
        for parameter in norm.parameters():
            parameter.mul_(_LENGTH / size)


def _stack(model: Any) -> Any:
    """A model's layers, lowest first."""
    count = model.config.num_hidden_layers
    return next(part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == count)


def _first_like(final: nn.Module, block: nn.Module) -> nn.Module:
    """What a layer first does to the states that it reads: its first part of the final norm's kind and width."""
    shape = _weight(final).shape
    # Parts of parts last: some models also norm what attention compares.
    alike = (part for part in [*block.children(), *block.modules()] if type(part) is type(final))
    return next(part for part in alike if _weight(part).shape == shape)


def _weight(norm: nn.Module) -> nn.Parameter:
    return dict(norm.named_parameters())["weight"]
