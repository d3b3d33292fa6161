"""Files on this machine, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from tasks.contracts.errors import StoreError

Content = bytes | memoryview


def write_atomically(path: Path, content: Content) -> None:
    """Write a file so that it is either the old one or the new one, never half of it; StoreError if it cannot be."""
    try:
        with _beside(path, content) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_new(path: Path, content: Content) -> bool:
    """Write a file where there is none, whole or not at all; False where there is one. StoreError if it cannot be."""
    try:
        with _beside(path, content) as temporary:
            os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


def cannot_write(path: Path, error: OSError) -> StoreError:
    """What to say where a file cannot be written."""
    return StoreError(f"cannot write {path}: {error.strerror}; what is finished stays: mend that and start again")


@contextlib.contextmanager
def _beside(path: Path, content: Content) -> Iterator[Path]:
    """A file of this content beside the path, on disk; gone afterwards, unless it took another name."""
    # A name of its own for every write: threads of one process, and machines that share a disk, may write one path.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
