"""The backend that an engine's settings name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from tasks.contracts.errors import InputError
from tasks.contracts.settings.engine import Engine
from tasks.llm.backend import Backend
from tasks.llm.backends import openai, vllm
from tasks.llm.backends.openai import OpenAI
from tasks.llm.backends.vllm import Vllm


def open_engine(
    kind: Literal["vllm", "openai"], engine: Engine, key_of: Callable[[str], str | None], base: Path = Path()
) -> Backend:
    """The engine of a study; a model in this process is loaded once for all who ask with the same settings.

    key_of: name of a credential (see `Engine.key`) → its value, None where there is none.
    base: the folder from which a relative folder of weights is meant.
    InputError for a URL that carries a password, which would stand in every manifest; BackendError where vLLM or the
    model is missing.
    """
    if kind == "vllm":
        folder = (base / engine.model).resolve()
        return _in_process(engine.model_dump_json(), folder if folder.is_dir() else None)
    for url in engine.urls:
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query:
            rule = "a URL holds no credentials; name an environment variable or a block under 'key'"
            raise InputError(rule, field="engine.urls")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'{url}' is no URL of a server, such as http://127.0.0.1:8000/v1", field="engine.urls")
    return OpenAI(engine, key_of(engine.key))


def model_of(kind: Literal["vllm", "openai"], engine: Engine, base: Path = Path()) -> str:
    """The identity of a study's engine, as its replies are kept under it, without opening it."""
    if kind == "openai":
        return openai.identity(engine)
    folder = (base / engine.model).resolve()
    return vllm.identity(engine, folder if folder.is_dir() else None)


@lru_cache(maxsize=4)
def _in_process(settings: str, folder: Path | None) -> Vllm:
    return Vllm(Engine.model_validate(json.loads(settings)), folder)
