"""The review page's server: uvicorn, with limits for its connections and a log that cannot be flooded."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import webbrowser
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from tasks.contracts.errors import InputError
from tasks.review.connections import Limits, Places, Visit, usual_limits

_BACKLOG = 1024
"""Connections that wait in the system to be taken."""
_LOG = logging.getLogger(__name__)
_SPARED = ("asyncio", "uvicorn.error", "tasks.review.app", __name__)
"""Loggers that strangers can make speak."""


def serve(app: FastAPI, host: str, port: int, open_browser: bool) -> None:
    """Serves until it is stopped; InputError where the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"the address cannot be bound: {error}", field="port", hint="is it in use?") from error
    if open_browser:  # it listens already, so the browser only waits
        webbrowser.open(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    with listening, suppress(KeyboardInterrupt):  # which is how it is stopped
        Server(app, listening, usual_limits()).run()


class Server(uvicorn.Server):
    """Takes one connection after the other from a listening socket, so that there are never more than places for them:
    asyncio's own server takes all that wait, and logs each for which no file descriptor is left."""

    def __init__(self, app: FastAPI, listening: socket.socket, limits: Limits) -> None:
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none", lifespan="on")
        )
        self.listening, self._places, self._sparing = listening, Places(limits), Sparing()
        self._taking: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, and takes connections."""
        for name in _SPARED:
            logging.getLogger(name).addFilter(self._sparing)
        await super().startup(sockets=[])
        self.listening.setblocking(False)
        self._taking = asyncio.create_task(self._take())

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop."""
        return self._taking is None or self._taking.done() or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes no more connections, ends what is being answered and stops the application."""
        if self._taking:
            self._taking.cancel()
            with suppress(asyncio.CancelledError):
                await self._taking
        await super().shutdown(sockets)
        for name in _SPARED:
            logging.getLogger(name).removeFilter(self._sparing)

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
            await loop.connect_accepted_socket(self._visit, connection)

    def _visit(self) -> Visit:
        return Visit(self._places, self.config, self.server_state, self.lifespan.state)


class Sparing(logging.Filter):
    """Lets a few messages through at once and then one a second; the next one says how many were left out."""

    def __init__(self, burst: int = 5) -> None:
        super().__init__()
        self._burst, self._allowed, self._last, self._dropped = burst, float(burst), time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is logged."""
        present = time.monotonic()
        self._allowed, self._last = min(self._burst, self._allowed + present - self._last), present
        if self._allowed < 1:
            self._dropped += 1
            return False
        self._allowed -= 1
        if self._dropped:
            record.msg, record.args = f"{record.getMessage()} ({self._dropped} messages before were left out)", ()
            self._dropped = 0
        return True
