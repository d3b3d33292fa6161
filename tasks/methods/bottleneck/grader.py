"""The exported grader: one safetensors file that carries its rubric, and what grades by it.

A frozen text encoder is named with a digest of its weights and must be there; a tuned one is in the file. Nothing in a
file is ever run: it holds numbers and JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as as_safetensors
from torch import Tensor

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.backends import Answered, GraderOutput
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck, Method, Training
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.methods.bottleneck import backbone as backbones
from rubricflow.tasks.methods.bottleneck.backbone import RESPONSE, Backbone
from rubricflow.tasks.methods.bottleneck.card import About
from rubricflow.tasks.methods.bottleneck.data import MISSING, LabelledData, concepts_of, shares_of
from rubricflow.tasks.methods.bottleneck.fit import Trained
from rubricflow.tasks.methods.bottleneck.model import Attention, ConceptEncoder, Head, traces
from rubricflow.tasks.methods.bottleneck.states import adapted, by_length, load_adapter, padded

_ABOUT = "rubricflow"
"""The one metadata entry: with several, their order and so the file's digest would be left to chance."""
_CONCEPTS, _ENCODER, _HEAD = "concepts.", "encoder.", "head."
_BATCH_TOKENS = {"cpu": 1_024, "cuda": 65_536}
"""Tokens read together, with padding: twice as many took a tenth longer on a processor, whose cache they leave."""
_LONGEST = 400
"""Characters of another library's error that are passed on."""
_LIBRARIES = ("rubricflow", "torch", "transformers", "tokenizers", "safetensors")


class BottleneckGrader:
    """A grader read from its file; see `tasks.core.contracts.backends.Grader`, which it is.

    Responses are read in batches of about one length. What is said of one depends on the others by float rounding at
    most.
    """

    def __init__(self, about: About, digest: str, backbone: Backbone, model: ConceptEncoder, head: Head) -> None:
        """digest: SHA-256 of the file."""
        self.about, self.digest, self.head = about, digest, head
        self.bundle = about.unlocked
        self._concepts = concepts_of(self.bundle)
        self._backbone, self._model = backbone, model.to(backbone.device).eval()

    @property
    def name(self) -> str:
        """Method, backbone and the start of the file's digest."""
        return f"{self.about.method}:{self.about.backbone_digest}:{self.digest[:12]}"

    @property
    def concepts(self) -> Mapping[str, int]:
        """Concept → its number of levels."""
        return {criterion.id: len(criterion.levels) for criterion in self.bundle.criteria}

    @property
    def scores(self) -> Sequence[float]:
        """The scores that it gives, rising."""
        return self.about.scores

    def __call__(self, answered: Sequence[Answered]) -> list[GraderOutput]:
        """One estimate for each, in order; the grades' probabilities are calibrated."""
        levels = self.levels(answered)
        counts = self.concepts.items()
        outputs = []
        for of_response, grades in zip(
            levels, self.head.probabilities(shares_of(levels, self._concepts.tops)), strict=True
        ):
            named = zip(of_response, counts, strict=True)
            by_concept = {name: concept[:count].tolist() for concept, (name, count) in named}
            by_score = dict(zip(self.scores, grades.tolist(), strict=True))
            outputs.append(GraderOutput(by_concept, by_score, self.scores[int(grades.argmax())]))
        return outputs

    def levels(self, answered: Sequence[Answered]) -> Floats:
        """(n, K, M + 1) probability of each level, 0 beyond a concept's own top (Eq. 11)."""
        return self._read(answered, attends=False)[0]

    def traces(self, response_ids: Sequence[str], answered: Sequence[Answered]) -> list[Record]:
        """Rows of the table `traces`."""
        levels, attention = self._read(answered, attends=True)
        texts = [inputs.response for inputs in answered]
        return traces(response_ids, texts, self._concepts, self.head, np.array(self.scores), levels, attention)

    def head_json(self) -> str:
        """All behind the bottleneck, as the column `head` of the table `models` has it."""
        content = {
            "criteria": list(self._concepts.ids),
            "tops": self._concepts.tops.tolist(),
            "correction": self.head.correction.tolist(),
            "weights": self.head.weights.tolist(),
            "bias": self.head.bias.tolist(),
            "scores": list(self.scores),
            "temperature": self.head.temperature,
        }
        return json.dumps(content)

    def _read(self, answered: Sequence[Answered], attends: bool) -> tuple[Floats, list[Attention]]:
        """Level probabilities of every input and, where asked for, what of its response is looked at."""
        tokens = self._backbone.tokenize(answered)
        levels = np.zeros((len(answered), len(self._concepts.ids), int(self._concepts.tops.max()) + 1))
        attention: dict[int, Attention] = {}
        device = self._backbone.device
        for rows in by_length(tokens.lengths, _BATCH_TOKENS.get(device.type, _BATCH_TOKENS["cpu"])):
            ids, mask, segments = padded(self._backbone, tokens, rows)
            with torch.inference_mode():
                states = self._backbone.states(ids, mask, segments)
                # In double precision probabilities sum to 1 as closely as a trace is checked.
                levels[rows] = self._model(states, mask).double().softmax(-1).cpu().numpy()
                if attends:
                    weights = self._model.attend(states, mask).double().cpu().numpy()
                    for row, row_weights in zip(rows, weights, strict=True):
                        # The part that lies on its response
                        inputs = tokens.row(row)
                        own = np.flatnonzero(tokens.segments[inputs] == RESPONSE)
                        attention[row] = Attention(tokens.spans[inputs][own].astype(np.int64), row_weights[:, own])
        return levels, [attention[row] for row in range(len(attention))]


def save(
    path: Path,
    trained: Trained,
    head: Head,
    method: Method,
    seed: int,
    training: Training,
    data: LabelledData,
    bundle: Bundle,
    backbone: Backbone,
    plan: Bottleneck,
) -> str:
    """Writes a grader as one file, whole or not at all; the same grader makes the same bytes. Returns their SHA-256.

    head: with the temperature fitted; method, seed, training: how it was trained; data: what it learned from; bundle:
    the rubric of these concepts; plan: the study's, which names the backbone. InputError for a method without a linear
    head over exactly the bundle's concepts.
    """
    model = trained.concept_encoder
    ids = tuple(criterion.id for criterion in bundle.criteria)
    if model is None or head.weights.shape[1] != len(model.tops) or data.concepts.ids[: len(model.tops)] != ids:
        rule = f"'{method}' cannot be exported: its grade is no sum of exactly the rubric's concepts"
        raise InputError(rule, field="bottleneck.methods", hint="name a method that keeps all concepts first")
    labelled = data.split[data.grades != MISSING]
    versions = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    about = About(
        method=method,
        seed=seed,
        training=training,
        counts={split: int((labelled == split).sum()) for split in np.unique(data.split).tolist()},
        validation=trained.validation,
        bundle_id=bundle.bundle_id,
        bundle=bundle.canonical(),
        scores=tuple(data.scores.tolist()),
        temperature=head.temperature,
        backbone=plan.backbone,
        backbone_digest=backbone.name,
        max_tokens=backbone.max_tokens,
        match=backbone.matches,
        layer=plan.layer,
        arithmetic=plan.arithmetic,
        adapter=plan.adapter if plan.encoder == "lora" else None,
        blueprint=backbone.blueprint() if plan.encoder == "tuned" else None,
        rubric_aware=model.rubric_aware,
        versions=versions,
    )
    # All numbers of a grader by their names in its file
    tensors = {_CONCEPTS + name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
    tensors |= {_ENCODER + name: weights for name, weights in (trained.encoder_state or {}).items()}
    arrays = {"weights": head.weights, "bias": head.bias, "precision": head.precision, "noise": head.noise}
    tensors |= {_HEAD + name: torch.from_numpy(values) for name, values in arrays.items() if values is not None}
    content = as_safetensors(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, {_ABOUT: about.model_dump_json()}
    )
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def load(path: Path, base: Path = Path()) -> BottleneckGrader:
    """The grader of a file. base: where the folder of a frozen backbone is looked for.

    InputError for what is no whole grader of this format, for numbers that cannot be its, and where the text encoder is
    not there or another one.
    """
    tensors, about, digest = _opened(path)
    if odd := [name for name in tensors if not name.startswith((_CONCEPTS, _ENCODER, _HEAD))]:
        raise InputError(f"no grader has a tensor '{odd[0]}'", file=path)
    try:
        bundle = about.unlocked
        backbone = _backbone(about, _under(_ENCODER, tensors), base)
        settings = about.training
        tops = [criterion.top for criterion in bundle.criteria]
        model = ConceptEncoder(backbone.width, tops, settings.temperature, about.rubric_aware, settings.width)
        buffers = {name: buffer for name, buffer in model.state_dict().items() if name in ("tops", "beyond")}
        model.load_state_dict(buffers | _under(_CONCEPTS, tensors))
        head = _head(_under(_HEAD, tensors), len(about.scores), len(tops), about.temperature)
    except (UserError, ValueError, RuntimeError) as error:
        raise InputError(f"this grader cannot be used: {_message(error)}", file=path) from error
    return BottleneckGrader(about, digest, backbone, model, head)


def _opened(path: Path) -> tuple[dict[str, Tensor], About, str]:
    """Tensors, metadata and digest of a file."""
    try:
        with safe_open(path, "pt") as file:
            metadata = (file.metadata() or {}).get(_ABOUT)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, SafetensorError) as error:
        raise InputError(f"this is no whole grader file: {_message(error)}", file=path) from error
    if metadata is None:
        raise InputError("this file holds no grader of rubricflow's", file=path)
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise InputError("this grader holds numbers that are not finite", file=path)
    try:
        return tensors, About.model_validate_json(metadata), digest
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        rule = f"this grader was written by another version of rubricflow: {first['msg']} at '{place}'"
        raise InputError(rule, file=path, hint="train it anew") from error


def _backbone(about: About, weights: dict[str, Tensor], base: Path) -> Backbone:
    """The text encoder: from the file, or the one that it names."""
    if about.blueprint is not None:
        try:
            return backbones.rebuilt(about.backbone_digest, about.blueprint, weights)
        except Exception as error:  # the tokenizers library raises nothing narrower
            raise ValueError(f"its text encoder cannot be rebuilt: {_message(error)}") from error
    name = str(base / about.backbone) if (base / about.backbone).is_dir() else about.backbone
    rounds = about.arithmetic == "bfloat16"
    backbone = backbones.load(name, about.max_tokens, about.match, about.layer, rounds)
    if backbone.name != about.backbone_digest:
        raise ValueError(f"it was trained on the text encoder {about.backbone_digest}, and here is {backbone.name}")
    if about.adapter is not None:
        backbone = adapted(backbone, about.adapter)
        load_adapter(backbone, weights)
    return backbone


def _head(arrays: Mapping[str, Tensor], grades: int, concepts: int, temperature: float) -> Head:
    """The head; ValueError for shapes, variances, a precision or a temperature that no head has."""
    shapes = {"weights": (grades, concepts), "bias": (grades,), "precision": (concepts, concepts), "noise": (concepts,)}
    without_correction = {name: shapes[name] for name in ("weights", "bias")}
    values = {name: tensor.numpy().astype(np.float64) for name, tensor in arrays.items()}
    if {name: array.shape for name, array in values.items()} not in (shapes, without_correction):
        raise ValueError("its head has other shapes than its concepts and grades ask for")
    head = Head(**values, temperature=temperature)
    if not 0 < temperature < np.inf or (head.noise is not None and not (head.noise > 0).all()):
        raise ValueError("its head has a temperature or noise that is not above 0")
    if head.precision is not None and np.linalg.eigvalsh(head.precision).min() <= 0:
        raise ValueError("its precision is not positive definite")
    return head


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _message(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
