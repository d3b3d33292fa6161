"""A language model in this process, served by vLLM.

Without a GPU (vLLM's CPU build) the engine needs settings of its environment; they are set only where they are not:
VLLM_CPU_KVCACHE_SPACE=1 (GiB of cache; the engine aborts without it) and VLLM_ENABLE_V1_MULTIPROCESSING=0 (no second
process: the start takes seconds, not a minute). Prompts are not cut into pieces there (its server needs
--no-enable-chunked-prefill for the same reason). Everywhere: VLLM_NO_USAGE_STATS=1, VLLM_LOGGING_LEVEL=WARNING and, for
weights in a folder, HF_HUB_OFFLINE=1.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.backends import Choice, engine_of, install
from rubricflow.tasks.core.contracts.errors import BackendError, one_line
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backend import Answers, Backend, KeyOf, TurnLock
from rubricflow.tasks.core.llm.backends.structure import ControlTokensError, Structure, as_written
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, Token, overdue
from rubricflow.tasks.core.llm.schema import BLANKS, JsonDict
from rubricflow.tasks.core.store.files import file_digest
from rubricflow.tasks.core.text.digest import text_digest

_HINT = f"backend 'vllm' needs vLLM: {install('vllm')}"
_AHEAD = 256
"""Requests handed to the engine at once, about as many as it decodes side by side; the others wait here, so that
little is lost or paid for in vain where a run is stopped."""
_STRUCTURED = {"backend": "guidance", "disable_any_whitespace": True}
"""The engine's other grammar lets control characters into strings; with whitespace allowed a weak model writes nothing
else. Prompts show the same form, see `tasks.core.llm.schema`."""
_RESOURCES = frozenset(
    {
        "cpu_offload_gb",
        "disable_log_stats",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_num_batched_tokens",
        "max_num_seqs",
        "pipeline_parallel_size",
        "tensor_parallel_size",
    }
)
"""Options that say what the engine may use, and change no reply."""


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Vllm:
    """The model in this process, loaded once for all who ask with the same settings."""
    engine = engine_of(choice)
    return _shared(engine.model_dump_json(), _folder(engine, base))


@lru_cache(maxsize=4)
def _shared(engine: str, folder: Path | None) -> Vllm:
    return Vllm(Engine.model_validate_json(engine), folder)


def model_of(choice: Choice, base: Path) -> str:
    engine = engine_of(choice)
    return identity(engine, _folder(engine, base))


def _folder(engine: Engine, base: Path) -> Path | None:
    """The folder of the weights, where they are not of the hub."""
    folder = (base / engine.model).resolve()
    return folder if folder.is_dir() else None


class Vllm(Backend):
    """Backend over one model in this process. The weights are loaded with the first question.

    Prefix caching is on: what requests share at their beginning is computed once, and `Reply.cached_tokens` says how
    much of a prompt was there already. A prompt that does not fit the model is an error reply; a missing package,
    model, chat template or a contract that the grammar does not know is a BackendError.
    """

    name = "vllm"
    batch_size = 4096

    def __init__(self, engine: Engine, folder: Path | None = None) -> None:
        """folder: of the weights; a model's name of the hub where there is none. BackendError where vLLM is missing."""
        if importlib.util.find_spec("vllm") is None:
            raise BackendError(_HINT)
        self.model = identity(engine, folder)
        self._engine, self._weights = engine, str(folder or engine.model)
        self._local = folder is not None
        self._loaded: Any = None
        self._structure: Structure
        self._turn = TurnLock()

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields each reply as its decoding ends, one thread's after the other's; a request that is not waited for any
        more, or whose time is over, is given up."""
        with self._turn.taken(requests) as is_mine:
            yield from self._decoded(requests) if is_mine else ((index, overdue()) for index in range(len(requests)))

    def _decoded(self, requests: Sequence[Request]) -> Answers:
        if self._loaded is None:
            loaded = load(self._weights, self._local, self._engine.options)
            self._structure = Structure(loaded.get_tokenizer(), self._engine.model)
            self._loaded = loaded
        llm, waiting = self._loaded, enumerate(requests)
        running: dict[str, tuple[int, float]] = {}
        try:
            while True:
                for index, request in islice(waiting, _AHEAD - len(running)):
                    refused = self._begin(llm, index, request, running)
                    if refused is not None:
                        yield index, refused
                if not running:
                    return
                try:
                    outputs = list(llm.llm_engine.step())
                except Exception as error:
                    kept = "every reply before this is kept"
                    raise BackendError(f"vllm: the engine broke: {one_line(error)}; {kept}") from error
                for output in outputs:
                    if output.finished and output.request_id in running:
                        index, begun = running.pop(output.request_id)
                        yield index, self._reply(output, time.monotonic() - begun)
                late = [name for name, (index, _) in running.items() if requests[index].until <= time.monotonic()]
                if late:
                    llm.llm_engine.abort_request(late)
                for name in late:
                    yield running.pop(name)[0], overdue()
        finally:
            if running:
                llm.llm_engine.abort_request(list(running))

    def _begin(self, llm: Any, index: int, request: Request, running: dict[str, tuple[int, float]]) -> Reply | None:
        """Hands a request to the engine; the error reply where it does not fit."""
        from vllm.exceptions import VLLMValidationError

        if request.until <= time.monotonic():
            return overdue()
        try:
            turns = [{"role": message.role, "content": message.content} for message in request.messages]
            plain_turns = self._structure.messages(turns)
            (request_id,) = llm.enqueue_chat(plain_turns, self._sampling(request), use_tqdm=False)
        except ControlTokensError as error:
            return Reply(error=f"refused: {one_line(error)}")
        except VLLMValidationError as error:
            if error.parameter in ("input_tokens", "input_text", "max_tokens"):
                return Reply(error=f"too_long: {one_line(error)}")
            raise BackendError(f"vllm: '{self._engine.model}' refuses the request: {one_line(error)}") from error
        except Exception as error:
            if "chat template" in str(error):
                hint = "a model for conversations is needed, or a tokenizer_config.json with a chat_template"
                raise BackendError(f"vllm: '{self._engine.model}' has no chat template: {hint}") from error
            raise BackendError(f"vllm: '{self._engine.model}' refuses the messages: {one_line(error)}") from error
        name = request_id.rpartition("-")[0] or request_id  # the engine appends a random part
        running[name] = (index, time.monotonic())
        return None

    def _reply(self, output: Any, seconds: float) -> Reply:
        (completion,) = output.outputs
        reply = Reply(
            text=completion.text,
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(completion.token_ids),
            cached_tokens=output.num_cached_tokens,
            latency_s=seconds,
            token_logprobs=None if completion.logprobs is None else _tokens(completion),
        )
        return as_written(reply, self._structure.broken)

    def _sampling(self, request: Request) -> Any:
        """The engine's own form, made anew each time because the engine writes into it."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        how, structured = request.sampling, None
        if request.schema is not None:
            structured = StructuredOutputsParams(json=dict(request.schema))
        return SamplingParams(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k or 0,
            min_p=0.0,
            repetition_penalty=1.0,
            seed=how.seed,
            max_tokens=how.longest,
            logprobs=self._engine.logprobs if request.want_logprobs else None,
            stop=list(BLANKS),
            structured_outputs=structured,
        )


def load(weights: str, local: bool, options: JsonDict) -> Any:
    """vLLM's engine with its weights, by name or folder; BackendError that says why there is none.

    local: whether `weights` is a folder. options: further engine arguments.
    """
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if local:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    settings = {"enable_prefix_caching": True, "structured_outputs_config": _STRUCTURED}
    try:
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            # The CPU build breaks off where a seeded request's prompt is computed in pieces.
            settings["enable_chunked_prefill"] = False
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM
    except ImportError as error:
        raise BackendError(f"{_HINT} (it is there, but cannot be imported: {one_line(error)})") from error
    try:
        return LLM(weights, **(settings | options))
    except Exception as error:
        hint = "look at the model's name and the engine's options"
        raise BackendError(f"vllm: the model '{weights}' cannot be loaded: {one_line(error)} ({hint})") from error


def _tokens(completion: Any) -> list[Token]:
    """The tokens drawn, each with the likeliest ones in its place."""
    tokens = []
    for drawn, places in zip(completion.token_ids, completion.logprobs, strict=True):
        ranked = sorted(places.values(), key=lambda place: (-place.logprob, place.rank))
        top = tuple((place.decoded_token or "", place.logprob) for place in ranked)
        tokens.append(Token(places[drawn].decoded_token or "", places[drawn].logprob, top))
    return tokens


def identity(engine: Engine, folder: Path | None) -> str:
    """Name and digest of everything that can change a reply: the weights, the options, what holds the output."""
    files = None if folder is None else weights(folder)
    options = {name: value for name, value in engine.options.items() if name not in _RESOURCES}
    content = json.dumps([files, options, engine.logprobs, _STRUCTURED, BLANKS], sort_keys=True)
    name = engine.model if folder is None else folder.name
    return f"{name}@{text_digest(content)[:12]}"


def weights(folder: Path) -> dict[str, str]:
    """File of a model's folder → SHA-256, hidden ones left out; takes about as long as to read them once. BackendError
    for a folder without a model."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            digests[path.relative_to(folder).as_posix()] = file_digest(path)
    if "config.json" not in digests:
        raise BackendError(f"vllm: the folder {folder} holds no model: there is no config.json in it")
    return digests
