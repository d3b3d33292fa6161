"""How a command ends: with its message, stopped by a signal as by Ctrl-C, and with nothing left in the temporary
directory."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from rubricflow.tasks.core.contracts.errors import StoreError, UserError

SUDDEN_END = (
    "rubricflow: the command ended without finishing: it was killed, or ran out of memory, or lost its cluster (where "
    "the lines above speak of GCS, start Ray's head again: ray start --head). What is finished stays, and the same "
    "command goes on"
)


@contextmanager
def for_people() -> Iterator[None]:
    """A UserError ends the command with its message and exit code 2, a signal with a message and by itself."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        with stoppable(), own_temporary_folder():
            yield
    except UserError as error:
        print(f"{_new_line()}rubricflow: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        by = stop.signal if isinstance(stop, Stopped) else signal.SIGINT
        words = f"stopped by {by.name}; what is finished stays, the same command goes on"
        print(f"{_new_line()}rubricflow: {words}", file=sys.stderr)
        end_by(by)


def _new_line() -> str:
    """In a terminal: what is done may stand on the line."""
    return "\r\x1b[K" if sys.stderr.isatty() else ""


class Stopped(KeyboardInterrupt):
    """A signal that wants the process to end."""

    def __init__(self, by: signal.Signals) -> None:
        self.signal = by
        super().__init__(by.name)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and a closed terminal raise `Stopped` where they would end the process without a word; twice they do."""
    ends = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # Python gives signals to that one alone
        numbers = []

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Stopped(signal.Signals(number))

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def end_by(one: signal.Signals) -> NoReturn:
    """Ends this process by a signal, as whoever sent it expects (a shell says 128 and its number), after what was to be
    done at the exit. Threads that wait for an answer are not waited for."""
    signal.signal(one, signal.SIG_DFL)  # so that the same signal again ends it at once
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os.kill(os.getpid(), one)
    raise AssertionError("a signal that is neither caught nor ignored ends a process")


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """What this process and its children put into the temporary directory goes into a folder there, which is removed
    when the process ends, however it ends: a second process waits for that, and says what to do after a sudden end.
    StoreError where there can be none."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    try:
        folder = Path(tempfile.gettempdir(), f"rubricflow-{secrets.token_hex(8)}")
        # A signal to all processes of a terminal is not for the one that removes the folder.
        words = [sys.executable, "-I", "-S", str(Path(__file__).with_name("sweep.py")), str(os.getpid()), str(folder)]
        sweeper = subprocess.Popen(
            [*words, SUDDEN_END], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(f"no temporary directory can be written ({error}); TMPDIR names another") from error
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        sweeper.kill()
        sweeper.wait()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("TMPDIR")
        os.environ |= {"TMPDIR": before[0]} if before[0] else {}
        tempfile.tempdir = before[1]
