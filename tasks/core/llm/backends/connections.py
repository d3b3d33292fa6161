"""Connections to servers, one call on each at a time; the one used last is used next."""

from __future__ import annotations

import asyncio
import json
import queue
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import h11
import httpx

from rubricflow.tasks.core.llm.request import Reply

Out = queue.SimpleQueue[tuple[int, Reply] | BaseException | None]
"""What work on a loop brings to the thread that waits for it: replies, what went wrong, and None as the last."""


class Running(NamedTuple):
    """A loop that runs, room for so many calls at once, whoever makes them, and the connections that they take."""

    loop: asyncio.AbstractEventLoop
    room: asyncio.Semaphore
    connections: Connections


class SharedLoop:
    """An event loop in a thread of its own. It starts with the first who uses it and ends with the last."""

    def __init__(self, name: str, at_once: int, connections: Callable[[], Connections]) -> None:
        """name: of the thread; at_once: calls for which there is room; connections: makes those of a loop."""
        self._name, self._at_once, self._connections = name, at_once, connections
        self._gate, self._users = threading.Lock(), 0
        self._running: Running | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def running(self) -> Iterator[Running]:
        """The loop, for as long as the context lasts."""
        with self._gate:
            running = self._running = self._running or self._started()
            self._users += 1
        try:
            yield running
        finally:
            with self._gate:
                self._users -= 1
                if not self._users:
                    self._end(running)

    def _started(self) -> Running:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        return Running(loop, asyncio.Semaphore(self._at_once), self._connections())

    def _end(self, running: Running) -> None:
        assert self._thread is not None  # it was started
        loop = running.loop
        asyncio.run_coroutine_threadsafe(running.connections.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        self._running = self._thread = None


_LONGEST_HEAD = 100 * 1024
"""Bytes of an answer's headers."""
_SECOND_ADDRESS_S = 0.25
"""After how long the next address of a name is tried beside the first."""


class HttpAnswer(NamedTuple):
    """What a server answered."""

    status_code: int
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes

    def json(self) -> Any:
        """The body as JSON; ValueError or RecursionError where it is none."""
        return json.loads(self.content)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")


class Address(NamedTuple):
    """Where calls go, and what stands at the head of each."""

    host: str
    port: int
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    tls: ssl.SSLContext | None


class Wire(asyncio.Protocol):
    """An open connection. Errors are those of httpx."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._head: h11.Response | None = None
        self._pieces: list[bytes] = []

    @classmethod
    async def opened(cls, address: Address) -> Wire:
        """A connection to a server; httpx.ConnectError where there can be none."""
        loop = asyncio.get_running_loop()
        try:
            _, wire = await loop.create_connection(
                lambda: cls(address),
                address.host,
                address.port,
                ssl=address.tls,
                happy_eyeballs_delay=_SECOND_ADDRESS_S,
            )
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return wire

    @property
    def is_open(self) -> bool:
        """Whether another call can go over it."""
        return self._transport is not None and not self._transport.is_closing()

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        """See `Connection.post`."""
        if self._transport is None:
            raise httpx.WriteError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._written(content, key))
        try:
            return await self._answer
        finally:
            self._answer = None

    async def close(self) -> None:
        """Gives the connection back, whatever is under way."""
        self._abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._read(data)

    def eof_received(self) -> None:
        """Called by the loop; some answers end with the connection."""
        self._read(b"")

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the loop."""
        self._transport = None
        self._failed(httpx.ReadError(str(error) if error else "the server closed the connection"))

    def _written(self, content: bytes, key: str) -> bytes:
        """A call as it goes over the wire."""
        own = (b"Idempotency-Key", key.encode()), (b"Content-Length", str(len(content)).encode())
        headers = [*self._address.headers, *own]
        head = h11.Request(method=b"POST", target=self._address.path, headers=headers)
        events: tuple[h11.Event, ...] = (head, h11.Data(data=content), h11.EndOfMessage())
        return b"".join(self._state.send(event) or b"" for event in events)

    def _read(self, data: bytes) -> None:
        """Takes what has come, and answers where that is the whole of it."""
        if self._answer is None:  # said without being asked, such as that the server waited long enough
            self._abort()
            return
        try:
            self._state.receive_data(data)
            while (event := self._state.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if self._is_whole(event):
                    break
        except h11.RemoteProtocolError as error:
            self._failed(httpx.RemoteProtocolError(str(error)))
            self._abort()

    def _is_whole(self, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> bool:
        """Takes a piece of the answer; whether it was the last one."""
        if isinstance(event, h11.Response):
            self._head, self._pieces = event, []
        elif isinstance(event, h11.Data):
            self._pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._answered()
            return True
        elif isinstance(event, h11.ConnectionClosed):
            self._failed(httpx.RemoteProtocolError("the server closed the connection"))
            return True
        return False

    def _answered(self) -> None:
        """Gives the answer to whoever waits for it, and makes the connection ready for the next call."""
        assert self._head is not None  # h11 gives no end without a beginning
        assert self._answer is not None  # else nothing is read
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in self._head.headers}
        if not self._answer.done():
            self._answer.set_result(HttpAnswer(self._head.status_code, headers, b"".join(self._pieces)))
        if (
            self._state.our_state is h11.DONE
            and self._state.their_state is h11.DONE
            and not self._state.trailing_data[0]
        ):
            self._state.start_next_cycle()
        else:
            self._abort()

    def _failed(self, error: httpx.HTTPError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Connection(Protocol):
    """A connection to a server, over which one call goes after the other."""

    @property
    def is_open(self) -> bool:
        """Whether another call can go over it."""

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        """The answer to a body of JSON; errors are those of httpx.

        key: sent as Idempotency-Key, by which some servers know a call that they have begun already.
        """

    async def close(self) -> None:
        """Gives the connection back, whatever is under way."""


class Connections:
    """Connections that are kept open between calls. One event loop uses them."""

    def __init__(self, headers: Mapping[str, str], timeout_s: float) -> None:
        self._headers, self._timeout_s = dict(headers), timeout_s
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._addresses: dict[str, Address] = {}

    async def post(self, url: str, content: bytes, key: str) -> HttpAnswer:
        """See `Connection.post`."""
        idle = self._idle[url]
        while idle and not idle[-1].is_open:
            idle.pop()
        connection = idle.pop() if idle else await self._opened(url)
        try:
            answer = await connection.post(content, key)
        except BaseException:
            await asyncio.shield(connection.close())  # what is left of the answer belongs to no other call
            raise
        if connection.is_open:
            idle.append(connection)
        return answer

    async def get(self, url: str, timeout_s: float) -> HttpAnswer:
        """What stands at an address, asked for once; errors are those of httpx."""
        trusted = _trusted() if urlsplit(url).scheme == "https" else False  # it takes its time
        async with httpx.AsyncClient(headers=self._headers, timeout=timeout_s, verify=trusted) as client:
            response = await client.get(url)
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Closes all that are idle."""
        connections = list(chain.from_iterable(self._idle.values()))
        self._idle.clear()
        for connection in connections:
            await connection.close()
        await asyncio.sleep(0)  # in which the loop takes note of it

    async def _opened(self, url: str) -> Connection:
        if _has_proxy(url):
            return _Proxied(url, self._headers, self._timeout_s)
        if url not in self._addresses:
            self._addresses[url] = address_of(url, self._headers, _trusted())
        return await Wire.opened(self._addresses[url])


class _Proxied:
    """A connection through the proxy that the environment names, which httpx knows how to take."""

    is_open = True

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self._url = url
        written = {**headers, "Content-Type": "application/json"}
        self._client = httpx.AsyncClient(headers=written, limits=_ONE, timeout=timeout_s, verify=_trusted())

    async def post(self, content: bytes, key: str) -> HttpAnswer:
        """See `Connection.post`."""
        response = await self._client.post(self._url, content=content, headers={"Idempotency-Key": key})
        return HttpAnswer(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Gives the connection back."""
        await self._client.aclose()


def _has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for this address."""
    parts, proxies = urlsplit(url), getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted, read once."""
    trusted = httpx.create_ssl_context()
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


# A connection to a server, one call after the other: what h11 reads and writes, over asyncio.


def address_of(url: str, headers: Mapping[str, str], trusted: ssl.SSLContext) -> Address:
    """The address of a URL. headers: beside those that say what is sent; trusted: certificates, for https."""
    parts = httpx.URL(url)
    is_safe = parts.scheme == "https"
    names = {"Host": parts.netloc.decode(), "Accept": "application/json", "Accept-Encoding": "identity"}
    written = {**names, "Content-Type": "application/json", **headers}
    head = tuple((name.encode(), value.encode()) for name, value in written.items())
    port = parts.port or (443 if is_safe else 80)
    return Address(parts.raw_host.decode(), port, parts.raw_path, head, trusted if is_safe else None)


# An event loop that the threads of a process share, so that they share its limits and connections, too.


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def begun(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], out: Out) -> Callable[[], None]:
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
