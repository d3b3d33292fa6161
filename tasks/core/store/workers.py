"""What a worker of a cluster and the command that sends it work must share: the code, the warehouse and its marks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.marks import look_again
from rubricflow.tasks.core.store.warehouse import Run

Opened = TypeVar("Opened")


class WorkerCache:
    """What one command's pieces are worked with, kept from piece to piece. Threads may share it."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._kept: dict[bytes, Any] = {}

    def get_or_open(self, sent: bytes, open_: Callable[[], Opened]) -> Opened:
        """What the first piece that was sent with the same bytes was worked with, or else what `open_` gives."""
        with self._gate:
            if sent not in self._kept:
                self._kept.clear()  # a worker that outlives a stage or a command lets go of its model
                self._kept[sent] = open_()
            return cast(Opened, self._kept[sent])


WORKER_CACHE = WorkerCache()
"""Of this process: whichever stage's pieces it takes, it holds one model."""


def require_same_code(run: Run, stage: str, shard: str, code: str) -> None:
    """BackendError where this worker has not what the command has: its code, by the digest, and in its warehouse a
    shard that the command has written."""
    host = socket.gethostname()
    if code_digest() != code:
        raise BackendError(
            f"the worker on {host} has another version of rubricflow than this command: install the same one on every "
            "machine, and start the workers again"
        )
    if not run.done(stage, shard):
        raise BackendError(
            f"the worker on {host} does not see {run.folder}: workers need the same warehouse, so name a folder that "
            "all machines share, or an object store"
        )


def require_visible_shards(run: Run, stage: str, shards: Iterable[str]) -> None:
    """StoreError where a shard that workers have finished is not in this warehouse, by a new look."""
    look_again(run.folder)
    names = list(shards)
    for shard in sorted(set(names) - run.finished(stage, names)):
        raise StoreError(
            f"a worker finished {stage} {shard}, and {run.place} does not hold it: name a warehouse that all see"
        )
