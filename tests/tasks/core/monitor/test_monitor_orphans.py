"""What a command started ends with it, however the command ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.waiting import until

from rubricflow.tasks.core.monitor import orphans

SCRIPT = Path(orphans.__file__)
PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
watcher = subprocess.Popen([sys.executable, "-I", "-S", {str(SCRIPT)!r}, str(os.getpid()), str(child.pid)])
print(child.pid, watcher.pid, flush=True)
line = sys.stdin.readline()
child.kill()
child.wait()
watcher.wait(300)
print("both are gone", flush=True)
"""


def is_there(process: int) -> bool:
    """Whether it runs; a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_leaves_nothing(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdout
        child, watcher = map(int, parent.stdout.readline().split())
        assert is_there(child)
        parent.send_signal(how)
        parent.wait()
        until(lambda: not is_there(child) and not is_there(watcher))


def test_the_watcher_ends_with_what_it_watches() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdout
        parent.stdout.readline()
        assert parent.communicate("end\n")[0] == "both are gone\n"
