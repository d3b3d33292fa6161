"""Files on this machine, written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.store.digest import digest_of

ASIDE = ".aside"


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


# What a task run is called where people watch it, and a file that is named for an id.


def named(stage: str) -> Any:  # Prefect's type for it asks for a method that it never calls
    """Names the task run of a stage, whose parameters hold the `run`, by what the run already has of it.

    A task that writes under several names is told its `stage`.
    """

    def name(parameters: dict[str, Any]) -> str:
        written = parameters.get("stage") or stage
        return f"{written} (resumed)" if parameters["run"].shards(written) else written

    return name


def file_name(name: str) -> str:
    """An id as a file may be called; with a digest, because two ids may then read the same."""
    readable = re.sub(r"[^\w.-]", "_", name)[:60]
    return f"{readable}-{digest_of(name)[:8]}"


# Folders in the warehouse for what is put aside for a while; what a killed process left there goes with the next.


@contextlib.contextmanager
def aside(root: Path, what: str) -> Iterator[Path]:
    """An empty folder `<root>/.aside/<what>-…` for this process, gone afterwards; StoreError where there can be none.

    Its lock says that the process lives: the system frees it however the process ends.
    """
    with contextlib.ExitStack() as stack:
        try:
            with _locked(root):
                _clear(root)
                (root / ASIDE).mkdir(exist_ok=True)
                folder = Path(tempfile.mkdtemp(prefix=f"{what}-", dir=root / ASIDE))
                stack.callback(clear, root)
                stack.enter_context(_locked(folder))
        except OSError as error:
            raise StoreError(
                f"nothing can be put aside in {root / ASIDE}: {error.strerror}; start again then"
            ) from error
        yield folder


def clear(root: Path) -> None:
    """Remove what dead processes put aside; where nothing may be written, it stays."""
    if (root / ASIDE).is_dir():
        with contextlib.suppress(OSError), _locked(root):
            _clear(root)


def _clear(root: Path) -> None:
    for folder in (root / ASIDE).glob("*"):
        with contextlib.suppress(BlockingIOError), _locked(folder, fcntl.LOCK_NB):  # held by a living process: it stays
            shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # there is none, or somebody's folder is in it
        (root / ASIDE).rmdir()


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(number)
