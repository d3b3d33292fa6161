"""Calls that outlast the batch that made them: whoever asks the same again gets their replies."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import NamedTuple

from tasks.llm.backend import Around, Arriving, Backend, Passing
from tasks.llm.request import Reply, Request, digest, overdue

PENDING = "pending: no answer yet"
"""The error reply of a call that goes on though its batch does not wait for it any more."""
_MANY = 1_000
"""Calls from which on it is looked whether some ended that nobody will ask for again."""


class _Call(NamedTuple):
    reply: Future[Reply]
    until: float


class InFlight:
    """The calls of one process that are under way, or whose reply nobody has taken yet. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, _Call] = {}

    def around(self, backend: Backend, patience_s: float, is_last: bool) -> Backend:
        """The backend, for which no batch waits when for so many seconds no reply has come. What is open then gets
        the error 'pending' and goes on; is_last: it gets 'deadline', as nobody will ask again."""
        return _Patient(self, backend, patience_s, is_last)

    def reply_of(self, key: str) -> Future[Reply] | None:
        """The reply to come of a call, by its digest; None where it was taken."""
        call = self._calls.get(key)
        return call.reply if call else None

    def begun(self, backend: Backend, keys: Sequence[str], requests: Sequence[Request]) -> list[Future[Reply]]:
        """The replies to come, of calls that are under way or that begin now."""
        new: list[tuple[Request, Future[Reply]]] = []
        with self._lock:
            if len(self._calls) > _MANY:
                present = monotonic()
                over = [key for key, (reply, until) in self._calls.items() if reply.done() and until < present]
                for key in over:
                    del self._calls[key]
            for key, request in zip(keys, requests, strict=True):
                if key not in self._calls:
                    self._calls[key] = _Call(Future(), request.until)
                    new.append((request, self._calls[key].reply))
            replies = [self._calls[key].reply for key in keys]
        if new:
            threading.Thread(target=_carry, args=(backend, new), name="calls", daemon=True).start()
        return replies

    def taken(self, key: str, reply: Future[Reply]) -> None:
        """A reply is in the hands of a batch, which keeps it."""
        with self._lock:
            if self.reply_of(key) is reply:
                del self._calls[key]


class _Patient(Around):
    """See `InFlight.around`."""

    def __init__(self, in_flight: InFlight, backend: Backend, patience_s: float, is_last: bool) -> None:
        super().__init__(backend)
        self._in_flight, self._patience_s, self._is_last = in_flight, patience_s, is_last

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does, and then an error for all that is still open."""
        out: queue.SimpleQueue[int] = queue.SimpleQueue()
        return Passing(self._arriving(requests, out), out.qsize)

    def _arriving(self, requests: Sequence[Request], out: queue.SimpleQueue[int]) -> Arriving:
        keys = [digest(request, self.model, self.by_subject) for request in requests]
        replies = self._in_flight.begun(self._backend, keys, requests)
        for index, call in enumerate(replies):
            call.add_done_callback(partial(_put, out, index))
        open_, until = set(range(len(requests))), monotonic() + self._patience_s
        while open_:
            try:
                index = out.get(timeout=max(0.0, until - monotonic()))
            except queue.Empty:
                break
            until = monotonic() + self._patience_s
            self._in_flight.taken(keys[index], replies[index])
            reply = replies[index].result()
            # A call that another batch began may end at that one's deadline, which is not this one's.
            if reply.error != overdue().error or requests[index].until <= monotonic():
                open_.discard(index)
                yield index, reply
            elif len(open_) == 1:
                break
        for index in sorted(open_):
            yield index, overdue() if self._is_last else Reply(error=PENDING)


def _put(out: queue.SimpleQueue[int], index: int, reply: Future[Reply]) -> None:
    out.put(index)


def _carry(backend: Backend, calls: Sequence[tuple[Request, Future[Reply]]]) -> None:
    """Brings each call its reply, or what ended the backend."""
    try:
        for index, reply in backend.answer([request for request, _ in calls]):
            if not calls[index][1].done():
                calls[index][1].set_result(reply)
        for _, open_ in calls:
            if not open_.done():
                open_.set_result(Reply(error="no_reply: the backend gave no reply"))
    except BaseException as error:
        for _, open_ in calls:
            if not open_.done():
                open_.set_exception(error)
