"""The sentence encoder beside what transformers makes of the same files."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.llm import encoder
from rubricflow.tasks.core.llm.encoder import MiniLM, minilm

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from importlib.util import find_spec
    from pathlib import Path

    return Path(find_spec(encoder._PACKAGE).submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def plain(folder):
    return transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()


@given(st.lists(st.text(max_size=80), max_size=8))
@settings(max_examples=15)
def test_texts_are_cut_into_the_tokens_of_transformers(plain, texts):
    texts = [*texts, "word " * 400, "a [SEP] b"]
    read = plain[0](texts, truncation=True, max_length=256, split_special_tokens=True)
    assert minilm()._ids(texts) == read["input_ids"]


def test_states_are_those_of_transformers(plain):
    texts = ["Plants need light to grow.", "no", "word " * 300, "Ein Satz, der é und 中 hat."]
    tokenizer, model = plain
    for text, tokens in zip(texts, minilm().tokens(texts), strict=True):
        with torch.inference_mode():
            states = model(**tokenizer([text], truncation=True, max_length=256, return_tensors="pt")).last_hidden_state
        expected = torch.nn.functional.normalize(states[0, 1:-1], dim=1).numpy()
        cosine = (tokens.vectors[:, 384:] * np.sqrt(2) * expected).sum(axis=1)
        assert cosine.min() > 0.999


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=12, unique=True), st.integers(0, 11))
@settings(max_examples=8)
def test_a_text_does_not_depend_on_those_read_with_it(fresh, texts, place):
    text = texts[place % len(texts)]
    together = dict(zip(texts, fresh.tokens(texts), strict=True))[text]
    assert (together.vectors == fresh.tokens([text])[0].vectors).all()


@pytest.fixture(scope="module")
def fresh():
    return MiniLM()


def test_what_is_kept_is_what_is_read(monkeypatch, fresh):
    monkeypatch.setattr(encoder, "_MOST_KEPT", 3)
    few, all_ = fresh, minilm()
    texts = ["one", "two", "three", "four", "one"]
    for pair in itertools.pairwise(texts):
        assert (few(pair) == all_(pair)).all()
        assert len(few._kept) <= 3
    assert (few(texts) == all_(texts)).all()


def test_it_says_what_its_numbers_rest_on(folder):
    name, rest = minilm().made.split("@")
    digest, _, precision, _, library, version = rest.split(" ")
    assert name == encoder.NAME
    assert digest == encoder.file_digest(folder / "model.safetensors")[:12]
    assert precision in {"bf16", "f16", "f32"}
    assert library == "openvino"
    assert version[0].isdigit()
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 6
