"""What a command does at its end: signals, and its temporary folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from builders.waiting import until

from rubricflow.flows import command_line
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.monitor import orphans

HOUSE = Path(__file__).resolve().parents[2]
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-P", *sys.argv[1].replace("PARENT", str(os.getpid())).split()])
print(child.pid, flush=True)
child.wait()
"""
SIGNALLED = """
import os, signal
from rubricflow.flows import command_line
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with command_line.stoppable():
    os.kill(os.getpid(), signal.SIGHUP)
    try:
        signal.raise_signal(signal.SIGTERM)
    except command_line.Stopped as stopped:
        assert stopped.signal is signal.SIGTERM
        print("raised", flush=True)
    signal.raise_signal(signal.SIGTERM)
"""


def _child_of_a_killed_parent(words: str) -> int:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, words], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    return number


def _is_gone(number: int) -> bool:
    state = Path(f"/proc/{number}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks at processes by /proc")
def test_a_temporary_folder_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "own" / "deep").mkdir(parents=True)
    number = _child_of_a_killed_parent(f"{orphans.__file__} PARENT {tmp_path / 'own'} ended")
    until(lambda: _is_gone(number) and not (tmp_path / "own").exists())


def test_a_signal_is_raised_once_and_ends_the_process_then_and_stays_ignored_where_it_was() -> None:
    told = subprocess.run([sys.executable, "-c", SIGNALLED], cwd=HOUSE, capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr) == (-signal.SIGTERM, "raised\n", "")


def test_a_command_has_a_temporary_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with command_line.own_temporary_folder():
        file = Path(tempfile.mkstemp()[1])
        assert file.parent.parent == tmp_path
        assert os.environ["TMPDIR"] == str(file.parent)
    assert (os.environ["TMPDIR"], list(tmp_path.iterdir())) == (str(tmp_path), [])


def test_a_temporary_directory_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with pytest.raises(StoreError, match="TMPDIR names another"), command_line.own_temporary_folder():
        pass
