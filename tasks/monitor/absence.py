"""Workers that are all gone: what is said while none is left, and when a run stops waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tasks.contracts.errors import BackendError

SAID_AFTER_S = 10.0
"""For how long a cluster may be without workers before it is said: a restarted one comes back within seconds."""
STOPPED_AFTER_S = 300.0
"""For how long it may be without them before the run stops."""


class Absence:
    """How long a cluster has been without workers. Threads may share it."""

    def __init__(
        self, cluster: str, how: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """cluster: as it is called in sentences. how: commands that start workers. clock: seconds."""
        self._cluster, self._how, self._say, self._clock = cluster, how, say, clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._is_said = False

    def look(self, workers: int) -> None:
        """Take in how many workers there are now. Says once that there are none, and once that some are back;
        BackendError when there were none for `STOPPED_AFTER_S`."""
        with self._lock:
            if workers:
                self._end()
                return
            if self._since is None:
                self._since = self._clock()
            seconds = self._clock() - self._since
            if seconds >= STOPPED_AFTER_S:
                raise BackendError(
                    f"{self._cluster} had no workers for {STOPPED_AFTER_S / 60:.0f} minutes: start some ({self._how}), "
                    "then the same command goes on; what is finished stays"
                )
            if seconds >= SAID_AFTER_S and not self._is_said:
                self._is_said = True
                self._say(
                    f"{self._cluster} has no workers left: the run waits up to {STOPPED_AFTER_S / 60:.0f} minutes for "
                    f"new ones and goes on with them; start some ({self._how})"
                )

    def _end(self) -> None:
        if self._is_said:
            self._say(f"{self._cluster} has workers again; the run goes on")
        self._since, self._is_said = None, False
