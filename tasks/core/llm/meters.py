"""What models are asked for, counted call by call as it comes: for lines about progress, and for Prometheus.

A process counts its own calls, a worker those of each piece apart, which its command adds to its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.llm.backend import Answers, Arriving, Backend, BackendWrapper
from rubricflow.tasks.core.llm.calls import EVERY_S, WAITING_S, in_words
from rubricflow.tasks.core.llm.prices import Price, cost_of
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.llm.request import Request

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
        counts, waited = by_what(METERS.counted()), METERS.waited_s
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
