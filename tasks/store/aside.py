"""Folders in the warehouse for what is put aside for a while; what a killed process left there goes with the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tasks.contracts.errors import StoreError

ASIDE = ".aside"


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
