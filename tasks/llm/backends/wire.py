"""A connection to a server, one call after the other: what h11 reads and writes, over asyncio.

A client of httpx took 0.7 ms of processor time a call, more than all else that a reward does for it; this takes a fifth
(tests/bench/README.md).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import h11
import httpx

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


def address_of(url: str, headers: Mapping[str, str], trusted: ssl.SSLContext) -> Address:
    """The address of a URL. headers: beside those that say what is sent; trusted: certificates, for https."""
    parts = httpx.URL(url)
    is_safe = parts.scheme == "https"
    names = {"Host": parts.netloc.decode(), "Accept": "application/json", "Accept-Encoding": "identity"}
    written = {**names, "Content-Type": "application/json", **headers}
    head = tuple((name.encode(), value.encode()) for name, value in written.items())
    port = parts.port or (443 if is_safe else 80)
    return Address(parts.raw_host.decode(), port, parts.raw_path, head, trusted if is_safe else None)


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
