"""A language model behind an OpenAI-compatible server: vLLM's own, Ollama, llama.cpp, a hosted one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import queue
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from rubricflow.tasks.core.contracts.backends import Choice, engine_of
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, StoppedError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backend import Answers, Arriving, Backend, KeyOf, ReplyStream
from rubricflow.tasks.core.llm.backends.completions import (
    BROKEN,
    BUSY,
    CHANGED,
    DOWN,
    FINAL,
    ODD,
    SPENT,
    STARTING,
    Completions,
    Failure,
)
from rubricflow.tasks.core.llm.backends.connections import Connections, Out, SharedLoop, has_proxy
from rubricflow.tasks.core.llm.backends.pace import LONGEST_WAIT_S, Level, Pace, Prefixes
from rubricflow.tasks.core.llm.budget import sharing
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request, digest, overdue
from rubricflow.tasks.core.text.digest import text_digest

_ASIDE_S = 10.0
"""Seconds for which a replica that failed is not asked, as long as there is another one."""
_LONGEST_PAUSE_S = 60.0
_IN_A_ROW = 8
"""Requests given up one after the other, with none answered between: the server is broken, not the requests."""
_ABSENT = frozenset({DOWN, STARTING})
_AGAIN = frozenset({BUSY, BROKEN}) | _ABSENT
_FIRST_S = 2.0
"""Seconds for which the others wait for the first call: a server refuses at once, and so only once."""
_LONGEST_LOOK_S = 15.0
"""Between two looks whether a server is there."""
_REACHED_S = 5.0
"""For which it is tried whether a server can be reached at all."""
_MODELS_S = 10.0
"""For which the list of models is waited for."""
_BYTES_PER_TOKEN = 4
"""Of UTF-8, or more, in most languages."""
_SHARE_S = 1.0
"""How often a process that shares calls with others looks how many are its own."""
_DRAIN_S = 3600.0
"""For how long one that is about to be ended begins no call."""
_logger = logging.getLogger(__name__)

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


@dataclass
class _Replica:
    url: str
    in_flight: int = 0
    aside_until: float = 0.0


@dataclass
class _Wave:
    """What one call of `answer` shares among its workers."""

    running: SharedLoop
    out: Out
    requests: Sequence[Request]
    pending: Iterator[tuple[int, Request]]
    first: asyncio.Task[Any] | None = None
    """Whose calls find out what the server takes."""
    took: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once that is known, or the server is not there."""
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
        """Ends the wave; the first reason is kept."""
        self.end = self.end or end
        for task in self.resting - {asyncio.current_task()}:
            task.cancel()


def open_backend(choice: Choice, base: Path, replies: Replies, key_of: KeyOf) -> OpenAI:
    """A client of the servers; InputError for what is no URL of one."""
    engine = engine_of(choice)
    check_urls(engine)
    return OpenAI(engine, key_of(engine.key))


def check_urls(engine: Engine) -> None:
    """InputError for what is no URL of a server, or carries a password, which would stand in every manifest."""
    for url in engine.urls:
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query:
            rule = "a URL holds no credentials; name an environment variable or a block under 'key'"
            raise InputError(rule, field="engine.urls")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'{url}' is no URL of a server, such as http://127.0.0.1:8000/v1", field="engine.urls")


def unreachable(engine: Engine) -> Iterator[tuple[str, OSError]]:
    """Servers that cannot be connected to now, and why; where a proxy is named, it alone knows. InputError as of
    `check_urls`."""
    check_urls(engine)
    for url in engine.urls:
        parts = urlsplit(url)
        try:
            if not has_proxy(url):
                port = parts.port or (443 if parts.scheme == "https" else 80)
                socket.create_connection((parts.hostname, port), _REACHED_S).close()
        except OSError as error:
            yield url, error


def model_of(choice: Choice, base: Path) -> str:
    return identity(engine_of(choice))


class OpenAI(Backend):
    """Backend over /chat/completions of one or more replicas of a model.

    A full or broken server (429, 408, 5xx, a dropped, hung or cut-off answer) is asked again, with growing pauses or
    after the time that it names, another replica at once. A request that stays without an answer is an error reply. A
    wrong key or model, a server that cannot be reached or takes no more, and one that fails at everything end the run
    with a BackendError. That a server ignores a field of the body, such as `seed`, is not noticed.

    A server's name for its model is trusted: the weights behind it are not looked at. What a model's own settings would
    else add (top_k, min_p, repetition_penalty) is sent switched off. A parameter that the server refuses is renamed or
    left out of all further calls, see `CallParameters`, and the replies say so. A call has the same Idempotency-Key
    after a restart, by which a server that knows such keys gives the reply that it has begun instead of another one.
    """

    name = "openai"
    batch_size = 4096

    def __init__(
        self, engine: Engine, key: str | None, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        """key: sent with every request, and kept out of everything else. BackendError where it cannot be sent."""
        key = (key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise BackendError(f"openai: the key in {engine.key} has characters that no key has")
        self.model = identity(engine)
        self._engine, self._form = engine, Completions(engine, key)
        self._clock, self._sleep = clock, sleep
        self._replicas = [_Replica(url.rstrip("/")) for url in engine.urls]
        self._sharing = sharing()
        self._level = Level(self._sharing.part(engine.concurrency))
        account = " ".join(sorted((*engine.urls, engine.key)))
        limits = engine.requests_per_minute, engine.tokens_per_minute
        self._pace = Pace(*limits, clock, sleep, self._sharing.ledger, account)
        self._prefixes = Prefixes(len(engine.urls), engine.concurrency)
        self._answered = self._given_up = 0
        self._took = self._looked = False
        """Whether the server has taken a body as it is; whether its list of models was looked at."""
        self._window: int | None = None
        """Tokens that prompt and reply may have together, as far as is known and until it is told what has more."""
        self.absent: str | None = None
        """The address of a server that is waited for."""
        self._key = key
        self._shared = SharedLoop(self._level, self._connect)

    def _connect(self) -> Any:
        """What calls go over."""
        return Connections({"Authorization": f"Bearer {self._key}"} if self._key else {}, self._engine.timeout_s)

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields each reply as it arrives. Threads may ask at once: they share one event loop, and all limits."""
        out: Out = queue.SimpleQueue()
        return ReplyStream(self._arriving(requests, out), out.qsize)

    def _arriving(self, requests: Sequence[Request], out: Out) -> Arriving:
        with self._shared.running() as running:
            end = running.start(self._ask_all(_Wave(running, out, requests, enumerate(requests))), out)
            item: tuple[int, Reply] | BaseException | None = None
            try:
                while (item := out.get()) is not None:
                    if isinstance(item, BaseException):
                        raise item
                    yield item
            finally:
                end()
                while item is not None:  # whatever still comes, until the last call has ended
                    item = out.get()

    def kept_open(self) -> AbstractContextManager[Any]:
        return self._shared.running()

    async def _ask_all(self, wave: _Wave) -> None:
        """As many workers as may be in flight take one request after the other; more of them as soon as other
        processes of the run leave this one more calls."""
        self._warn_of_unfit(wave.requests)
        async with asyncio.TaskGroup() as workers:
            working: set[asyncio.Task[None]] = set()
            while wave.end is None:
                most = self._sharing.part(self._engine.concurrency)
                self._level.allow(most)
                if self._sharing.drains:
                    self._pace.hold(_DRAIN_S)
                for _ in range(min(most, len(wave.requests)) - len(working)):
                    working.add(workers.create_task(self._work(wave)))
                if self._sharing.ledger is None:
                    break
                _, working = await asyncio.wait(working, timeout=_SHARE_S)
                if not working:
                    break
        if wave.end:
            wave.out.put(wave.end)

    async def _work(self, wave: _Wave) -> None:
        while wave.end is None and (pair := next(wave.pending, None)) is not None:
            index, request = pair
            failures: list[str] = []
            try:
                async with asyncio.timeout_at(request.until if request.until < math.inf else None):
                    reply = await self._persist(wave, request, failures)
            except TimeoutError:
                reply = overdue(failures[-1] if failures else "")
            if isinstance(reply, StoppedError):
                wave.stop(reply)
            else:
                wave.out.put((index, reply))

    async def _persist(self, wave: _Wave, request: Request, failures: list[str]) -> Reply | StoppedError:
        """Asks until there is an answer, or the tries are used up. failures: gets the message of each failed call."""
        tries, heard, answered_before = 0, 0, self._answered
        absent_since: float | None = None
        while True:
            replica, result = await self._call(wave, request, heard)
            self.absent = replica.url if isinstance(result, Failure) and result.kind in _ABSENT else None
            if isinstance(result, Reply):
                self._answered, self._given_up, replica.aside_until = self._answered + 1, 0, 0.0
                self._pace.learn(request, result)
                return result
            heard += result.answered
            if result.kind not in _ABSENT:
                absent_since = None
            elif absent_since is None:
                absent_since = self._clock()
            if result.kind == CHANGED:
                continue
            failures.append(result.message)
            others, answered_before = self._answered > answered_before, self._answered
            full = result.kind == BUSY and others  # a server that takes others in the meantime takes this one later
            is_patient = absent_since is not None and self._clock() - absent_since < self._engine.patience_s
            used_up = tries >= self._engine.retries and not (full or is_patient)
            if result.kind not in _AGAIN or used_up or wave.end:
                return self._give_up(result, tries, others)
            replica.aside_until = self._clock() + max(_ASIDE_S, result.wait or 0.0)
            if all(other.aside_until > self._clock() for other in self._replicas):
                longest = _LONGEST_LOOK_S if result.kind in _ABSENT else _LONGEST_PAUSE_S
                asked = LONGEST_WAIT_S if result.kind == BUSY else longest
                # Not all requests are to come back at once.
                pause = min(2.0 ** min(tries, 10), longest) * random.uniform(0.5, 1)
                if result.wait is not None:
                    pause = min(result.wait, asked) + random.uniform(0, 1)
                with wave.rest():
                    await self._sleep(pause)
            tries += not full

    async def _call(self, wave: _Wave, request: Request, heard: int) -> tuple[_Replica, Reply | Failure]:
        """One call, as soon as there is a slot for it and the pace allows it, and the replica that was asked. The first
        goes ahead of the others, until it is known which parameters the server takes.

        heard: answers to this request that were no reply.
        """
        slots = wave.running.slots
        with wave.rest():
            await slots.acquire()
        try:
            with wave.rest():
                await self._pace.admit(request)
                if not self._took:
                    wave.first = wave.first or asyncio.current_task()
                is_first = not self._took and wave.first is asyncio.current_task()
                if not (self._took or is_first):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(wave.took.wait(), _FIRST_S)
            replica = self._choose(request)
            if is_first and not self._looked:
                await self._look(wave, replica.url)
            result = await self._once(wave, replica, request, heard)
            if isinstance(result, Reply) or result.kind != CHANGED:
                self._took = self._took or isinstance(result, Reply) or result.kind not in _ABSENT
                wave.took.set()
            return replica, result
        finally:
            slots.release()

    async def _look(self, wave: _Wave, url: str) -> None:
        """Learns from the server's list of models, once it is there, how much fits; and warns of what does not."""
        try:
            answer = await wave.running.connections.get(f"{url}/models", min(_MODELS_S, self._engine.timeout_s))
        except httpx.HTTPError as error:
            self._looked = not isinstance(error, httpx.ConnectError)
            return
        self._looked = answer.status_code != 503
        self.absent = None if self._looked else url
        self._window = self._form.window(answer) if answer.status_code == 200 else None
        self._warn_of_unfit(wave.requests)

    def _warn_of_unfit(self, requests: Sequence[Request]) -> None:
        """Warns once, before they are asked, of requests that hardly fit into the model's context."""
        if self._window is None:
            return
        needs = [
            sum(len(message.content.encode("utf-8", "replace")) for message in request.messages) // _BYTES_PER_TOKEN
            + request.sampling.longest
            for request in requests[:]  # a budget counts who goes through them as asking
        ]
        unfit = [need for need in needs if need > self._window]
        if unfit:
            _logger.warning(
                "%s of %s prompts do not fit into the context of '%s', %s tokens: with room for the reply the longest "
                "has about %s. Start the server with a longer context, or lower sampling.max_tokens",
                f"{len(unfit):,}",
                f"{len(requests):,}",
                self._engine.model,
                f"{self._window:,}",
                f"{max(unfit):,}",
            )
            self._window = None

    def _choose(self, request: Request) -> _Replica:
        """A replica that holds the beginning of the prompt, as long as it has room; among those that did not just fail,
        and of all that did the one back soonest."""
        time_s = self._clock()
        waits = [max(0.0, replica.aside_until - time_s) for replica in self._replicas]
        able = [wait == min(waits) for wait in waits]
        in_flight = [replica.in_flight for replica in self._replicas]
        return self._replicas[self._prefixes.choose(request, in_flight, able)]

    def _give_up(self, failure: Failure, tries: int, others: bool) -> Reply | StoppedError:
        """The error reply of a request; the end of the run where it is not the request's fault.

        others: whether other requests were answered since this one failed before.
        """
        again = f" (tried {tries + 1} times)" if tries else ""
        ending = f"openai: {failure.message}{again}"
        if failure.kind in (FINAL, SPENT):
            return StoppedError(ending, passing=failure.wait is not None)
        if failure.kind in (BUSY, *_ABSENT) and not others:
            return StoppedError(ending, passing=True)
        if failure.kind in (BROKEN, STARTING, ODD):
            self._given_up += 1
            if self._given_up >= _IN_A_ROW and (failure.kind != ODD or not self._answered):
                return StoppedError(ending, passing=failure.kind != ODD)
        return Reply(error=f"{failure.kind}: {failure.message}{again}")

    async def _once(self, wave: _Wave, replica: _Replica, request: Request, heard: int) -> Reply | Failure:
        """One call. No exception leaves it: one of httpx's holds the headers, and so the key."""
        begun = self._clock()
        body = self._form.body(request)
        content = self._form.content(body)
        # The digest, too: samples differ by a seed that a server may not take. After an answer that is no reply the
        # same key would bring it again.
        key = hashlib.sha256(f"{digest(request, self.model)} {heard} ".encode() + content).hexdigest()
        replica.in_flight += 1
        try:
            async with asyncio.timeout(self._engine.timeout_s):
                answer = await wave.running.connections.post(f"{replica.url}/chat/completions", content, key)
        except (TimeoutError, httpx.TimeoutException):
            return Failure(BROKEN, f"{replica.url} gave no answer within {self._engine.timeout_s:g} s")
        except httpx.ConnectError as error:
            return Failure(DOWN, f"{replica.url} cannot be reached: {self._form.safe(str(error))}")
        except httpx.HTTPError as error:
            return Failure(BROKEN, f"{replica.url} broke off: {self._form.safe(str(error) or type(error).__name__)}")
        finally:
            replica.in_flight -= 1
        self._pace.told(answer.headers)
        result = self._form.read(replica.url, request, body, answer, self._clock() - begun)
        if isinstance(result, Reply):
            self._level.rise()
        elif result.kind == BUSY:
            self._level.halve(begun, self._clock())
            if result.wait is not None and len(self._replicas) == 1:
                self._pace.hold(min(result.wait, LONGEST_WAIT_S))
        return result


def identity(engine: Engine) -> str:
    """The model's name, with a digest of what else can change a reply. Of a folder only the last part is named."""
    name = engine.model.rstrip("/").rpartition("/")[2] if engine.model.startswith(("/", ".")) else engine.model
    more = [engine.options, engine.logprobs, engine.model if name != engine.model else ""]
    more += [engine.effort] if engine.effort else []
    return f"{name}@{text_digest(json.dumps(more, sort_keys=True))[:12]}" if any(more) else name
