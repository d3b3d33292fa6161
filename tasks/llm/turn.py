"""Whose turn it is: what answers in this process is asked by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tasks.llm.request import Request


class Turn:
    """A turn that threads take one after the other, and wait for no longer than their requests have time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self, requests: Sequence[Request]) -> bool:
        """Waits for the turn; False where the time of the requests was over first."""
        # By index: to go through requests that a token budget pays for is to begin them.
        until = min(requests[index].until for index in range(len(requests)))
        return self._lock.acquire(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))

    def over(self) -> None:
        """Gives it to the next one."""
        self._lock.release()
