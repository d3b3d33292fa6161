"""Flows that are told of no Prefect server: theirs ends with them, and has a database of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import prefect
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_SERVER_DATABASE_CONNECTION_URL, temporary_settings

from flows import ending, server
from tasks.contracts.errors import StoreError

FLOWS = Path(server.__file__).parent
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-P", *sys.argv[1].replace("PARENT", str(os.getpid())).split()])
print(child.pid, flush=True)
child.wait()
"""


def test_each_version_of_prefect_has_a_database_of_its_own(tmp_path: Path) -> None:
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_SERVER_DATABASE_CONNECTION_URL}):
        settings, folder = server._settings()
    assert folder == tmp_path / "rubricflow" / f"prefect-{prefect.__version__}"
    assert settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == f"sqlite+aiosqlite:///{folder}/prefect.db"
    assert settings["PREFECT_SERVER_MEMO_STORE_PATH"] == f"{folder}/memo_store.toml"


def test_a_database_that_the_settings_name_is_used(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/mine.db"
    with temporary_settings({PREFECT_HOME: tmp_path, PREFECT_SERVER_DATABASE_CONNECTION_URL: url}):
        settings, _ = server._settings()
    assert settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == url
    assert "PREFECT_SERVER_MEMO_STORE_PATH" not in settings


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "rubricflow").write_text("in the way")
    with temporary_settings({PREFECT_HOME: tmp_path}), pytest.raises(StoreError, match="PREFECT_HOME names another"):
        server._settings()


def test_a_server_that_is_named_stays_who_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.server.api.server import SubprocessASGIServer

    monkeypatch.setattr(SubprocessASGIServer, "start", "Prefect's own")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}):
        server.own_server()
    assert SubprocessASGIServer.start == "Prefect's own"  # type: ignore[comparison-overlap]


def _gone(ready: Callable[[], bool], seconds: float = 20) -> bool:
    give_up = time.monotonic() + seconds
    while not ready() and time.monotonic() < give_up:
        time.sleep(0.02)
    return ready()


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
def test_a_server_that_has_not_started_ends_with_its_parent(tmp_path: Path) -> None:
    number = _child_of_a_killed_parent(f"{FLOWS / 'served.py'} PARENT 0 {tmp_path}")
    assert _gone(lambda: _is_gone(number))


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks at processes by /proc")
def test_a_temporary_folder_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "own" / "deep").mkdir(parents=True)
    number = _child_of_a_killed_parent(f"{FLOWS / 'sweep.py'} PARENT {tmp_path / 'own'}")
    assert _gone(lambda: _is_gone(number) and not (tmp_path / "own").exists())


def test_servers_that_start_at_once_in_a_new_home_migrate_one_after_the_other(tmp_path: Path) -> None:
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_SERVER_DATABASE_CONNECTION_URL}):
        settings, folder = server._settings()
    words = [sys.executable, "-P", str(FLOWS / "served.py"), str(os.getpid()), "0", str(folder)]
    servers = [subprocess.Popen(words, env=settings, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        assert all(int(server._first_line(one, 120)) for one in servers)
    finally:
        for one in servers:
            one.kill()
            one.wait()


def test_a_server_that_cannot_start_is_no_reason_to_wait(tmp_path: Path) -> None:
    (tmp_path / "prefect.db").write_text("no database, this is")
    url = f"sqlite+aiosqlite:///{tmp_path}/prefect.db"
    script = (
        "from prefect import flow\nfrom flows.server import own_server\nown_server()\nflow(lambda: None, name='idle')()"
    )
    named = {"PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_DATABASE_CONNECTION_URL": url, "PREFECT_API_URL": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=FLOWS.parent, env={**os.environ, **named}, capture_output=True, text=True
    )
    assert "StoreError: Prefect's temporary server" in done.stderr


def test_a_signal_is_raised_once_and_ends_the_process_then() -> None:
    with ending.stoppable():
        with pytest.raises(ending.Stopped) as stopped:
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert stopped.value.signal is signal.SIGTERM


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending.stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_has_a_temporary_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with ending.own_temporary_folder():
        file = Path(tempfile.mkstemp()[1])
        assert file.parent.parent == tmp_path
        assert os.environ["TMPDIR"] == str(file.parent)
    assert (os.environ["TMPDIR"], list(tmp_path.iterdir())) == (str(tmp_path), [])


def test_a_temporary_directory_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with pytest.raises(StoreError, match="TMPDIR names another"), ending.own_temporary_folder():
        pass
