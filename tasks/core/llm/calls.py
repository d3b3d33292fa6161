"""Calls that are watched as they pass, times and rates in words, and calls that outlast the batch that made them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from operator import length_hint

from rubricflow.tasks.core.llm.backend import Answers, Arriving, Backend, BackendWrapper, ReplyStream
from rubricflow.tasks.core.llm.request import Reply, Request, digest, overdue

EVERY_S, WAITING_S = 5.0, 10.0
"""Seconds between lines while replies come, and while none does."""


class Watched(BackendWrapper):
    """A backend that calls a function with every reply as it passes."""

    def __init__(self, backend: Backend, tell: Callable[[Request, Reply], None]) -> None:
        super().__init__(backend)
        self._tell = tell

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        for index, reply in answers:
            self._tell(requests[index], reply)
            yield index, reply


def pace(rate: float) -> str:
    """A rate as people say it: two digits of a small one."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def in_words(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Calls that outlast their batch: whoever asks the same again gets their replies.

PENDING = "pending: no answer yet"
"""The error reply of a call that goes on though its batch does not wait for it any more."""
_MANY = 1_000
"""Calls from which on those that ended and are past their time are dropped."""


class InFlight:
    """The calls of one process that are under way, or whose reply was not taken yet. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, tuple[Future[Reply], float]] = {}
        """Digest → the reply to come, and until when it is waited for."""

    def around(self, backend: Backend, patience_s: float, is_last: bool) -> Backend:
        """The backend, for which no batch waits when for so many seconds no reply has come. What is open then gets
        the error 'pending' and goes on; is_last: it gets 'deadline', as it is not asked again."""
        return _Patient(self, backend, patience_s, is_last)

    def reply_of(self, key: str) -> Future[Reply] | None:
        """The reply to come of a call, by its digest; None where it was taken."""
        return self._calls.get(key, (None, 0.0))[0]

    def begun(self, keys: Sequence[str], requests: Sequence[Request]) -> tuple[list[Future[Reply]], list[int]]:
        """The replies to come, and which of the calls are not under way yet: they are the caller's to make."""
        new = []
        with self._lock:
            if len(self._calls) > _MANY:
                now = time.monotonic()
                self._calls = {
                    key: (reply, until)
                    for key, (reply, until) in self._calls.items()
                    if until >= now or not reply.done()
                }
            for index, key in enumerate(keys):
                if key not in self._calls:
                    self._calls[key] = Future(), requests[index].until
                    new.append(index)
            return [self._calls[key][0] for key in keys], new

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

    def answer(self, requests: Sequence[Request]) -> Answers:
        arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        return ReplyStream(self._arriving(requests, arrived), arrived.qsize)

    def _arriving(self, requests: Sequence[Request], arrived: queue.SimpleQueue[int]) -> Arriving:
        keys = [digest(request, self.model, self.by_subject) for request in requests]
        replies, new = self._in_flight.begun(keys, requests)
        for index, reply in enumerate(replies):
            reply.add_done_callback(lambda _, index=index: arrived.put(index))  # type: ignore[misc]
        if new:
            calls = [requests[index] for index in new], [replies[index] for index in new]
            threading.Thread(target=_carry, args=(self._backend, *calls), name="calls", daemon=True).start()
        open_, until = set(range(len(requests))), time.monotonic() + self._patience_s
        while open_:
            try:
                index = arrived.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            until = time.monotonic() + self._patience_s
            self._in_flight.taken(keys[index], replies[index])
            reply_ = replies[index].result()
            # A call that another batch began may end at that one's deadline, which is not this one's.
            if reply_.error != overdue().error or requests[index].until <= time.monotonic():
                open_.discard(index)
                yield index, reply_
            elif len(open_) == 1:
                break
        for index in sorted(open_):
            yield index, overdue() if self._is_last else Reply(error=PENDING)


def _carry(backend: Backend, requests: Sequence[Request], replies: Sequence[Future[Reply]]) -> None:
    """Brings each call its reply, those together that are there at once, or what ended the backend."""
    open_, together = dict(enumerate(replies)), list[tuple[Future[Reply], Reply]]()
    error: BaseException | None = None
    try:
        answers = backend.answer(requests)
        for place, reply in answers:
            if place in open_:
                together.append((open_.pop(place), reply))
            if not length_hint(answers):
                for future, arrived in together:
                    future.set_result(arrived)
                together = []
    except BaseException as ended:
        error = ended
    for future, arrived in together:
        future.set_result(arrived)
    for future in open_.values():
        if error:
            future.set_exception(error)
        else:
            future.set_result(Reply(error="no_reply: the backend gave no reply"))
