"""What a judging run says while it runs: rows done, throughput, tokens, unscored share, time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.judge.grade import Graded
from tasks.llm.ask import Wave

_EVERY_S = 2.0


class Progress:
    """Counts waves and graded responses and says a line now and then (plain text, so that it reads in any log)."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._say = total, say
        self._start = self._last = time.monotonic()
        self._done = self._unscored = self._asked = self._stored = self._repaired = self._tokens = 0

    def wave(self, wave: Wave) -> None:
        """Add a wave of calls."""
        self._asked += wave.asked
        self._stored += wave.from_store
        self._repaired += wave.repaired
        self._tokens += wave.prompt_tokens + wave.completion_tokens

    def graded(self, graded: Graded) -> None:
        """Add graded responses."""
        self._done += len(graded.gradings)
        self._unscored += sum(row["score"] is None for row in graded.gradings)
        if time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            self._line()

    def end(self) -> None:
        """Say the last line."""
        self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._start
        rate = self._done / seconds if seconds else 0.0
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate and self._done < self._total else ""
        tokens = f", {self._tokens:,} tokens" if self._tokens else ""
        self._say(
            f"judge: {self._done:,}/{self._total:,} responses, {rate:,.0f}/s, {self._asked:,} calls, "
            f"{self._stored:,} replies reused, {self._repaired:,} repairs, {self._unscored:,} unscored{tokens}{left}"
        )
