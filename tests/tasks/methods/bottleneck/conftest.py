"""Planted problems, and small random backbones of each kind that are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
BART = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
FILLERS = ("the", "a", "of", "and", "so", "it")


@dataclass(frozen=True)
class Planted:
    """Token states in which each concept's level is written at one token, and grades that follow from the levels."""

    data: LabelledData
    values: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Written:
    """Responses in which each concept's level is one word."""

    data: LabelledData
    answered: tuple[Answered, ...]


def labelled(levels: np.ndarray, tops: tuple[int, ...], rng: np.random.Generator, missing: float) -> LabelledData:
    """Levels with their grades: three classes by the mean share; two thirds of the rows are the train split."""
    n, concepts = levels.shape
    shares = (levels / np.array(tops)).mean(axis=1)
    grades = np.digitize(shares, np.quantile(shares, [1 / 3, 2 / 3])).astype(np.int64)
    split = np.repeat(["train", "calibration", "test"], [n - 2 * (n // 6), n // 6, n // 6])
    names = tuple(f"concept-{at}" for at in range(concepts))
    anchors = tuple(tuple(f"level {level}" for level in range(top + 1)) for top in tops)
    return LabelledData(
        tuple(f"response-{at:05}" for at in range(n)),
        Concepts(names, names, names, anchors),
        np.where(rng.random(levels.shape) < missing, MISSING, levels),
        np.ones(levels.shape),
        grades,
        np.arange(3.0),
        split,
    )


@pytest.fixture(scope="session")
def planted() -> Callable[..., Planted]:
    """Makes planted states."""

    def make(n: int = 240, tops: tuple[int, ...] = (2, 1, 3), width: int = 16, missing: float = 0.0) -> Planted:
        rng = np.random.default_rng(0)
        levels = np.stack([rng.integers(0, top + 1, n) for top in tops], axis=1)
        starts = np.concatenate([[0], np.cumsum(rng.integers(4, 12, n))])
        values = rng.normal(size=(starts[-1], width))
        looks = 3 * rng.normal(size=(len(tops), max(tops) + 1, width))
        for row, start in enumerate(starts[:-1]):
            for concept, level in enumerate(levels[row]):
                values[start + concept] += looks[concept, level]
        return Planted(labelled(levels, tops, rng, missing), values.astype(np.float16), starts)

    return make


@pytest.fixture(scope="session")
def written() -> Callable[..., Written]:
    """Makes responses in words."""

    def make(n: int = 48) -> Written:
        rng = np.random.default_rng(1)
        levels = rng.integers(0, 3, (n, 2))
        texts = []
        for row in levels:
            said = [WORDS[3 * concept + level] for concept, level in enumerate(row)]
            texts.append(" ".join(rng.permutation([*said, *rng.choice(FILLERS, rng.integers(1, 6))])))
        answered = tuple(Answered("which words are there", text, "alpha and delta") for text in texts)
        return Written(labelled(levels, (2, 2), rng, 0.0), answered)

    return make


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Kind of backbone → a folder with a small random one, made once."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("backbone") / f"tiny-{kind}"
            tokenizer = _tokenizer(kind)
            tokenizer.save_pretrained(made[kind])
            _model(kind, len(tokenizer)).save_pretrained(made[kind])
        return made[kind]

    return folder


def _tokenizer(kind: str) -> Any:
    """A fast tokenizer as such models have it, trained on a handful of sentences."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    texts = [" ".join([*WORDS, *FILLERS, "which words are there ?"])] * 20
    if kind == "bert":
        marks = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=list(marks.values()))
    elif kind == "t5":
        marks = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=list(marks.values()), unk_token="<unk>")
    else:
        marks = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
        if kind == "gpt2":
            marks = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        special = list(dict.fromkeys(marks.values()))
        trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, **marks)


def _model(kind: str, vocabulary: int) -> Any:
    """A random model of a few thousand numbers."""
    import torch
    import transformers as hf

    layers: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
    bert = partial(hf.BertConfig, **layers, intermediate_size=32, max_position_embeddings=64)
    roberta = partial(hf.RobertaConfig, **layers, intermediate_size=32, max_position_embeddings=66, pad_token_id=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "bert":
            return hf.BertModel(bert(vocab_size=vocabulary))
        if kind == "roberta":
            return hf.RobertaModel(roberta(vocab_size=vocabulary))
        if kind == "gpt2":
            return hf.GPT2Model(hf.GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=1, n_head=2, n_positions=64))
        sizes = {"d_model": 16, "vocab_size": vocabulary}
        if kind == "t5":
            return hf.T5Model(hf.T5Config(**sizes, d_kv=8, d_ff=32, num_layers=1, num_heads=2))
        halves = {f"{half}_{what}": n for half in ("encoder", "decoder") for what, n in BART.items()}
        return hf.BartModel(hf.BartConfig(**sizes, **halves, max_position_embeddings=64))
