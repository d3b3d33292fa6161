"""Reads documents of strangers in a process of its own, which may use so much memory and time and no more.

A document goes there as bytes and comes back as text. Whatever it does to the process, the next one is read by another.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from rubricflow.tasks.core.contracts.errors import UserError

MEMORY = 2 << 30
"""Bytes that the process may use."""
SECONDS = 60
"""For one document."""
_HEAD = 8
"""Bytes of a message's length, before it."""
_KEPT = 10_000
"""Documents whose text is kept while this process lives, so that reading a folder twice costs little more than once."""
_DAMAGED = "it cannot be read"


class DocumentText(NamedTuple):
    """What was read of a document."""

    text: str
    reason: str | None = None
    """Why there is no text, a key of UNREAD."""
    words: str = ""
    """The rest of what people are told then."""


_known: dict[tuple[str, bytes], DocumentText] = {}


class DocumentReader:
    """Reads one document after the other; a context, at whose end the process ends."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds, self._memory = seconds, memory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def read(self, name: str, content: bytes) -> DocumentText:
        """The text of a document; name: whose ending tells its kind."""
        key = Path(name).suffix.lower(), sha256(content).digest()
        found = _known.get(key) or self._read(key[0], content)
        if found.reason != "file_too_large":  # it may have been the machine that was slow
            if len(_known) >= _KEPT:
                _known.clear()
            _known[key] = found
        return found

    def _read(self, ending: str, content: bytes) -> DocumentText:
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        until = time.monotonic() + self._seconds
        answer = None
        with suppress(BrokenPipeError):
            _send(process.stdin, json.dumps({"ending": ending}).encode())
            _send(process.stdin, content)
            answer = _received(process.stdout, until)
        if answer is not None:
            return DocumentText(**json.loads(answer))
        late = time.monotonic() >= until
        self._stop()
        if late:
            return DocumentText("", "file_too_large", f"it takes longer than {self._seconds:g} seconds to read")
        return DocumentText("", "file_damaged", f"reading it needs more than {self._memory >> 20:,} MB, or breaks off")

    def _started(self) -> subprocess.Popen[bytes]:
        limits = [str(self._memory), str(int(self._seconds) + 5)]
        root = Path(__file__).parents[4]
        process = subprocess.Popen(
            [sys.executable, "-m", "rubricflow.tasks.core.store.document_reader", *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=root,
            env={name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH", "HOME")},
        )
        assert process.stdout is not None
        if _received(process.stdout, time.monotonic() + SECONDS) != b"ready":
            process.kill()
            process.wait()
            raise UserError(f"the process that reads documents does not start: {sys.executable} -m {__spec__.name}")
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_HEAD))
    pipe.write(message)
    pipe.flush()


def _received(pipe: IO[bytes], until: float) -> bytes | None:
    """A message; None where there is none in time, or the process ends before."""
    received = b""
    while len(received) < _HEAD or len(received) < _HEAD + int.from_bytes(received[:_HEAD]):
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        block = os.read(pipe.fileno(), 1 << 20) if ready else b""
        if not block:
            return None
        received += block
    return received[_HEAD:]


def _serve(memory: int, seconds: int) -> None:
    """Answers messages until there are no more. In this process strangers' documents are read."""
    from rubricflow.tasks.core.store.documents import document_text
    from rubricflow.tasks.core.store.pdf import UnreadableDocument

    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with suppress(ValueError, OSError):  # macOS knows no limit of this kind
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    _send(replies, b"ready")
    while head := requests.read(_HEAD):
        ending = json.loads(requests.read(int.from_bytes(head)))["ending"]
        content = requests.read(int.from_bytes(requests.read(_HEAD)))
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
            words = " ".join(str(error).split())[:120]
            answer = DocumentText("", "file_damaged", f"{_DAMAGED}: {words}" if words.isprintable() else _DAMAGED)
        signal.alarm(0)
        _send(replies, json.dumps(answer._asdict()).encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
