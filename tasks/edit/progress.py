"""What a training run says while it runs: how much of a phase is done, how fast, and how long the rest will take."""

from __future__ import annotations

import time

_EVERY_S = 5.0
_SILENT_S = 30.0
"""Seconds after which a chunk that is still worked on is told of."""


class TrainingProgress:
    """Says a line now and then (plain text, so that it reads in any log)."""

    def __init__(self, label: str, total: int, done: int | None = None) -> None:
        """done: what an earlier session did, which does not count for the speed; None for what is reached first."""
        self._label, self._total, self._before = label, total, done
        self._start = self._last = self._heard = time.monotonic()

    def reached(self, done: int) -> None:
        """So many are done now; a line if the last one is long enough ago, or nothing is left."""
        now = self._heard = time.monotonic()
        if self._before is None:
            self._before, self._start = done, now
        if now - self._last < _EVERY_S and done < self._total:
            return
        self._last = now
        rate = (done - self._before) / max(now - self._start, 1e-9)
        remaining = f", {_words((self._total - done) / rate)} left" if rate and done < self._total else ""
        print(f"edit: {self._label} {done:,} of {self._total:,}, {rate:.3g}/s{remaining}")

    def look(self) -> None:
        """A line where nothing was reached for long: the chunk is still worked on."""
        now = time.monotonic()
        if now - max(self._heard, self._last) < _SILENT_S:
            return
        self._last = now
        silent = _words(now - self._heard)
        print(f"edit: {self._label}, {self._total:,} in all: at work on the same chunk for {silent}")


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
