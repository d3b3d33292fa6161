"""The hidden states of a causal language model: what it makes of a text, though it need not be able to grade."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.stats.arrays import Floats

LAYERS = (0.5, 0.75, 1.0)
"""Depths whose states are taken, as shares of all layers: the middle and upper ones tell most."""
LONGEST = 2_048
"""Tokens that are read of what stands before the responses, and of each of them."""
_HINT = f"calibration.features: hidden needs the extra: {install('embedded')}"


class HiddenStates:
    """Mean hidden state over a response's tokens at each of `LAYERS`, side by side, by a model in a local folder.

    BackendError names the folder where no model can be loaded from it. What stands before the responses of an item is
    read once; responses are read one by one, so that none depends on its neighbours.
    """

    def __init__(self, folder: str) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise BackendError(_HINT) from error
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise BackendError(f"calibration.language_model: no model can be loaded from {folder}: {error}") from error
        self._model.requires_grad_(False).train(False)
        self._torch = torch

    def __call__(self, before: str, texts: Sequence[str]) -> Floats:
        """States of texts that follow the words before them, (n, layers x width)."""
        if not texts:
            return np.zeros((0, len(LAYERS) * self._model.config.hidden_size))
        with self._torch.inference_mode():
            cache = self._model(self._ids(before), use_cache=True, logits_to_keep=1).past_key_values
            length = cache.get_seq_length()
            return np.stack([self._states(text, cache, length) for text in texts])

    def _states(self, text: str, cache: Any, length: int) -> Floats:
        layers = self._model(
            self._ids(text), past_key_values=cache, use_cache=True, output_hidden_states=True, logits_to_keep=1
        ).hidden_states
        cache.crop(length - cache.get_seq_length())
        chosen = [layers[round(depth * (len(layers) - 1))][0] for depth in LAYERS]
        return np.concatenate([layer.float().mean(dim=0).numpy() for layer in chosen]).astype(np.float64)

    def _ids(self, text: str) -> Any:
        """Tokens of a text, at least one and at most LONGEST; what looks like a control token is plain characters."""
        ids = self._tokenizer(text or " ", split_special_tokens=True)["input_ids"][:LONGEST]
        return self._torch.tensor([ids])
