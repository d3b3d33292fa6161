"""Files on this machine: written whole or not at all, put aside for a while, handed out to people; and digests, with
which a JSON file is sealed."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.errors import InputError, StoreError, UserError
from rubricflow.tasks.core.text.digest import text_digest

Content = bytes | memoryview
SEAL = "seal"
ASIDE = ".aside"
HANDED_OUT = "handed_out.json"
"""In the warehouse: file → SHA-256 of its content when it was handed out."""


def write_atomically(path: Path, content: Content) -> None:
    """Write a file so that it is either the old one or the new one, never half of it; StoreError if it cannot be."""
    try:
        with _temporary(path, content) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_new(path: Path, content: Content) -> bool:
    """Write a file where there is none, whole or not at all; False where there is one. StoreError if it cannot be."""
    try:
        with _temporary(path, content) as temporary:
            os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


def cannot_write(path: Path, error: OSError) -> StoreError:
    """The error about a file that cannot be written."""
    return StoreError(f"cannot write {path}: {error.strerror}; what is finished stays: mend that and start again")


@contextlib.contextmanager
def _temporary(path: Path, content: Content) -> Iterator[Path]:
    """A file of this content in the path's folder, on disk; gone afterwards, unless it was renamed."""
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


def hand_out(root: Path, to: Path, content: bytes, overwrite: bool = False) -> None:
    """Write a file for people, whole or not at all.

    root: the warehouse's folder, which records the file. InputError where another file is there, or the one that was
    written before was changed since, unless it is to be overwritten.
    """
    path = to.resolve()
    record = root / HANDED_OUT
    try:
        written = json.loads(record.read_bytes())
    except (OSError, ValueError):
        written = None
    if not isinstance(written, dict):  # a record that cannot be read protects every file
        written = {}
    try:
        is_ours = overwrite or not path.exists() or written.get(str(path)) == file_digest(path)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if not is_ours:
        rule = "is there already and is not as rubricflow wrote it: your own work may be in it"
        raise InputError(rule, file=to, hint="name another file, or add --overwrite")
    write_atomically(path, content)
    written[str(path)] = hashlib.sha256(content).hexdigest()
    write_atomically(record, json.dumps(written, indent=1).encode())


def named(stage: str) -> Any:  # Prefect's type for it asks for a method that it never calls
    """A name for the task run of a stage, whose parameters hold the `run`: 'judge', or 'judge (resumed)' where the run
    has shards of it already. The parameter `stage` of a task that writes under several names wins."""

    def name(parameters: Record) -> str:
        written = parameters.get("stage") or stage
        return f"{written} (resumed)" if parameters["run"].shards(written) else written

    return name


def file_name(name: str) -> str:
    """An id as a file may be called; with a digest, because two ids may then read the same."""
    readable = re.sub(r"[^\w.-]", "_", name)[:60]
    return f"{readable}-{digest_of(name)[:8]}"


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value, keys sorted."""
    return text_digest(json.dumps(value, sort_keys=True, ensure_ascii=False))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(record: Fields) -> bytes:
    """The record as a JSON file with its seal, a digest of all the rest; ValueError where it has a key of that name."""
    if SEAL in record:
        raise ValueError(f"a record has a key '{SEAL}' of its own")
    content = {**record, SEAL: digest_of(record)}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False).encode()


def unsealed(content: bytes) -> Record:
    """The record of such a file; ValueError where it is no JSON object or is not what was sealed."""
    record = json.loads(content)
    if not isinstance(record, dict) or record.pop(SEAL, None) != digest_of(record):
        raise ValueError("it was changed since it was written")
    return record


@contextlib.contextmanager
def locked(folder: Path, busy: str = "") -> Iterator[None]:
    """While no other process has the lock of this folder, which is made where there is none; that of a killed process
    is free again. busy: what a UserError says where another process has it, which else is waited for. StoreError where
    nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise UserError(busy) from error
        yield


MEMORY = "512MB"
"""What DuckDB may hold for a stage; what more there is it puts aside."""


@contextlib.contextmanager
def aside(root: Path, what: str) -> Iterator[Path]:
    """An empty folder `<root>/.aside/<what>-…` for this process, gone afterwards; StoreError where there can be none.

    Its lock shows that the process lives: the system frees it however the process ends, and `clear` removes the folder.
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
            rule = f"nothing can be put aside in {root / ASIDE}: {error.strerror}; start again then"
            raise StoreError(rule) from error
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
    with contextlib.suppress(OSError):  # there is none, or another process's folder is in it
        (root / ASIDE).rmdir()


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(number)


def pattern(file: Path | str) -> str:
    """The pattern that means this file only: DuckDB reads the names of files as patterns."""
    return glob.escape(str(file))
