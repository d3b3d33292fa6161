"""A backend opened by its name, and warnings about settings that do harm where a model computes on processor cores.

Each backend has a module `tasks/core/llm/backends/<name>.py` with the two functions of `Module`. The numbers behind the
rules for processors are in docs/cpu.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice, engine_of
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backend import Backend, KeyOf
from rubricflow.tasks.core.llm.budget import on_budget
from rubricflow.tasks.core.llm.calls import GivesUp, Metered
from rubricflow.tasks.core.llm.mailbox import Collector, open_outbox
from rubricflow.tasks.core.llm.prices import price_of
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.schema import JsonObject


class Module(Protocol):
    """What the module of a backend has."""

    def open_backend(self, choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Backend:
        """See `open_backend`."""

    def model_of(self, choice: Choice, base: Path) -> str:
        """See `model_of`."""


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf = os.environ.get) -> Backend:
    """The backend that settings name.

    base: the folder from which a relative folder of weights is meant. InputError for settings that the backend cannot
    take, BackendError where its library or its model is missing. Prints a line for each that does harm on this machine.
    One that asks a model spends no more than the present budget; under `collecting` it notes its requests.
    """
    outbox = open_outbox()
    if outbox is not None and BACKENDS[choice.backend].needs == "engine":
        return Collector(outbox, model_of(choice, base), engine_of(choice))
    for line in cpu_warnings(choice, base, this_machine()):
        _advise(f"{choice.backend}: {line}")
    backend = _module(choice).open_backend(choice, base, replies, key_of)
    if BACKENDS[choice.backend].needs != "engine":
        return backend
    price = price_of(choice.engine)
    return GivesUp(Metered(on_budget(backend, price, choice.engine), price))


@cache
def _advise(line: str) -> None:
    """Prints what concerns every judge of a jury or cascade alike once in a process."""
    print(line)


def model_of(choice: Choice, base: Path) -> str:
    """The identity of what would answer, as its replies are kept under it, without opening it."""
    return _module(choice).model_of(choice, base)


def _module(choice: Choice) -> Module:
    return cast(Module, import_module(f"rubricflow.tasks.core.llm.backends.{choice.backend}"))


# Warnings about models on processor cores.

GIB = 1 << 30
CACHE, THREADS = "VLLM_CPU_KVCACHE_SPACE", "OMP_NUM_THREADS"
DEFAULT_CACHE = "1"
"""GiB of key-value cache where the environment names none."""
_OVERHEAD = 3 * GIB
"""Memory that the engine takes in addition to weights and cache."""
_PATIENCE_S, _AT_ONCE = 600.0, 16
"""A server on cores that is asked more at once answers each late; with less patience a call is begun anew."""
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0"})
_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_GPU = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class Machine(NamedTuple):
    """What a model on cores may use."""

    cores: int
    """Cores that this process may use."""
    load: float
    """Processes that want a core, over the last minute."""
    free: int | None
    """Bytes of memory that can be had; None where the system does not say."""
    environ: Mapping[str, str]
    has_gpu: bool


def this_machine() -> Machine:
    """The machine that this process runs on."""
    can_tell = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if can_tell else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    free = None  # that Linux could give without swapping
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = 1024 * int(line.split()[1])
    return Machine(cores, load, free, os.environ, any(Path(device).exists() for device in _GPU))


def cpu_warnings(choice: Choice, base: Path, machine: Machine) -> list[str]:
    """What of a model's settings does harm on this machine, a line each; nothing where there is a GPU, or the model is
    elsewhere.

    base: the folder from which a relative folder of weights is meant.
    """
    engine = choice.engine
    if engine is None or machine.has_gpu:
        return []
    match choice.backend:
        case "vllm":
            return [*_threads(machine), *_cache(engine, base / engine.model, machine)]
        case "openai" if any(urlsplit(url).hostname in _LOCAL for url in engine.urls):
            if engine.timeout_s < _PATIENCE_S and engine.concurrency > _AT_ONCE:
                calls = f"{engine.concurrency} calls at once, each given up after {engine.timeout_s:g} s and begun anew"
                advice = "set engine.concurrency to 8 and engine.timeout_s to 1800"
                return [f"a server on this machine, which has no GPU, is asked {calls}: {advice}"]
    return []


def _threads(machine: Machine) -> Iterator[str]:
    named = machine.environ.get(THREADS, "")
    threads = int(named) if named.isdigit() else machine.cores
    if threads > machine.cores:
        yield f"{THREADS}={threads} on {machine.cores} cores: threads wait for each other; set it to the cores at most"
    elif threads > 1 and machine.load > machine.cores:
        crowd = f"{threads} threads, and {machine.load:.0f} processes want {machine.cores} cores"
        yield f"{crowd}: half of the time goes into waiting; set {THREADS}=1 until the machine is quiet"


def _cache(engine: Engine, weights: Path, machine: Machine) -> Iterator[str]:
    """Key-value cache against the longest prompt, and all that is wanted against the memory. Both are told only where
    the weights lie in a folder: a model of the hub is not known before it is loaded."""
    try:
        config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
        space = float(machine.environ.get(CACHE, DEFAULT_CACHE))
    except (OSError, ValueError):
        return
    if not isinstance(config, dict):
        return
    stored_type = config.get("torch_dtype", config.get("dtype"))
    stored_bytes = _BYTES.get(str(stored_type), 2)
    used_bytes = _BYTES.get(str(engine.options.get("dtype", stored_type)), 2)
    longest: Any = engine.options.get("max_model_len", config.get("max_position_embeddings", 0))
    prompt = int(longest) * _per_token(config, used_bytes)
    if prompt > space * GIB:
        yield (
            f"{CACHE}={space:g} GiB holds no prompt of max_model_len {longest} ({prompt / GIB:.1f} GiB): the engine "
            "refuses to start; set options.max_model_len to what prompt and reply need, such as 8192, or more cache"
        )
    stored = sum(file.stat().st_size for file in weights.glob("*.safetensors"))
    takes = stored * used_bytes / stored_bytes + space * GIB + _OVERHEAD
    if stored and machine.free is not None and takes > machine.free:
        yield (
            f"weights, cache and engine want about {takes / GIB:.1f} GiB, and {machine.free / GIB:.1f} GiB are free: "
            f"take a smaller model, dtype bfloat16, or less {CACHE}"
        )


def _per_token(config: JsonObject, wide: int) -> int:
    """Bytes of key-value cache for a token: keys and values of every layer; 0 where the description does not say."""
    heads = int(config.get("num_attention_heads") or 0)
    if not heads:
        return 0
    size = config.get("head_dim") or int(config.get("hidden_size") or 0) // heads
    layers = int(config.get("num_hidden_layers") or 0)
    cached_heads = int(config.get("num_key_value_heads") or heads)
    return 2 * layers * cached_heads * size * wide
