"""What calibrate says while it predicts: gradings predicted, how fast, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from rubricflow.tasks.core.llm.calls import EVERY_S, in_words, pace


class PackProgress:
    """Counts gradings pack by pack; says a line now and then, and one at the end."""

    def __init__(
        self, total: int, say: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """total: gradings of all packs. say: takes the line and the share that is done. clock: seconds."""
        self._total, self._say, self._clock = total, say, clock
        self._begun = self._said = clock()
        self._earlier = self._now = 0

    def passed(self, gradings: int) -> None:
        """A pack was predicted before this command."""
        self._earlier += gradings

    def predicted(self, gradings: int) -> None:
        """A pack is predicted."""
        self._now += gradings
        if self._earlier + self._now == self._total or self._clock() - self._said >= EVERY_S:
            self._said = self._clock()
            self._say(self._line(), (self._earlier + self._now) / self._total)

    def _line(self) -> str:
        done, seconds = self._earlier + self._now, self._clock() - self._begun
        rate = f", {pace(self._now / seconds)}/s" if seconds > 0 else ""
        seconds_left = seconds / self._now * (self._total - done)
        time_left = f", about {in_words(seconds_left)} left" if seconds_left else ""
        return f"calibrate: {done:,}/{self._total:,} gradings predicted{rate}{time_left}"
