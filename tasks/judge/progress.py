"""What a judging run says while it runs: rows done, throughput, tokens, unscored share, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import length_hint

from tasks.judge.rows import Graded, Rater
from tasks.llm.ask import Wave
from tasks.llm.backend import Around, Backend
from tasks.llm.request import Reply, Request

_EVERY_S = 2.0


class _Watched(Around):
    """A backend that tells of every reply as it passes."""

    def __init__(self, backend: Backend, tick: Callable[[], None]) -> None:
        super().__init__(backend)
        self._tick = tick

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        return _Ticking(self._backend.answer(requests), self._tick)


class _Ticking:
    """An iterator that tells of everything that it gives, and knows as much as the one inside of what is left."""

    def __init__(self, inside: Iterator[tuple[int, Reply]], tick: Callable[[], None]) -> None:
        self._inside, self._tick = inside, tick

    def __iter__(self) -> Iterator[tuple[int, Reply]]:
        return self

    def __next__(self) -> tuple[int, Reply]:
        numbered = next(self._inside)
        self._tick()
        return numbered

    def __length_hint__(self) -> int:
        return length_hint(self._inside)


class Progress:
    """Counts waves and graded responses and says a line now and then (plain text, so that it reads in any log)."""

    def __init__(self, total: int, say: Callable[[str, float], None]) -> None:
        """say: takes the line and the share of the responses that are graded."""
        self._total, self._say = total, say
        self._start = self._last = time.monotonic()
        self._said = -1
        self._done = self._unscored = self._asked = self._stored = self._repaired = self._tokens = 0

    def watch(self, rater: Rater) -> Rater:
        """The rater with backends that say a line now and then while a long wave is answered."""
        mender = rater.mender and _Watched(rater.mender, self._tick)
        return replace(rater, backend=_Watched(rater.backend, self._tick), mender=mender)

    def _tick(self) -> None:
        self._asked += 1
        self._now_and_then()

    def wave(self, wave: Wave) -> None:
        """Add a wave of calls."""
        self._stored += wave.from_store
        self._repaired += wave.repaired
        self._tokens += wave.prompt_tokens + wave.completion_tokens

    def graded(self, graded: Graded) -> None:
        """Add graded responses."""
        self._done += len(graded.gradings)
        self._unscored += sum(one.scored.score is None for one in graded.gradings)
        self._now_and_then()

    def _now_and_then(self) -> None:
        if time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            self._line()

    def end(self) -> None:
        """Say the last line, unless it was just said."""
        if self._said != self._done:
            self._line()

    def _line(self) -> None:
        self._said = self._done
        seconds = time.monotonic() - self._start
        rate = self._done / seconds if seconds else 0.0
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate and self._done < self._total else ""
        tokens = f", {self._tokens:,} tokens" if self._tokens else ""
        self._say(
            f"judge: {self._done:,}/{self._total:,} responses, {rate:,.0f}/s, {self._asked:,} calls, "
            f"{self._stored:,} replies reused, {self._repaired:,} repairs, {self._unscored:,} unscored{tokens}{left}",
            self._done / self._total,
        )
