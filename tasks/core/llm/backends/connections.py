"""Connections to servers, one call on each at a time, and the event loop that the threads of a process share for them.

Calls are written and read by h11 over asyncio; httpx gives the errors, certificates, proxies and lists of models. A
call by its client takes 0.5 ms of processor, and milliseconds where hundreds are open, as its pool looks at every
connection for each of them; by these it takes 0.1 ms.
"""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, NamedTuple, Self, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import h11
import httpx

from rubricflow.tasks.core.llm.backends.pace import Level
from rubricflow.tasks.core.llm.request import Reply

Out = queue.SimpleQueue[tuple[int, Reply] | BaseException | None]
"""What work on a loop brings to the thread that waits for it: replies, what went wrong, and None as the last."""
_LONGEST_HEAD = 100 * 1024
"""Bytes of an answer's headers."""
_SECOND_ADDRESS_S = 0.25
"""After how long the next address of a name is tried alongside the first."""


class SharedLoop:
    """An event loop in its own thread, and what all calls on it share. It starts with the first user and ends with the
    last one."""

    loop: asyncio.AbstractEventLoop
    connections: Any
    """What calls go over: `Connections`, or a library's client with methods `post` and `close`."""

    def __init__(self, slots: Level, connect: Callable[[], Any]) -> None:
        """slots: for calls, whoever makes them. connect: opens the connections, each time that the loop starts."""
        self.slots, self._connect = slots, connect
        self._lock, self._users = threading.Lock(), 0
        self._thread: threading.Thread

    @contextmanager
    def running(self) -> Iterator[Self]:
        """The loop, for as long as the context lasts."""
        with self._lock:
            if not self._users:
                self.connections = self._connect()
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self.loop.run_forever, name="openai", daemon=True)
                self._thread.start()
            self._users += 1
        try:
            yield self
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    asyncio.run_coroutine_threadsafe(self.connections.close(), self.loop).result()
                    self.loop.call_soon_threadsafe(self.loop.stop)
                    self._thread.join()
                    self.loop.close()

    def start(self, work: Coroutine[Any, Any, None], out: Out) -> Callable[[], object]:
        """Starts work; returns what cancels it. None is the last thing in the queue, however the work ends."""

        def end(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                broken = RuntimeError("openai: the client broke")
                broken.__cause__ = error
                out.put(broken)
            out.put(None)

        async def begin() -> asyncio.Task[None]:
            task = asyncio.create_task(work)
            task.add_done_callback(end)
            return task

        task = asyncio.run_coroutine_threadsafe(begin(), self.loop).result()
        return lambda: self.loop.call_soon_threadsafe(task.cancel)


class HttpAnswer(NamedTuple):
    """What a server answered; httpx's own class takes longer to make than the rest of a call."""

    status_code: int
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes


def has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for it."""
    parts, proxies = urlsplit(url), getproxies()
    return bool((parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or ""))


class Connections:
    """Connections that are kept open between calls, the one used last first. One event loop uses them."""

    def __init__(self, headers: Mapping[str, str], timeout_s: float) -> None:
        """headers: of every call; timeout_s: of calls by httpx, others are timed by the caller."""
        self._headers, self._timeout_s = dict(headers), timeout_s
        self._idle: defaultdict[str, list[HttpConnection]] = defaultdict(list)
        self._addresses: dict[str, _Address | None] = {}

    async def post(self, url: str, content: bytes, key: str) -> HttpAnswer:
        """The answer to a body of JSON, by the proxy that the environment names; errors are those of httpx.

        key: sent as Idempotency-Key, by which some servers know a call that they have begun already.
        """
        if url not in self._addresses:
            self._addresses[url] = None if has_proxy(url) else _address(url, self._headers)
        address = self._addresses[url]
        if address is None:
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            response = await self._client.post(url, content=content, headers=headers)
            return HttpAnswer(response.status_code, response.headers, response.content)
        idle = self._idle[url]
        while idle and not idle[-1].is_open:
            idle.pop()
        connection = idle.pop() if idle else await HttpConnection.open(address)
        try:
            answer = await connection.post(content, key)
        except BaseException:
            connection.close()  # what is left of the answer belongs to no other call
            raise
        if connection.is_open:
            idle.append(connection)
        return answer

    async def get(self, url: str, timeout_s: float) -> HttpAnswer:
        """A page, asked for once; errors are those of httpx."""
        response = await self._client.get(url, timeout=timeout_s)
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Closes all that are idle."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
        if "_client" in self.__dict__:
            await self._client.aclose()
        await asyncio.sleep(0)  # in which the loop takes note of it

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        """For proxies, and for what is asked once."""
        return httpx.AsyncClient(headers=self._headers, timeout=self._timeout_s, verify=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted, read once."""
    trusted = httpx.create_ssl_context()
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


class _Address(NamedTuple):
    """Where calls go, and the head of each."""

    host: str
    port: int
    path: bytes
    headers: list[tuple[bytes, bytes]]
    tls: ssl.SSLContext | None


def _address(url: str, headers: Mapping[str, str]) -> _Address:
    parts = httpx.URL(url)
    about = {"Host": parts.netloc.decode(), "Accept": "application/json", "Accept-Encoding": "identity"}
    head = {**about, "Content-Type": "application/json", **headers}
    is_safe = parts.scheme == "https"
    encoded = [(name.encode(), value.encode()) for name, value in head.items()]
    port = parts.port or (443 if is_safe else 80)
    return _Address(parts.raw_host.decode(), port, parts.raw_path, encoded, _trusted() if is_safe else None)


class HttpConnection(asyncio.Protocol):
    """An open connection, over which one call goes after the other. Errors are those of httpx."""

    def __init__(self, address: _Address) -> None:
        self._address = address
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        self._transport: asyncio.Transport | None = None
        self._arrived: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        """What comes of the answer to the call under way."""
        self._is_asked = False

    @classmethod
    async def open(cls, address: _Address) -> HttpConnection:
        """A connection to a server; httpx.ConnectError where there can be none."""
        connecting = asyncio.get_running_loop().create_connection(
            lambda: cls(address),
            address.host,
            address.port,
            ssl=address.tls,
            happy_eyeballs_delay=_SECOND_ADDRESS_S,
        )
        try:
            return (await connecting)[1]
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        if self._transport is None:
            raise httpx.WriteError("the connection is closed")
        own = (b"Idempotency-Key", key.encode()), (b"Content-Length", str(len(content)).encode())
        head = h11.Request(method=b"POST", target=self._address.path, headers=[*self._address.headers, *own])
        events: tuple[h11.Event, ...] = (head, h11.Data(data=content), h11.EndOfMessage())
        self._is_asked = True
        self._transport.write(b"".join(self._state.send(event) or b"" for event in events))
        try:
            answer = await self._answer()
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        finally:
            self._is_asked = False
        is_done = self._state.our_state is self._state.their_state is h11.DONE
        if is_done and not self._state.trailing_data[0] and self._arrived.empty():  # else the next call would read it
            self._state.start_next_cycle()
        else:
            self.close()
        return answer

    async def _answer(self) -> HttpAnswer:
        status = 0
        headers = {}
        pieces = []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                data = await self._arrived.get()
                if isinstance(data, Exception):
                    raise httpx.ReadError(str(data)) from data
                self._state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                pieces.append(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return HttpAnswer(status, headers, b"".join(pieces))
            elif isinstance(event, h11.ConnectionClosed):
                raise httpx.ReadError("the server closed the connection")

    def close(self) -> None:
        """Gives the connection back, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_asked:  # sent without being asked, such as that the server waited long enough
            self.close()
        else:
            self._arrived.put_nowait(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop; some answers end with the connection."""
        self._transport = None
        self._arrived.put_nowait(error or b"")
