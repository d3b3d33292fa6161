"""Calls that outlast the batch that made them: whoever asks the same again gets their replies."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from operator import length_hint
from time import monotonic
from typing import NamedTuple

from rubricflow.tasks.core.llm.backend import Arriving, Backend, BackendWrapper, ReplyStream
from rubricflow.tasks.core.llm.request import Reply, Request, digest, overdue

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

    def begun(self, keys: Sequence[str], requests: Sequence[Request]) -> tuple[list[Future[Reply]], list[int]]:
        """The replies to come, and which of the calls are not under way yet: they are the caller's to make."""
        new: list[int] = []
        with self._lock:
            if len(self._calls) > _MANY:
                present = monotonic()
                over = [key for key, (reply, until) in self._calls.items() if reply.done() and until < present]
                for key in over:
                    del self._calls[key]
            for index, key in enumerate(keys):
                if key not in self._calls:
                    self._calls[key] = _Call(Future(), requests[index].until)
                    new.append(index)
            return [self._calls[key].reply for key in keys], new

    def taken(self, key: str, reply: Future[Reply]) -> None:
        """A reply is in the hands of a batch, which keeps it."""
        with self._lock:
            if self.reply_of(key) is reply:
                del self._calls[key]


class _Patient(BackendWrapper):
    """See `InFlight.around`."""

    def __init__(self, in_flight: InFlight, backend: Backend, patience_s: float, is_last: bool) -> None:
        super().__init__(backend)
        self._in_flight, self._patience_s, self._is_last = in_flight, patience_s, is_last

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does, and then an error for all that is still open."""
        out: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        arrived: list[int] = []
        return ReplyStream(self._arriving(requests, arrived, out), lambda: len(arrived) + out.qsize())

    def _arriving(self, requests: Sequence[Request], arrived: list[int], out: queue.SimpleQueue[list[int]]) -> Arriving:
        """arrived: gets what came together, and is emptied."""
        keys = [digest(request, self.model, self.by_subject) for request in requests]
        replies, new = self._in_flight.begun(keys, requests)
        if new:
            calls = [(index, requests[index], replies[index]) for index in new]
            threading.Thread(target=_carry, args=(self._backend, calls, out), name="calls", daemon=True).start()
        for index in set(range(len(requests))).difference(new):
            replies[index].add_done_callback(partial(_tell, out, index))
        open_, until = set(range(len(requests))), monotonic() + self._patience_s
        while open_:
            if not arrived:
                try:
                    arrived += out.get(timeout=max(0.0, until - monotonic()))
                except queue.Empty:
                    break
                until = monotonic() + self._patience_s
            index = arrived.pop()
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


def _tell(out: queue.SimpleQueue[list[int]], index: int, reply: Future[Reply]) -> None:
    out.put([index])


def _carry(
    backend: Backend, calls: Sequence[tuple[int, Request, Future[Reply]]], out: queue.SimpleQueue[list[int]]
) -> None:
    """Brings each call its reply, or what ended the backend, and tells whoever began them, of several together."""
    open_, together = {place: (index, reply) for place, (index, _, reply) in enumerate(calls)}, list[int]()
    error: BaseException | None = None
    try:
        answers = backend.answer([request for _, request, _ in calls])
        for place, brought in answers:
            if place in open_:
                index, reply = open_.pop(place)
                reply.set_result(brought)
                together.append(index)
            if not length_hint(answers):
                out.put(together)
                together = []
    except BaseException as ended:
        error = ended
    for index, reply in open_.values():
        if error:
            reply.set_exception(error)
        else:
            reply.set_result(Reply(error="no_reply: the backend gave no reply"))
        together.append(index)
    out.put(together)
