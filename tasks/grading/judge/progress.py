"""Progress lines of a judging run: responses answered and graded, calls, tokens, unscored share, time left.

A shard is graded at once, when all its replies are there and mended; what is answered before is counted as it comes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.calls import EVERY_S, WAITING_S, Calls, Watched, in_words, pace
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.grading.judge.rows import Graded, Rater


class Progress:
    """Counts calls and graded responses and logs a line now and then (plain text, so that it reads in any log).

    The time left follows the pace of the replies and, once a shard is graded, by the time that a response took with
    all its repairs; before that their number is unknown, and the time is a lower bound.
    """

    def __init__(
        self,
        total: int,
        say: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
        stage: str = "judge",
    ) -> None:
        """total: responses to grade, each repetition by itself. say: takes the line, which begins with the stage, and
        the share that is done. clock: seconds."""
        self._total, self._say, self._clock, self._stage = total, say, clock, stage
        self._calls = Calls(clock)
        self._start = self._last = clock()
        self._said, self._share = "", 0.0
        self._backends: list[Watched] = []
        self._done = self._unscored = self._stored = self._repairs = self._repaired = 0
        self._shard = self._start
        """When the present shard began."""
        self._begun: set[tuple[str, int]] = set()
        """Responses of the present shard that were asked about, by id and repetition."""
        self._waiting: Counter[tuple[str, int]] = Counter()
        """Those of them that wait for replies, and for how many."""
        self._lock = threading.Lock()

    def watch(self, rater: Rater) -> Rater:
        """The rater with backends that report every reply."""
        mender = rater.mender and Watched(rater.mender, self._replied)
        backend = Watched(rater.backend, self._replied)
        self._backends = [one for one in (backend, mender) if isinstance(one, Watched)]
        return replace(rater, backend=backend, mender=mender)

    def opened(self, requests: Sequence[Request], missing: Sequence[Request]) -> None:
        """A wave begins. missing: those of its requests that no stored reply answers."""
        with self._lock:
            self._calls.opened(len(missing))
            self._repairs += sum(request.role.endswith("repair") for request in missing)
            self._begun.update(map(_key, requests))
            self._waiting = Counter(map(_key, missing))
        self.look()

    def _replied(self, request: Request, reply: Reply) -> None:
        with self._lock:
            self._calls.replied(reply)
            self._waiting[_key(request)] -= 1
        self.look()

    def wave(self, wave: Wave) -> None:
        """Add a wave of calls that is over."""
        with self._lock:
            self._calls.opened(0)
            self._waiting.clear()
            self._stored += wave.from_store
            self._repaired += wave.repaired

    def graded(self, graded: Graded) -> None:
        """Add graded responses."""
        with self._lock:
            self._done += len(graded.gradings)
            self._unscored += sum(grading.scored.score is None for grading in graded.gradings)
            self._begun.clear()
            self._shard = self._clock()
        self.look()

    def look(self) -> None:
        """Say a line if the last one is long enough ago, and something has come since or is waited for long enough."""
        with self._lock:
            quiet = self._clock() - self._last
            absent = next((backend.absent for backend in self._backends if backend.absent), None)
            waited = self._calls.waited(absent)
            if waited is None and quiet >= EVERY_S:
                self._tell(self._line())
            elif waited is not None and quiet >= WAITING_S:
                words = f"{self._calls.awaited(absent)}, {in_words(waited)}{self._time_left()}"
                self._tell(f"{self._stage}: {self._done:,}/{self._total:,} responses, {words}")

    def end(self) -> None:
        """Say the last line, unless it was just said."""
        with self._lock:
            self._tell(self._line())

    def _tell(self, line: str) -> None:
        self._last = self._clock()
        self._share = max(self._share, self._part())
        if line != self._said:
            self._said = line
            self._say(line, self._share)

    def _line(self) -> str:
        seconds = self._clock() - self._start
        answered = self._answered()
        rate = f", {pace(self._done / seconds)}/s" if self._done and seconds > 0 else ""
        shard = f", {answered:,} more answered" if answered and self._done < self._total else ""
        repairs = f"{self._repaired:,} of {self._repairs:,} repairs" if self._repairs else "no repairs"
        counted = self._calls.prompt_tokens + self._calls.reply_tokens
        tokens = f", {counted:,} tokens" if counted else ""
        parts = (
            f"{self._stage}: {self._done:,}/{self._total:,} responses{self._time_left()}{shard}{rate}",
            f"{self._calls.answered:,} calls{self._calls.rates()}",
            f"{self._stored:,} replies reused",
            repairs,
            f"{self._unscored:,} unscored{tokens}",
        )
        return ", ".join(parts)

    def _answered(self) -> int:
        """Responses of the present shard to which no reply is waited for."""
        return len(self._begun) - sum(count > 0 for count in self._waiting.values())

    def _time_left(self) -> str:
        """What is open by its own pace; the rest of the shard, and those to come, by the time that a response took."""
        spent, begun, open_ = self._clock() - self._shard, len(self._begun), self._calls.seconds_left()
        if self._done >= self._total or (not self._done and (open_ is None or not begun)):
            return ""
        if self._done:
            each = (self._shard - self._start) / self._done
            seconds = max(open_ or 0.0, begun * each - spent) + (self._total - self._done - begun) * each
            return f", about {in_words(seconds)} left"
        waited = open_ or 0.0
        return f", at least {in_words(waited + (self._total - begun) * (spent + waited) / begun)} left"

    def _part(self) -> float:
        """The share of the responses that are answered or graded."""
        return min(1.0, (self._done + self._answered()) / self._total) if self._total else 1.0


def _key(request: Request) -> tuple[str, int]:
    return request.subject, request.sampling.seed
