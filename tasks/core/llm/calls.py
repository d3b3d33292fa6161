"""Calls to models as they pass: watched, timed, carried beyond the batch that made them; and counted one by one, for
lines about progress and for Prometheus. A process counts its own calls, a worker those of each piece apart, which its
command adds to its own."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from operator import length_hint
from typing import Any

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.llm.backend import Answers, Arriving, Backend, BackendWrapper, ReplyStream
from rubricflow.tasks.core.llm.prices import Price, cost_of
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.llm.request import ONLY_THOUGHT, Reply, Request, digest, overdue

EVERY_S, WAITING_S = 5.0, 10.0
"""Seconds between lines while replies come, and while none does."""
ENOUGH = 20
"""Replies without a text after which a model is given up."""


class Watched(BackendWrapper):
    """A backend that calls a function with every reply as it passes."""

    def __init__(self, backend: Backend, tell: Callable[[Request, Reply], None]) -> None:
        super().__init__(backend)
        self._tell = tell

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        for index, reply in answers:
            self._tell(requests[index], reply)
            yield index, reply


class GivesUp(BackendWrapper):
    """A model that is asked no further where none of its first replies has a text, as all of its tokens went into
    thinking: every other request would be paid for and bring as little."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._thought: int | None = 0
        """Such replies; None once another one came."""

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        """Yields as the backend does; BackendError after ENOUGH such replies."""
        for index, reply in answers:
            if self._thought is not None:
                self._thought = self._thought + 1 if (reply.error or "").startswith(ONLY_THOUGHT) else None
            yield index, reply
            if self._thought is not None and self._thought >= ENOUGH:
                rule = f"none of the first {self._thought} replies of {self.model} has a text, so no more are asked for"
                raise BackendError(f"{self.name}: {rule}: {reply.error}")


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
        open_ = set(range(len(requests)))
        until = time.monotonic() + self._patience_s
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
    open_ = dict(enumerate(replies))
    together = []
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


PLACE = "RUBRICFLOW_METERS"
"""The variable that names where Prometheus finds the meters: a port of this machine alone, or HOST:PORT."""
WHAT = {
    "calls": "Calls to models",
    "failures": "Calls without a reply",
    "prompt_tokens": "Tokens of prompts",
    "completion_tokens": "Tokens of replies",
    "usd": "US dollars, where a price is known",
    "open": "Calls that wait for a reply",
}
"""What is counted."""
PAID = WHAT.keys() - {"open"}
"""What of it only grows."""
Counts = Counter[str]
"""What, with the model after a blank → how much of it."""


class CallMeters:
    """Counts, and since when nothing has come. Threads may share it."""

    def __init__(self) -> None:
        self._lock, self._counts, self._last = threading.Lock(), Counts(), time.monotonic()
        self.asked: Backend | None = None
        """Who was asked last."""

    def add(self, counts: Mapping[str, float]) -> None:
        """Adds to what was counted."""
        with self._lock:
            self._counts.update(counts)
            self._last = time.monotonic()

    def counted(self) -> Counts:
        """All until now, and 'absent' with the address of a server that is waited for."""
        absent = getattr(self.asked, "absent", None)
        with self._lock:
            return Counts({**self._counts, f"absent {absent}": 1} if absent else self._counts)

    @property
    def waited_s(self) -> float:
        """Seconds since anything was asked or came."""
        return time.monotonic() - self._last


METERS = CallMeters()
"""Those of this process."""
_meters: ContextVar[CallMeters] = ContextVar("meters", default=METERS)
SHARES: dict[str, float] = {}
"""Stage → the share of it that is done, 0 to 1."""
LIVE: list[Callable[[], Mapping[str, float]]] = []
"""Each says what workers have counted of pieces that are not finished."""


def metered_by(meters: CallMeters) -> AbstractContextManager[None]:
    """Within the block calls are counted there, and not with those of this process."""
    return scoped(_meters, meters)


class Metered(BackendWrapper):
    """A backend whose calls are counted."""

    def __init__(self, backend: Backend, price: Price | None) -> None:
        """price: of the model; None where nobody says it."""
        super().__init__(backend)
        self._price = price

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        """Yields as the backend does."""
        meters, open_ = _meters.get(), len(requests)
        meters.asked = self
        meters.add({f"open {self.model}": open_})
        try:
            for index, reply in answers:
                open_ -= 1
                came: dict[str, float] = {"calls": 1, "open": -1, "failures": int(reply.error is not None)}
                came |= {"prompt_tokens": reply.prompt_tokens or 0, "completion_tokens": reply.completion_tokens or 0}
                usd = cost_of(reply, self._price) if self._price else None
                came |= {"usd": usd} if usd else {}
                meters.add({f"{what} {self.model}": amount for what, amount in came.items()})
                yield index, reply
        finally:
            meters.add({f"open {self.model}": -open_})


def by_what(counts: Mapping[str, float]) -> Counts:
    """The same of all models together."""
    together = Counts()
    for name, amount in counts.items():
        together[name.partition(" ")[0]] += amount  # type: ignore[assignment]
    return together


@contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Says lines about this process's calls, as long as any is open and this lasts."""

    def look() -> None:
        counts = by_what(METERS.counted())
        waited = METERS.waited_s
        if counts["open"]:
            words = f", nothing has come for {in_words(waited)}" if waited >= WAITING_S else ""
            say(f"{counts['open']:,} calls open, {counts['calls']:,} answered{words}")

    with looking(look, EVERY_S):
        yield


class _Collector:
    """The meters in the form of Prometheus, when it asks. A piece that ends is for a moment in neither count, and one
    that is worked anew begins at 0: what only grows is given as it was at most, or Prometheus would take it for a
    restart."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}

    def collect(self) -> Iterator[Any]:
        """A family for each meter."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = METERS.counted()
        for live in list(LIVE):
            counts.update(live())
        for what, words in WHAT.items():
            kind = GaugeMetricFamily if what == "open" else CounterMetricFamily
            family = kind(f"rubricflow_judge_{what}", words, labels=["model"])
            for name, amount in counts.items():
                if name.startswith(f"{what} "):
                    self._most[name] = max(amount, self._most.get(name, 0))
                    family.add_metric([name.partition(" ")[2]], amount if what == "open" else self._most[name])
            yield family
        done = GaugeMetricFamily("rubricflow_stage_done", "Share of a stage that is done, 0 to 1", labels=["stage"])
        for stage, share in SHARES.copy().items():
            done.add_metric([stage], share)
        yield done


@cache
def serve_meters() -> None:
    """Gives the meters to Prometheus where `PLACE` says, until this process ends; InputError where that cannot be."""
    place = os.environ.get(PLACE)
    if not place:
        return
    from prometheus_client import CollectorRegistry, start_http_server

    host, _, port = place.rpartition(":")
    registry: Any = CollectorRegistry()
    registry.register(_Collector())
    try:
        start_http_server(int(port), host or "127.0.0.1", registry)
    except (ValueError, OSError, OverflowError) as error:
        hint = "name a free port, such as 9464, or host and port: 0.0.0.0:9464"
        raise InputError(f"'{place}' is no place for meters: {error}", field=PLACE, hint=hint) from error
