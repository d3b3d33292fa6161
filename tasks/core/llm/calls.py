"""Calls that are under way: how many are answered, how fast, and how long the rest will take. Kept by whoever asks, and
looked at from a thread of its own, for whoever asks is waiting then."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context

from rubricflow.tasks.core.llm.backend import Arriving, Backend, BackendWrapper, ReplyStream
from rubricflow.tasks.core.llm.request import Reply, Request

LOOK_S, EVERY_S, WAITING_S = 1.0, 5.0, 10.0
"""Seconds between looks; between lines while replies come, and while none does."""


class Calls:
    """Counts what is asked and what is answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds, as `time.monotonic`."""
        self.clock = clock
        self.begun = self.answered = self.prompt_tokens = self.reply_tokens = 0
        self._wave = 0
        """Calls that were answered when the present wave began."""
        self._opened = self._first = self._last = clock()
        """When the present wave began; when the first and the last reply of it came."""
        self._started: float | None = None

    def opened(self, calls: int) -> None:
        """So many calls begin; those begun before are over, whoever answered them."""
        self.begun = self.answered + calls
        self._wave, self._opened = self.answered, self.clock()
        if calls and self._started is None:
            self._started = self._opened

    def replied(self, reply: Reply) -> None:
        """A call is answered."""
        self._last = self.clock()
        if self.answered == self._wave:
            self._first = self._last
        self.answered += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.reply_tokens += reply.completion_tokens or 0

    @property
    def open(self) -> int:
        """Calls that are not answered yet."""
        return max(0, self.begun - self.answered)

    def waited(self, absent: str | None = None) -> float | None:
        """Seconds since the present wave began, as long as none of it is answered, or since the last reply while the
        server at an address is waited for; None otherwise."""
        if not self.open or not (absent or self.answered == self._wave):
            return None
        return self.clock() - (self._opened if self.answered == self._wave else self._last)

    def awaited(self, absent: str | None) -> str:
        """What is waited for, in words."""
        replies = "replies" if self.open > 1 else "reply"
        return f"waiting for {f'the server at {absent}' if absent else f'the first of {self.open:,} {replies}'}"

    def per_second(self, count: float) -> float:
        """So many of anything over the time since the first call; 0 before."""
        seconds = 0.0 if self._started is None else self.clock() - self._started
        return count / seconds if seconds > 0 else 0.0

    def rates(self) -> str:
        """Calls and tokens of replies a second, as far as the backend counts these; '' while there is none."""
        calls, tokens = self.per_second(self.answered), self.per_second(self.reply_tokens)
        return (f", {pace(calls)} calls/s" if calls else "") + (f", {pace(tokens)} reply tokens/s" if tokens else "")

    def seconds_left(self) -> float | None:
        """Seconds until all that is open is answered; None where that cannot be told yet.

        By the pace from the first reply of the wave on: where many prompts are read together the first comes late and
        the others soon after. A pause that is longer than the pace makes it slower.
        """
        time_s, came = self.clock(), self.answered - self._wave
        if not self.open:
            return 0.0
        if came >= 2:
            each = max((self._last - self._first) / (came - 1), (time_s - self._first) / came)
        elif self.answered >= 2:
            each = 1 / (self.per_second(self.answered) or math.inf)
        else:
            return None
        return max(0.0, self.open * each - min(time_s - self._last, each))


class Watched(BackendWrapper):
    """A backend that tells of every reply as it passes."""

    def __init__(self, backend: Backend, tell: Callable[[Request, Reply], None]) -> None:
        super().__init__(backend)
        self._tell = tell

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does."""
        answers = self._backend.answer(requests)
        return ReplyStream.on(self._passing(requests, answers), answers)

    def _passing(self, requests: Sequence[Request], answers: Iterator[tuple[int, Reply]]) -> Arriving:
        for index, reply in answers:
            self._tell(requests[index], reply)
            yield index, reply


class LoggingBackend(BackendWrapper):
    """A backend that says a line now and then on how the calls put to it come along, for who has no more to tell."""

    def __init__(
        self, backend: Backend, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """say: takes a line."""
        super().__init__(backend)
        self._say, self._calls, self._said = say, Calls(clock), clock()
        self._watched = Watched(backend, lambda request, reply: self._calls.replied(reply))

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does."""
        self._calls.opened(len(requests))
        return self._watched.answer(requests)

    def look(self) -> None:
        """Say a line where calls are open and the last line is long enough ago."""
        waited = self._calls.waited(self.absent)
        if not self._calls.open or self._calls.clock() - self._said < (EVERY_S if waited is None else WAITING_S):
            return
        self._said = self._calls.clock()
        open_, seconds = self._calls.open, self._calls.seconds_left()
        if waited is not None:
            self._say(f"{self._calls.awaited(self.absent)}, {in_words(waited)}")
        else:
            time_left = f", {in_words(seconds)} left for these" if seconds is not None else ""
            self._say(f"{open_:,} calls open, {self._calls.answered:,} answered{self._calls.rates()}{time_left}")


@contextmanager
def telling(backend: Backend, say: Callable[[str], None]) -> Iterator[Backend]:
    """The backend, with lines about its calls as long as this lasts."""
    watched = LoggingBackend(backend, say)
    with looking(watched.look):
        yield watched


@contextmanager
def looking(look: Callable[[], None], every: float = LOOK_S) -> Iterator[None]:
    """Calls `look` every so many seconds from a thread of its own, in the context of whoever enters."""
    over, context = threading.Event(), copy_context()

    def keep_looking() -> None:
        while not over.wait(every):
            look()

    thread = threading.Thread(target=context.run, args=(keep_looking,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def pace(rate: float) -> str:
    """A rate as people say it: two digits of a small one."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def in_words(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
