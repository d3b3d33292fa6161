"""Reads documents of strangers in a process of its own, which may use so much memory and time and no more.

A document goes there as bytes and comes back as text. Whatever it does to the process, the next one is read by another.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import UserError, one_line

MEMORY = 2 << 30
"""Bytes that the process may use."""
SECONDS = 60
"""For one document."""
_DAMAGED = "it cannot be read"


class DocumentText(NamedTuple):
    """What was read of a document."""

    text: str
    reason: str | None = None
    """Why there is no text, a key of UNREAD."""
    words: str = ""
    """The details, for people."""


class DocumentReader:
    """Reads one document after the other; a context, at whose end the process ends."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds, self._memory = seconds, memory
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def read(self, name: str, content: bytes) -> DocumentText:
        """The text of a document; name: whose ending shows its kind."""
        ending = Path(name).suffix.lower()
        self._running = self._running or self._started()
        _, connection = self._running
        until = time.monotonic() + self._seconds
        answer = None
        with suppress(OSError, EOFError):
            connection.send_bytes(ending.encode("utf-8", "surrogatepass"))
            connection.send_bytes(content)
            answer = connection.recv_bytes() if connection.poll(max(0.0, until - time.monotonic())) else None
        if answer is not None:
            return DocumentText(**json.loads(answer))
        late = time.monotonic() >= until
        self._stop()
        if late:
            return DocumentText("", "file_too_large", f"it takes longer than {self._seconds:g} seconds to read")
        return DocumentText("", "file_damaged", f"reading it needs more than {self._memory >> 20:,} MB, or breaks off")

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        connection, theirs = Pipe()
        limits = [str(self._memory), str(int(self._seconds) + 5)]
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "rubricflow.tasks.core.store.document_reader", *limits, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[4],
                env={name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "HOME") if name in os.environ},
            )
        self._running = process, connection
        with suppress(OSError, EOFError):
            if connection.poll(SECONDS) and connection.recv_bytes() == b"ready":
                return self._running
        self._stop()
        raise UserError(f"the process that reads documents does not start: {sys.executable} -m {__spec__.name}")

    def _stop(self) -> None:
        if self._running is not None:
            process, connection = self._running
            self._running = None
            process.kill()
            process.wait()
            connection.close()


def _serve(memory: int, seconds: int, connection: Connection) -> None:
    """Answers messages until there are no more. In this process strangers' documents are read."""
    from rubricflow.tasks.core.store.documents import document_text
    from rubricflow.tasks.core.store.pdf import UnreadableDocument

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with suppress(ValueError, OSError):  # macOS knows no limit of this kind
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    connection.send_bytes(b"ready")
    while True:
        try:
            ending = connection.recv_bytes().decode("utf-8", "surrogatepass")
            content = connection.recv_bytes()
        except (EOFError, OSError):
            return
        signal.alarm(seconds)  # ends the process even if its parent is gone
        try:
            answer = DocumentText(document_text(ending, content))
            if not answer.text.strip():
                answer = DocumentText("", "file_without_text", "was it scanned, or is it of pictures alone?")
        except UnreadableDocument as error:
            answer = DocumentText("", error.reason, error.words)
        except MemoryError:
            answer = DocumentText("", "file_too_large", f"reading it needs more than {memory >> 20:,} MB")
        except Exception as error:  # libraries answer a broken document with any exception: all mean the same
            words = one_line(error, 120)
            answer = DocumentText("", "file_damaged", f"{_DAMAGED}: {words}" if words.isprintable() else _DAMAGED)
        signal.alarm(0)
        connection.send_bytes(json.dumps(answer._asdict()).encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), Connection(int(sys.argv[3])))
