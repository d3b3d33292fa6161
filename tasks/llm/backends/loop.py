"""An event loop that the threads of a process share, so that they share its limits, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Running(NamedTuple):
    """A loop that runs, and room for so many calls at once, whoever makes them."""

    loop: asyncio.AbstractEventLoop
    room: asyncio.Semaphore


class SharedLoop:
    """An event loop in a thread of its own. It starts with the first who uses it and ends with the last."""

    def __init__(self, name: str, at_once: int) -> None:
        """name: of the thread; at_once: calls for which there is room."""
        self._name, self._at_once = name, at_once
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
                    self._end(running.loop)

    def _started(self) -> Running:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        return Running(loop, asyncio.Semaphore(self._at_once))

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._thread is not None  # it was started
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        self._running = self._thread = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
