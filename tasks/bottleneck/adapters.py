"""Adapters (LoRA) on a text encoder, through PEFT."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from importlib.util import find_spec

import torch

from tasks.bottleneck.backbone import Backbone
from tasks.contracts.errors import BackendError
from tasks.contracts.settings.adapter import Adapter

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapted(backbone: Backbone, adapter: Adapter) -> Backbone:
    """The backbone with an adapter that changes nothing yet; its weights are shared, and alone the adapter's learn.

    It lies on the projections of attention and feed-forward layers where they have their common names, else on all
    linear layers. Its first numbers are always the same. BackendError where its extra is missing.
    """
    if find_spec("peft") is None:
        raise BackendError("encoder 'lora' needs the extra: pip install 'rubricflow[embedded,train]'")
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
    learning = {name: parameter for name, parameter in backbone.model.named_parameters() if parameter.requires_grad}
    if learning.keys() != weights.keys():
        raise ValueError("its adapter is not one on this text encoder")
    with torch.no_grad():
        for name, parameter in learning.items():
            parameter.copy_(weights[name])
