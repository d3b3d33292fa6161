"""An event loop that the threads of a process share, so that they share its limits and connections, too."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tasks.llm.backends.connections import Connections
from tasks.llm.request import Reply

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
