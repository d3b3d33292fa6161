"""A language model at its provider's own interface: OpenAI, Anthropic, Gemini, or these at Bedrock and Vertex.

What is asked and read are the provider's forms, the same as in a batch. The libraries do what is each one's own:
addresses, signatures, tokens of a cloud. Tries, pauses and limits are ours, see `openai`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import httpx

from rubricflow.tasks.core.contracts.backends import Choice, engine_of
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backend import Answers, KeyOf
from rubricflow.tasks.core.llm.backends.completions import Completions
from rubricflow.tasks.core.llm.backends.connections import HttpAnswer
from rubricflow.tasks.core.llm.backends.openai import Clock, OpenAI, Sleep, check_urls, identity
from rubricflow.tasks.core.llm.forms import FORMS, form_of
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Request
from rubricflow.tasks.core.llm.schema import JsonDict

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Where a provider's key is, if the study does not say; a cloud's credentials are found as its own tools find them."""
_ADDRESSES = {"openai": "https://api.openai.com/v1"}
"""Of who is asked by connections of our own; the others are called by their names."""


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> Hosted:
    """A client of the provider, whose key has to be there once it is asked; InputError for an address that is none."""
    engine = engine_of(choice)
    check_urls(engine)
    defaults = Engine.model_fields
    name = KEYS.get(engine.provider, "") if engine.key == defaults["key"].default else engine.key
    key = key_of(name) if name else None
    url = None if engine.urls == defaults["urls"].default else engine.urls[0]
    hosted = Hosted(engine.model_copy(update={"key": name or "the cloud's credentials"}), key, url)
    hosted.lacks = f"{engine.provider}: there is no key in {name}" if name and not key else ""
    return hosted


def model_of(choice: Choice, base: Path) -> str:
    return identity(engine_of(choice))


class Hosted(OpenAI):
    """Backend over a provider's own interface; what goes wrong is treated as with any server."""

    name = "hosted"
    lacks = ""
    """Why nothing can be asked; replies that are stored are read without a key."""

    def __init__(
        self,
        engine: Engine,
        key: str | None,
        url: str | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """url: where the provider is reached, if not at its own address."""
        address = url or _ADDRESSES.get(engine.provider, engine.provider)
        super().__init__(engine.model_copy(update={"urls": (address,)}), key, clock, sleep)
        self._form, self._url = Completions(engine, self._key, form_of(engine)), url
        self._took = True  # what current models refuse is not in a form

    def answer(self, requests: Sequence[Request]) -> Answers:
        """As of any server; BackendError where there is no key."""
        if self.lacks:
            raise BackendError(self.lacks)
        return super().answer(requests)

    def kept_open(self) -> AbstractContextManager[Any]:
        """Without a key there is nothing to keep."""
        return nullcontext() if self.lacks else super().kept_open()

    def _connect(self) -> Any:
        if self._engine.provider == "openai":
            return super()._connect()
        client = _Gemini if form_of(self._engine) is FORMS["gemini"] else _Anthropic
        try:
            return client(self._engine, self._key, self._url)
        except Exception as error:  # whatever a library says of a cloud's settings
            raise BackendError(f"{self._engine.provider}: {self._form.safe(str(error))}") from error


class _Anthropic:
    """Anthropic's client, of its own interface or of a cloud's."""

    def __init__(self, engine: Engine, key: str, url: str | None) -> None:
        import anthropic

        clients = {"bedrock": anthropic.AsyncAnthropicBedrock, "vertex": anthropic.AsyncAnthropicVertex}
        named = "access_token" if engine.provider == "vertex" else "api_key"
        given = {name: value for name, value in ((named, key), ("base_url", url)) if value}
        open_client: Any = clients.get(engine.provider, anthropic.AsyncAnthropic)
        self._client = open_client(max_retries=0, timeout=engine.timeout_s, **given)
        self._library = anthropic

    async def post(self, url: str, content: bytes, key: str) -> HttpAnswer:
        library = self._library
        body = json.loads(content)
        try:
            raw = await self._client.messages.with_raw_response.create(
                model=body["model"], max_tokens=body["max_tokens"], messages=body["messages"], extra_body=body
            )
            answer = raw.http_response
        except library.APIStatusError as error:
            answer = error.response
        except library.APITimeoutError as error:
            raise httpx.ReadTimeout("no answer in time") from error
        except library.APIConnectionError as error:
            raise _as_httpx(error.__cause__ or error) from error
        except (RuntimeError, library.AnthropicError) as error:  # no credentials
            return HttpAnswer(401, {}, str(error).encode())
        return HttpAnswer(answer.status_code, answer.headers, answer.content)

    async def close(self) -> None:
        await self._client.close()


class _Gemini:
    """Google's client, of Gemini's own interface or of Vertex."""

    def __init__(self, engine: Engine, key: str, url: str | None) -> None:
        from google import genai

        options: Any = {"timeout": round(engine.timeout_s * 1000), "retry_options": {"attempts": 1}}
        access: JsonDict = {"vertexai": engine.provider == "vertex", "api_key": key or None}
        self._client = genai.Client(http_options=options | ({"base_url": url} if url else {}), **access)
        self._model, self._library = engine.model, genai

    async def post(self, url: str, content: bytes, key: str) -> HttpAnswer:
        body = json.loads(content)
        rest = {name: value for name, value in body.items() if name != "contents"}
        config: Any = {"should_return_http_response": True, "http_options": {"extra_body": rest}}
        try:
            given = await self._client.aio.models.generate_content(
                model=self._model, contents=body["contents"], config=config
            )
        except self._library.errors.APIError as error:
            headers = {name.lower(): value for name, value in dict(getattr(error.response, "headers", {})).items()}
            return HttpAnswer(error.code, headers, json.dumps(error.details).encode())
        except Exception as error:  # of whichever HTTP client the library finds, or of the cloud's credentials
            if type(error).__module__.startswith("google.auth"):
                return HttpAnswer(401, {}, str(error).encode())
            raise _as_httpx(error) from error
        answer: Any = given.sdk_http_response
        headers = {name.lower(): value for name, value in (answer.headers or {}).items()}
        return HttpAnswer(200, headers, (answer.body or "").encode())

    async def close(self) -> None:
        await self._client.aio.aclose()


def _as_httpx(error: BaseException) -> httpx.HTTPError:
    """An error of another HTTP client; it holds no headers, and so no key."""
    name = type(error).__name__
    kind = httpx.ReadTimeout if "Timeout" in name else httpx.ConnectError if "Connect" in name else httpx.ReadError
    return kind(str(error) or name)
