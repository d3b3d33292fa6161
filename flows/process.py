"""What a reward has in one process: its judge and reply store, and the batches that are judged with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rubricflow.flows.failures import Watch
from rubricflow.flows.recorder import Recorder
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.grading.judge.rows import Rater


class Opened(NamedTuple):
    """What one process judges with."""

    rater: Rater
    store: Replies
    name: str
    """Unlike that of any other process: its batches are recorded under it."""
    batches: Iterator[int]
    """Their numbers."""
    recorder: Recorder | None
    """Who records them."""


class Process:
    """A process' part of a reward. What a parent opened before it forked is the parent's."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._opened: Opened | None = None
        self._gate = threading.Condition()
        self._at_work = 0
        """Batches that are judged now."""

    @contextmanager
    def judging(self, opening: Callable[[], Opened]) -> Iterator[Opened]:
        """What judges, for as long as a batch takes; opened where it is not."""
        with self._gate:
            opened = self._opened = self._opened or opening()
            self._at_work += 1
        try:
            yield opened
        finally:
            with self._gate:
                self._at_work -= 1
                self._gate.notify_all()

    def close(self) -> None:
        """Gives the reply store back when the batches under way are done, and completes the record."""
        with self._gate:
            self._gate.wait_for(lambda: not self._at_work)
            if self._opened:
                self._opened.store.close()
                if self._opened.recorder:
                    self._opened.recorder.close()
            self._opened = None
