"""A server of ours: uvicorn, with limits for its connections and a log that cannot be flooded.

Only so many connections are open at once, each for a short time while it waits for its client. Whoever opens
connections and says nothing, half a request or one byte a second, or never takes what is answered, is put out as soon
as a place is needed, those who have waited longest first, and after a while in any case.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
import webbrowser
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from rubricflow.tasks.core.contracts.errors import InputError

_BACKLOG = 1024
"""Connections that wait in the system to be taken."""
_LOG = logging.getLogger(__name__)
_BURST = 5.0
"""Messages of such a logger that are let through at once."""
_SPARED = ("asyncio", "uvicorn.error", __name__)
"""Loggers that strangers can make speak, whatever is served."""


def serve(app: FastAPI, host: str, port: int, open_browser: bool) -> None:
    """Serves until it is stopped; InputError where the address cannot be bound."""
    with listening(host, port) as bound:
        if open_browser:  # it listens already, so the browser only waits
            webbrowser.open(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        Server(app, bound, usual_limits()).run()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; InputError where the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"the address cannot be bound: {error}", field="port", hint="is it in use?") from error


class Server(uvicorn.Server):
    """Takes one connection after the other from a listening socket, so that there are never more than places for them:
    asyncio's own server takes all that wait, and logs each for which no file descriptor is left."""

    def __init__(self, app: FastAPI, listening: socket.socket, limits: Limits) -> None:
        """app: its `state.loggers`, if any, are names of further loggers that strangers can make speak."""
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none", lifespan="on")
        )
        self.listening, self._places, self._sparing = listening, ConnectionPool(limits), LogRateLimiter()
        self._spared = [logging.getLogger(name) for name in (*_SPARED, *getattr(app.state, "loggers", ()))]
        self._taking: asyncio.Task[None] | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with suppress(KeyboardInterrupt):  # which is how it is stopped
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for logger in self._spared:
            logger.addFilter(self._sparing)
        await super().startup(sockets=[])
        self.listening.setblocking(False)
        self._taking = asyncio.create_task(self._take())

    async def on_tick(self, counter: int) -> bool:
        return self._taking is None or self._taking.done() or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._taking:
            self._taking.cancel()
            with suppress(asyncio.CancelledError):
                await self._taking
        await super().shutdown(sockets)
        for logger in self._spared:
            logger.removeFilter(self._sparing)

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (address, *_) = await loop.sock_accept(self.listening)
            except OSError as error:  # it is gone already, or the machine has no descriptor left
                _LOG.warning("a connection cannot be taken: %s", error)
                await asyncio.sleep(0.1)
                continue
            while pause := self._places.pause(address, loop.time()):
                await asyncio.sleep(pause)
            of_server = self.config, self.server_state, self.lifespan.state
            await loop.connect_accepted_socket(partial(Connection, self._places, *of_server), connection)


class LogRateLimiter(logging.Filter):
    """Lets a few messages through at once and then one a second; the next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._allowed, self._last, self._dropped = _BURST, time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        present = time.monotonic()
        self._allowed, self._last = min(_BURST, self._allowed + present - self._last), present
        if self._allowed < 1:
            self._dropped += 1
            return False
        self._allowed -= 1
        if self._dropped:
            record.msg, record.args = f"{record.getMessage()} ({self._dropped} messages before were left out)", ()
            self._dropped = 0
        return True


@dataclass(frozen=True)
class Limits:
    """What connections may take."""

    places: int
    """Connections at once, at most; no more than half of them from one address."""
    request_s: float = 10.0
    """Seconds for a whole request, head and body: since the connection was opened, or since the answer before."""
    answer_s: float = 60.0
    """Seconds for taking an answer."""
    stay_s: float = 0.01
    """Seconds that everybody has to begin, before their place is another's."""
    unsent: int = 64 * 2**20
    """Bytes of answers that wait to be taken, at most, but for a single one."""


def usual_limits(places: int = 256, others: int = 32, request_s: float = Limits.request_s) -> Limits:
    """Limits with so many places, fewer where the process may have few file descriptors.

    others: descriptors for all that is no client's connection. request_s: see `Limits`.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = places if descriptors == resource.RLIM_INFINITY else descriptors - others
    return Limits(max(8, min(places, left)), request_s)


def remember(request: Request) -> None:
    """Says of a request that it is one of ours: between requests its connection keeps its place before strangers'."""
    request.state.known = True


class Connection(H11Protocol):
    """A connection, which is closed when its client lets it wait for too long or when its place is needed."""

    def __init__(self, places: ConnectionPool, *about: Any) -> None:
        super().__init__(*about)
        self._places = places
        self.since = 0.0
        """When the client's turn began."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to end a request, or to take an answer."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.unsent > 0 or self.transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes of answers that the client has not taken."""
        return self.transport.get_write_buffer_size()

    @property
    def is_kept(self) -> bool:
        """Whether it answered one of ours and is open for the next request, of which nothing has come yet."""
        is_ours = bool(self.scope) and bool(self.scope["state"].get("known"))
        return is_ours and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0] and not self.unsent

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client's first turn begins."""
        super().connection_made(transport)
        self._turn()
        self._places.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The place is free."""
        self._places.leave(self)
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The client's next turn begins: to take the answer, and to ask again."""
        self._turn()
        self._places.spare_memory()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Nobody who lets the server wait keeps it from stopping."""
        if self.waits:
            self.transport.abort()
        else:
            super().shutdown()

    def _turn(self) -> None:
        self.since = self.loop.time()
        self._look_later()

    def _look_later(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(self._places.limits.request_s, self._look)

    def _look(self) -> None:
        seconds = self.loop.time() - self.since
        if self.waits and (not self.unsent or seconds >= self._places.limits.answer_s):
            self.transport.abort()
        else:
            self._look_later()


class ConnectionPool:
    """The open connections."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[Connection] = set()

    def pause(self, address: str, present: float) -> float:
        """Seconds until there is a place for an address, or until it is worth while to ask again."""
        going = self._going(address)
        if going is None:
            return self.limits.stay_s
        return max([0.0, *(connection.since + self.limits.stay_s - present for connection in going)])

    def enter(self, connection: Connection) -> None:
        """A connection more: others are closed for it, of its own address where that has half of the places."""
        for other in self._going(connection.address) or ():
            self._open.discard(other)
            other.transport.abort()
        self._open.add(connection)

    def leave(self, connection: Connection) -> None:
        """A connection less."""
        self._open.discard(connection)

    def spare_memory(self) -> None:
        """Closes connections whose clients do not take their answers, while those are too much together."""
        slow = _longest_first(connection for connection in self._open if connection.unsent)
        unsent = sum(connection.unsent for connection in slow)
        for connection in slow[:-1]:
            if unsent <= self.limits.unsent:
                return
            unsent -= connection.unsent
            connection.transport.abort()

    def _going(self, address: str | None) -> list[Connection] | None:
        """Those that are closed for one more of an address; None where it has to wait, because all are answered."""
        neighbours = [connection for connection in self._open if connection.address == address]
        half = self.limits.places // 2
        if len(neighbours) >= half:
            return _first_to_go(neighbours, half)
        return _first_to_go(self._open, self.limits.places)


def _first_to_go(crowd: Collection[Connection], most: int) -> list[Connection] | None:
    """Whom to close, so that there is room for one more among `most`; None where all are being answered.

    Those that have waited longest for their clients go first. Kept ones go last while they are no more than half: so
    strangers do not put them out, and reviewers who do nothing leave places for who comes.
    """
    count = len(crowd) + 1 - most
    if count <= 0:
        return []
    kept = _longest_first(connection for connection in crowd if connection.is_kept)
    others = _longest_first(connection for connection in crowd if connection.waits and not connection.is_kept)
    spare = max(0, len(kept) - most // 2)
    return [*kept[:spare], *others, *kept[spare:]][:count] or None


def _longest_first(connections: Iterable[Connection]) -> list[Connection]:
    return sorted(connections, key=lambda connection: connection.since)
