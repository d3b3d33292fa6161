"""Which backend an engine's settings open, and what of it is told apart."""

import importlib.util
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.backends import BACKENDS
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.methods import Prompting
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backends import vllm
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.opening import open_backend


def open_as(name, engine, base=Path(), key_of={}.get):
    return open_backend(Judge(backend=name, engine=engine), base, None, key_of)


@pytest.fixture
def installed(monkeypatch):
    """As if vLLM were there: its weights are loaded with the first question only."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.fixture
def weights(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"12345")
    return folder


@pytest.mark.parametrize("name", [name for name, backend in BACKENDS.items() if backend.reads_prose])
def test_what_reads_prose_has_a_module_of_its_name(name):
    module = import_module(f"rubricflow.tasks.core.llm.backends.{name}")
    assert callable(module.open_backend)
    assert callable(module.model_of)


@pytest.mark.parametrize(
    ("settings", "content", "rule"),
    [
        (Judge, {"backend": "gpt"}, "'gpt' is no backend for this; use embedded, vllm, openai, hosted, replay"),
        (Judge, {"backend": "vllm"}, "backend 'vllm' needs an engine with the model's name"),
        (Judge, {"backend": "simulated"}, "backend 'simulated' needs the truth that it knows"),
        (Graphs, {"backend": "trained"}, "'trained' is no backend for this; use stated, vllm, openai, hosted"),
        (Graphs, {"backend": "replay"}, "backend 'replay' needs the model whose replies to use"),
        (Prompting, {"backend": "embedded"}, "'embedded' is no backend for this; use vllm, openai, hosted or replay"),
        (Prompting, {"backend": "replay", "model": "m", "engine": {"model": "m"}}, "'replay' takes no engine"),
        (Prompting, {"backend": "openai"}, "backend 'openai' needs an engine"),
    ],
)
def test_settings_name_a_backend_that_serves_them_and_give_what_it_needs(settings, content, rule):
    with pytest.raises(ValidationError, match=rule):
        settings.model_validate(content)


def test_a_server_gets_the_key_that_the_engine_names():
    asked = []

    def key_of(name):
        asked.append(name)

    backend = open_as("openai", Engine(model="m", key="block:judge"), key_of=key_of)
    assert isinstance(backend._backend._backend, OpenAI)
    assert asked == ["block:judge"]


@pytest.mark.parametrize("url", ["http://me:secret@host/v1", "http://secret@host/v1", "https://host/v1?api_key=secret"])
def test_a_url_with_a_password_is_refused_without_being_shown(url):
    with pytest.raises(InputError, match=r"engine\.urls.*holds no credentials") as caught:
        open_as("openai", Engine(model="m", urls=(url,)))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", "nonsense"])
def test_what_is_no_url_is_named(url):
    with pytest.raises(InputError, match="is no URL of a server"):
        open_as("openai", Engine(model="m", urls=(url,)))


def test_without_vllm_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match=r"pip install '\.\[vllm\]'"):
        open_as("vllm", Engine(model="no/such"))


def test_a_model_in_this_process_is_opened_once(installed, weights):
    engines = [Engine(model="tiny"), Engine(model="tiny"), Engine(model="tiny", logprobs=2)]
    one, two, other = (open_as("vllm", engine, weights.parent)._backend._backend for engine in engines)
    assert one is two
    assert other is not one


def model(folder, **engine):
    return vllm.Vllm(Engine.model_validate({"model": "tiny"} | engine), folder).model


def test_other_weights_are_another_model(installed, weights):
    first = model(weights)
    assert first.startswith("tiny@")
    assert model(weights) == first
    (weights / "model.safetensors").write_bytes(b"12346")
    second = model(weights)
    (weights / "tokenizer.json").write_text("{}")
    assert len({first, second, model(weights)}) == 3


def test_where_the_weights_lie_and_what_the_engine_may_use_is_not_part_of_the_model(installed, weights, tmp_path):
    first = model(weights)
    (tmp_path / "other").mkdir()
    moved = weights.rename(tmp_path / "other" / "tiny")
    (moved / ".cache").mkdir()
    (moved / ".cache" / "x").write_text("x")
    assert model(moved, options={"gpu_memory_utilization": 0.5, "enforce_eager": True}) == first


def test_what_changes_replies_is_part_of_the_model(installed, weights):
    names = [
        model(weights),
        model(weights, options={"dtype": "float32"}),
        model(weights, options={"quantization": "fp8"}),
        model(weights, logprobs=5),
        model(None, model="org/tiny"),
        model(None, model="org/tiny", options={"revision": "abc"}),
    ]
    assert len(set(names)) == len(names)
    assert names[4].startswith("org/tiny@")


def test_a_folder_that_holds_no_model_is_named(installed, tmp_path):
    with pytest.raises(BackendError, match=r"holds no model: there is no config\.json"):
        open_as("vllm", Engine(model="."), tmp_path)
