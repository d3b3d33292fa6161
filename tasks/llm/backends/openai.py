"""A language model behind an OpenAI-compatible server: vLLM's own, Ollama, llama.cpp, a hosted one."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import json
import math
import queue
import random
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tasks.contracts.backends import Choice, engine_of
from tasks.contracts.errors import BackendError, InputError, StoppedError
from tasks.contracts.settings.engine import Engine
from tasks.llm.backends.chat import as_written, messages
from tasks.llm.backends.loop import Running, SharedLoop
from tasks.llm.backends.pace import Pace
from tasks.llm.opening import KeyOf
from tasks.llm.replies import ReplyStore
from tasks.llm.request import Reply, Request, Token, overdue

_ASIDE_S = 10.0
"""Seconds for which a replica that failed is not asked, as long as there is another one."""
_LONGEST_PAUSE_S = 60.0
_IN_A_ROW = 8
"""Requests given up one after the other, with none answered between: the server is broken, not the requests."""
_SHOWN = 300
_TOO_LONG = re.compile(r"context|too long|max(imum)?[ _](\w+[ _])?(length|tokens)", re.IGNORECASE)
_BUSY, _DOWN, _BROKEN, _UNFIT, _ODD, _FINAL = "busy", "unreachable", "broken", "too_long", "refused", "final"
_AGAIN = frozenset({_BUSY, _DOWN, _BROKEN})

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
_Out = queue.SimpleQueue[tuple[int, Reply] | BaseException | None]


@dataclass(frozen=True)
class _Failure:
    """Why a call gave no reply. `kind`: busy, unreachable or broken, which may pass; too_long or refused, which
    concern one request; or final, which ends the run."""

    kind: str
    message: str
    wait: float | None = None
    """Seconds that the server asks to wait."""


@dataclass
class _Replica:
    url: str
    in_flight: int = 0
    aside_until: float = 0.0


@dataclass
class _Wave:
    """What one call of `answer` shares among its workers."""

    client: httpx.AsyncClient
    room: asyncio.Semaphore
    """For calls, shared with all other waves."""
    out: _Out
    pending: Iterator[tuple[int, Request]]
    end: StoppedError | None = None
    """Why no further request is begun. Those under way are waited for: they are paid."""
    resting: set[asyncio.Task[Any]] = field(default_factory=set)
    """Workers that wait for a time to come, not for an answer."""

    @contextmanager
    def rest(self) -> Iterator[None]:
        """For the time of a pause; the end of the wave ends it."""
        task = asyncio.current_task()
        assert task is not None
        self.resting.add(task)
        try:
            yield
        finally:
            self.resting.discard(task)

    def stop(self, end: StoppedError) -> None:
        """Ends the wave; the first reason stands."""
        self.end = self.end or end
        for task in self.resting - {asyncio.current_task()}:
            task.cancel()


def opened(choice: Choice, base: Path, replies: ReplyStore, key_of: KeyOf) -> OpenAI:
    """A client of the servers; InputError for what is no URL of one, or carries a password, which would stand in every
    manifest."""
    engine = engine_of(choice)
    for url in engine.urls:
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query:
            rule = "a URL holds no credentials; name an environment variable or a block under 'key'"
            raise InputError(rule, field="engine.urls")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'{url}' is no URL of a server, such as http://127.0.0.1:8000/v1", field="engine.urls")
    return OpenAI(engine, key_of(engine.key))


def model_of(choice: Choice, base: Path) -> str:
    """Its identity."""
    return identity(engine_of(choice))


class OpenAI:
    """Backend over /chat/completions of one or more replicas of a model.

    A full or broken server (429, 408, 5xx, a dropped, hung or cut-off answer) is asked again, with growing pauses or
    after the time that it names, another replica at once. A request that stays without an answer is an error reply. A
    wrong key or model, a server that cannot be reached or takes no more, and one that fails at everything end the run
    with a BackendError. Where a server leaves a field of the body unread, such as `seed`, nobody notices.

    A server's name for its model is trusted: the weights behind it are not looked at. `top_k` is sent only where the
    study sets it, since not every server takes it.
    """

    name = "openai"
    reads_prose = True
    by_subject = False
    batch_size = 4096

    def __init__(
        self, engine: Engine, key: str | None, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        """key: sent with every request, and kept out of everything else. BackendError where it cannot be sent."""
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise BackendError(f"openai: the key in {engine.key} has characters that no key has")
        self.model = identity(engine)
        self._engine, self._key = engine, key
        self._clock, self._sleep = clock, sleep
        self._replicas = [_Replica(url.rstrip("/")) for url in engine.urls]
        self._pace = Pace(engine.requests_per_minute, engine.tokens_per_minute, clock, sleep)
        self._answered = self._given_up = 0
        self._shared = SharedLoop("openai", engine.concurrency)

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields each reply as it arrives. Threads may ask at once: they share one event loop, and all limits."""
        out: _Out = queue.SimpleQueue()
        with self._shared.running() as running:
            end = _begun(running.loop, self._everything(requests, running, out), out)
            item: tuple[int, Reply] | BaseException | None = None
            try:
                while (item := out.get()) is not None:
                    if isinstance(item, BaseException):
                        raise item
                    yield item
            finally:
                running.loop.call_soon_threadsafe(end)
                while item is not None:  # whatever still comes, until the last call has ended
                    item = out.get()

    async def _everything(self, requests: Sequence[Request], running: Running, out: _Out) -> None:
        """As many workers as may be in flight take one request after the other."""
        count = min(self._engine.concurrency, len(requests))
        limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=self._engine.timeout_s) as client:
            wave = _Wave(client, running.room, out, enumerate(requests))
            async with asyncio.TaskGroup() as workers:
                for _ in range(count):
                    workers.create_task(self._work(wave))
            if wave.end:
                out.put(wave.end)

    async def _work(self, wave: _Wave) -> None:
        while wave.end is None and (one := next(wave.pending, None)) is not None:
            reply = await self._in_time(wave, one[1])
            if isinstance(reply, StoppedError):
                wave.stop(reply)
            else:
                wave.out.put((one[0], reply))

    async def _in_time(self, wave: _Wave, request: Request) -> Reply | StoppedError:
        """What `_persist` brings until the request's time is over."""
        failures: list[str] = []
        try:
            async with asyncio.timeout_at(request.until if request.until < math.inf else None):
                return await self._persist(wave, request, failures)
        except TimeoutError:
            return overdue(failures[-1] if failures else "")

    async def _persist(self, wave: _Wave, request: Request, failures: list[str]) -> Reply | StoppedError:
        """Asks until there is an answer, or the tries are used up. failures: gets what each failed call said."""
        tries, seen = 0, self._answered
        while True:
            replica, result = await self._call(wave, request)
            if isinstance(result, Reply):
                self._answered, self._given_up, replica.aside_until = self._answered + 1, 0, 0.0
                self._pace.learn(request, result)
                return result
            failures.append(result.message)
            others, seen = self._answered > seen, self._answered
            full = result.kind == _BUSY and others  # a server that takes others in the meantime takes this one later
            if result.kind not in _AGAIN or (tries >= self._engine.retries and not full) or wave.end:
                return self._give_up(result, tries, others)
            replica.aside_until = self._clock() + max(_ASIDE_S, result.wait or 0.0)
            if all(other.aside_until > self._clock() for other in self._replicas):
                with wave.rest():
                    await self._sleep(_pause(tries, result.wait))
            tries += not full

    async def _call(self, wave: _Wave, request: Request) -> tuple[_Replica, Reply | _Failure]:
        """One call, as soon as there is room for it and the pace allows it, and the replica that was asked."""
        with wave.rest():
            await wave.room.acquire()
        try:
            with wave.rest():
                await self._pace.admit(request)
            replica = self._choose()
            return replica, await self._once(wave.client, replica, request)
        finally:
            wave.room.release()

    def _choose(self) -> _Replica:
        """The replica with the least to do among those that did not just fail; the one back soonest where all did."""
        now = self._clock()
        return min(self._replicas, key=lambda one: (max(0.0, one.aside_until - now), one.in_flight))

    def _give_up(self, failure: _Failure, tries: int, others: bool) -> Reply | StoppedError:
        """The error reply of a request; the end of the run where it is not the request's fault.

        others: whether other requests were answered since this one failed before.
        """
        again = f" (tried {tries + 1} times)" if tries else ""
        ending = f"openai: {failure.message}{again}"
        if failure.kind == _FINAL:
            return StoppedError(ending, passing=False)
        if failure.kind in (_BUSY, _DOWN) and not others:
            return StoppedError(ending, passing=True)
        if failure.kind in (_BROKEN, _ODD):
            self._given_up += 1
            if self._given_up >= _IN_A_ROW and (failure.kind == _BROKEN or not self._answered):
                return StoppedError(ending, passing=failure.kind == _BROKEN)
        return Reply(error=f"{failure.kind}: {failure.message}{again}")

    async def _once(self, client: httpx.AsyncClient, replica: _Replica, request: Request) -> Reply | _Failure:
        """One call. No exception leaves it: one of httpx's holds the headers, and so the key."""
        begun = self._clock()
        replica.in_flight += 1
        try:
            async with asyncio.timeout(self._engine.timeout_s):
                response = await client.post(f"{replica.url}/chat/completions", json=self._body(request))
        except (TimeoutError, httpx.TimeoutException):
            return _Failure(_BROKEN, f"{replica.url} gave no answer within {self._engine.timeout_s:g} s")
        except httpx.ConnectError as error:
            return _Failure(_DOWN, f"{replica.url} cannot be reached: {self._safe(str(error))}")
        except httpx.HTTPError as error:
            return _Failure(_BROKEN, f"{replica.url} broke off: {self._safe(str(error) or type(error).__name__)}")
        finally:
            replica.in_flight -= 1
        if response.status_code != 200:
            return self._refused(replica, response)
        return self._read(replica, request, response, self._clock() - begun)

    def _body(self, request: Request) -> dict[str, Any]:
        how = request.sampling
        body: dict[str, Any] = {
            "model": self._engine.model,
            "messages": messages(request),
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
        }
        if "max_completion_tokens" not in self._engine.options:  # what newer servers call it; they refuse both
            body["max_tokens"] = how.max_tokens
        if how.top_k is not None:
            body["top_k"] = how.top_k
        if request.want_logprobs and self._engine.logprobs:
            body |= {"logprobs": True, "top_logprobs": self._engine.logprobs}
        if request.schema is not None:
            contract = {"name": "artifact", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": contract}
        return body | self._engine.options

    def _refused(self, replica: _Replica, response: httpx.Response) -> _Failure:
        """What an answer other than 200 means."""
        code = response.status_code
        said = f"{replica.url} answers {code}: {self._safe(_said(response))}"
        if code in (401, 403):
            sent = (
                f"the key in {self._engine.key} is refused" if self._key else f"there is no key in {self._engine.key}"
            )
            return _Failure(_FINAL, f"{said} ({sent})")
        if code == 404:
            return _Failure(_FINAL, f"{said} (does it serve the model under the name '{self._engine.model}'?)")
        if code == 429:
            return _Failure(_BUSY, said, _retry_after(response))
        if code in (408, 409, 425) or code >= 500:
            return _Failure(_BROKEN, said, _retry_after(response))
        return _Failure(_UNFIT if code == 413 or (code == 400 and _TOO_LONG.search(said)) else _ODD, said)

    def _read(self, replica: _Replica, request: Request, response: httpx.Response, seconds: float) -> Reply | _Failure:
        """The reply in a body; a failure that may pass where it is none."""
        try:
            body = response.json()
            choice = body["choices"][0]
            text = choice["message"]["content"]
            if text is not None and not isinstance(text, str):
                raise TypeError
        except (ValueError, TypeError, LookupError, RecursionError):
            return _Failure(_BROKEN, f"{replica.url} answers 200 without a reply: {self._safe(response.text)}")
        if text is None:
            refusal = choice["message"].get("refusal") or choice.get("finish_reason") or "no text"
            return Reply(error=f"empty: the model gave no text: {self._safe(str(refusal))}")
        usage = _mapping(body.get("usage"))
        given = _mapping(choice.get("logprobs")).get("content") if request.want_logprobs else None
        reply = Reply(
            text=text,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            cached_tokens=_count(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
            latency_s=seconds,
            token_logprobs=_tokens(given) if given else None,
        )
        return as_written(reply)

    def _safe(self, text: str) -> str:
        """What somebody else said, on one line, without the key and cut short."""
        plain = " ".join((text.replace(self._key, "***") if self._key else text).split())
        return "".join(c if c.isprintable() else "?" for c in plain)[:_SHOWN]


def _begun(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], out: _Out) -> Callable[[], None]:
    """Starts work on a loop that runs in another thread; returns what ends it when called there. None is the last thing
    in the queue, however the work ends."""
    tasks: list[asyncio.Task[None]] = []

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            broken = RuntimeError("openai: the client broke")
            broken.__cause__ = error
            out.put(broken)
        out.put(None)

    def begin() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(ended)

    def end() -> None:
        tasks[0].cancel()

    loop.call_soon_threadsafe(begin)
    return end


def identity(engine: Engine) -> str:
    """The model's name, with a digest of what else can change a reply. Of a folder only the last part is named."""
    name = engine.model.rstrip("/").rpartition("/")[2] if engine.model.startswith(("/", ".")) else engine.model
    more = [engine.options, engine.logprobs, engine.model if name != engine.model else ""]
    return f"{name}@{hashlib.sha256(json.dumps(more, sort_keys=True).encode()).hexdigest()[:12]}" if any(more) else name


def _pause(tries: int, asked: float | None) -> float:
    """Seconds to wait: as long as the server asks, or twice as long as the last time; a little more or less for each
    request, so that they do not all come back at once."""
    if asked is not None:
        return min(asked, _LONGEST_PAUSE_S) + random.uniform(0, 1)
    return min(float(2**tries), _LONGEST_PAUSE_S) * random.uniform(0.5, 1)


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds of the header Retry-After, which is a number or a date."""
    value = response.headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value)) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else _until(value)
    except ValueError:
        return None


def _until(date: str) -> float:
    return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())


def _said(response: httpx.Response) -> str:
    """The message of an error's body, or the body."""
    try:
        error = response.json()
        error = error.get("error", error)
        return str(error.get("message", error) if isinstance(error, Mapping) else error)
    except (ValueError, AttributeError, RecursionError):
        return response.text


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _tokens(given: Sequence[Mapping[str, Any]]) -> list[Token] | None:
    """The reply's tokens; None where the server gives them in another form."""
    whole = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        return [
            Token(
                _piece(token, whole),
                float(token["logprob"]),
                tuple((_piece(other), float(other["logprob"])) for other in token.get("top_logprobs") or ()),
            )
            for token in given
        ]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _piece(token: Mapping[str, Any], whole: codecs.IncrementalDecoder | None = None) -> str:
    """A token's text. A character that several tokens make up comes with the last of them, if `whole` goes along."""
    if token.get("bytes") is None:
        return str(token["token"])
    spelled = bytes(token["bytes"])
    return whole.decode(spelled) if whole else spelled.decode("utf-8", "replace")
