"""The real command, stopped in some way at some moment, and what is left of it: processes, ports, temporary files.

Every process that descends from the command carries a mark in its environment; its temporary directory is its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[2]
GRADE = [sys.executable, "-m", "rubricflow.flows.cli", "grade"]
GONE_S = 120.0
"""After how long nothing may be left."""


class Left(NamedTuple):
    """What a stopped command left behind."""

    what: str
    code: int
    before: list[str]
    """Command lines of its processes when it was stopped."""
    processes: list[str]
    """Of these, those that are still there."""
    ports: list[int]
    """That they listened on, and that are still taken."""
    files: list[str]
    """In the temporary directory."""
    said: str

    def nothing(self) -> bool:
        """Whether nothing is left, and it said why it ended where it could."""
        told = self.code == -signal.SIGKILL or "rubricflow: stopped by SIG" in self.said
        return told and not (self.processes or self.ports or self.files)


class Command:
    """A command in a session, a temporary directory and an environment of its own."""

    def __init__(self, folder: Path, words: Sequence[str], home: Path) -> None:
        """home: of Prefect."""
        folder.mkdir(parents=True)
        self.temporary, self.log, self.mark = folder / "tmp", folder / "log", f"LEFT_BY={folder}"
        self.temporary.mkdir()
        own = {"TMPDIR": str(self.temporary), "PREFECT_HOME": str(home), "LEFT_BY": str(folder)}
        with self.log.open("w") as log:
            env, fresh = {**os.environ, **own}, {"start_new_session": True, "preexec_fn": _heed_signals}
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=ROOT, env=env, **fresh)

    def processes(self) -> list[psutil.Process]:
        """It, and all that descend from it, whoever their parent is now."""
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                marked = process.environ().get("LEFT_BY") == self.mark.partition("=")[2]
                alive += [process] if marked and process.status() != psutil.STATUS_ZOMBIE else []
        return alive

    def until(self, ready: Callable[[], object], seconds: float = 300) -> None:
        """Waits for something; RuntimeError where the command ends before, or it takes too long."""
        give_up = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{self.log}: the command never came so far: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, what: str, send: Callable[[int], object]) -> Left:
        """Stops it by what `send` does to its process id, and looks what is left."""
        self.process.send_signal(signal.SIGSTOP)  # so that the moment does not pass while we look
        before = self.processes()
        ports = [port for process in before for port in _ports(process)]
        lines = [" ".join(_words(process)) for process in before]
        send(self.process.pid)
        self.process.send_signal(signal.SIGCONT)
        code = self.process.wait()
        give_up = time.monotonic() + GONE_S
        while any(self._left(ports)) and time.monotonic() < give_up:
            time.sleep(0.05)
        processes, taken, files = self._left(ports)
        left = Left(
            what=what,
            code=code,
            before=lines,
            processes=[" ".join(_words(process)) for process in processes],
            ports=taken,
            files=files,
            said=self.log.read_text(),
        )
        for process in processes:
            process.kill()
        return left

    def _left(self, ports: list[int]) -> tuple[list[psutil.Process], list[int], list[str]]:
        """Processes, those of the ports that somebody listens on, temporary files."""
        listening = {port for process in psutil.process_iter() for port in _ports(process)}
        files = [str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*")]
        return self.processes(), [port for port in ports if port in listening], files


def _heed_signals() -> None:
    """What runs in the background ignores Ctrl-C, and so would all that it starts."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


def left_in(temporary: Path) -> list[str]:
    """What is in a temporary directory, once the sweeper has had its time."""
    give_up = time.monotonic() + GONE_S
    while (files := [str(path) for path in temporary.rglob("*")]) and time.monotonic() < give_up:
        time.sleep(0.02)
    return files


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _ports(process: psutil.Process) -> list[int]:
    try:
        return [one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []


def _group(number: int) -> None:
    os.killpg(number, signal.SIGKILL)


SENDS: dict[str, Callable[[int], object]] = {
    "SIGKILL": lambda number: os.kill(number, signal.SIGKILL),
    "SIGKILL to its group": _group,
    "SIGTERM": lambda number: os.kill(number, signal.SIGTERM),
    "SIGINT": lambda number: os.kill(number, signal.SIGINT),
    "SIGHUP": lambda number: os.kill(number, signal.SIGHUP),
}


def _while_importing(command: Command, house: Path) -> None:
    # A folder: Python tries its temporary directory with a file that it removes at once.
    command.until(lambda: any(path.is_dir() for path in command.temporary.iterdir()))


def _in_the_flow(command: Command, house: Path) -> None:
    command.until(lambda: list(house.glob("*/_done/ingest/all.json")))


MOMENTS: dict[str, Callable[[Command, Path], None]] = {
    "while it imports": _while_importing,
    "in the flow": _in_the_flow,
}


def stopped(study: Path, folder: Path, send: str, moment: str) -> Left:
    """`rubricflow grade`, stopped so at this moment. `folder` keeps Prefect's home for all of them."""
    what = f"{send} {moment}"
    own = folder / what.replace(" ", "-")
    house = own / "house"
    command = Command(own / "run", [*GRADE, str(study), "--warehouse", str(house)], folder / "prefect")
    MOMENTS[moment](command, house)
    return command.stop(what, SENDS[send])
