"""Settings that do harm on processor cores are told, and sound ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm import opening
from rubricflow.tasks.core.llm.opening import GIB, Machine, cpu_warnings, this_machine

CONFIG = {"num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_size": 1536}
CONFIG |= {"max_position_embeddings": 32768, "torch_dtype": "bfloat16"}
QUIET = Machine(cores=2, load=0.1, free=24 * GIB, environ={}, has_gpu=False)


def told(base: Path, machine: Machine = QUIET, backend: str = "vllm", **engine: Any) -> list[str]:
    judge = Judge.model_validate({"backend": backend, "engine": {"model": "weights"} | engine})
    return cpu_warnings(judge, base, machine)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text(json.dumps(CONFIG))
    with (tmp_path / "weights" / "model.safetensors").open("wb") as file:
        file.truncate(3 * GIB)  # a hole: takes no room
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "load", "word"),
    [
        ({"OMP_NUM_THREADS": "8"}, 0.0, "8 on 2 cores"),
        ({"OMP_NUM_THREADS": "2"}, 5.0, "5 processes want 2 cores"),
        ({}, 5.0, "OMP_NUM_THREADS=1"),
        ({"OMP_NUM_THREADS": "1"}, 5.0, None),
        ({"OMP_NUM_THREADS": "2"}, 1.0, None),
        ({"OMP_NUM_THREADS": "many"}, 0.0, None),
    ],
)
def test_more_threads_than_cores_or_than_the_load_leaves(
    base: Path, environ: dict[str, str], load: float, word: str | None
) -> None:
    lines = told(base, QUIET._replace(environ=environ, load=load))
    assert len(lines) == (word is not None)
    assert word is None or word in lines[0]


@given(length=st.integers(256, 131072), space=st.integers(1, 40), wide=st.sampled_from(["bfloat16", "float32"]))
def test_a_cache_that_holds_no_prompt(tmp_path_factory: Any, length: int, space: int, wide: str) -> None:
    folder = tmp_path_factory.mktemp("base")
    (folder / "weights").mkdir()
    (folder / "weights" / "config.json").write_text(json.dumps(CONFIG))
    machine = QUIET._replace(environ={"VLLM_CPU_KVCACHE_SPACE": str(space)})
    lines = told(folder, machine, options={"max_model_len": length, "dtype": wide})
    token = 28 * 2 * 128 * 2 * (4 if wide == "float32" else 2)  # layers, heads, size, key and value, bytes
    assert bool(lines) == (length * token > space * GIB)


@pytest.mark.parametrize(("free", "dtype", "lines"), [(6, "bfloat16", 1), (8, "bfloat16", 0), (8, "float32", 1)])
def test_less_memory_than_the_model_wants(base: Path, free: int, dtype: str, lines: int) -> None:
    options = {"max_model_len": 4096, "dtype": dtype}
    found = told(base, QUIET._replace(free=free * GIB), options=options)
    assert len(found) == lines
    assert all(f"{free:.1f} GiB are free" in line for line in found)


@pytest.mark.parametrize(
    ("url", "engine", "lines"),
    [
        ("http://127.0.0.1:8000/v1", {}, 1),
        ("http://localhost:8000/v1", {}, 1),
        ("http://[::1]:8000/v1", {}, 1),
        ("http://127.0.0.1:8000/v1", {"concurrency": 8}, 0),
        ("http://127.0.0.1:8000/v1", {"timeout_s": 1800}, 0),
        ("https://example.org/v1", {}, 0),
    ],
)
def test_an_impatient_client_of_a_local_server(tmp_path: Path, url: str, engine: dict[str, Any], lines: int) -> None:
    assert len(told(tmp_path, backend="openai", urls=[url], **engine)) == lines


def test_a_gpu_or_no_model_or_weights_that_are_elsewhere_need_no_word(base: Path, tmp_path: Path) -> None:
    worst = QUIET._replace(free=1, environ={"OMP_NUM_THREADS": "8", "VLLM_CPU_KVCACHE_SPACE": "1"})
    assert told(base, worst._replace(has_gpu=True)) == []
    assert cpu_warnings(Judge(), base, worst) == []
    assert told(base, QUIET._replace(free=1), model="some/name") == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"num_hidden_layers": 2}'])
def test_a_description_that_says_nothing_is_no_error(base: Path, content: str) -> None:
    (base / "weights" / "config.json").write_text(content)
    assert told(base, QUIET._replace(environ={"VLLM_CPU_KVCACHE_SPACE": "x"})) == []
    assert told(base) == []


def test_this_machine_can_be_told() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.load >= 0
    assert machine.free is None or machine.free > 0


def test_steps_that_ask_one_server_are_advised_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "this_machine", lambda: QUIET)
    for model in ("small", "large", "small"):
        engine = {"model": model, "urls": ["http://127.0.0.1:9/v1"], "timeout_s": 61.5}
        judge = Judge.model_validate({"backend": "openai", "engine": engine})
        opening.open_backend(judge, tmp_path, ":memory:")
    assert capsys.readouterr().out.count("61.5 s") == 1
