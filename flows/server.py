"""The Prefect server of flows that are told of none: it ends with the process that started it, however that ends.

Prefect starts a temporary server for such flows, and stops it at a clean exit alone: a killed process leaves it and its
port behind. This one looks after its parent itself (flows/served.py). Its database is its own, one for each version of
Prefect, since an older version cannot open what a newer one migrated.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.contracts.errors import StoreError

if TYPE_CHECKING:
    from prefect.server.api.server import SubprocessASGIServer

_SCRIPT = Path(__file__).with_name("served.py")
_DATABASE = "PREFECT_SERVER_DATABASE_"
_starting = threading.Lock()


def own_server() -> None:
    """From now on the server that Prefect starts for this process is ours; nothing where its settings name one."""
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        from prefect.server.api.server import SubprocessASGIServer

        SubprocessASGIServer.start = _start  # type: ignore[method-assign, assignment]


def _start(server: SubprocessASGIServer, timeout: int | None = None) -> None:
    """Starts the server unless it runs, in at most `timeout` seconds; StoreError where it does not come up."""
    from prefect.settings import PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS

    with _starting:
        if server.running:
            return
        settings, folder = _settings()
        words = [sys.executable, "-P", str(_SCRIPT), str(os.getpid()), str(server.port or 0), str(folder)]
        # In a session of its own: Ctrl-C in a terminal is for the parent, who has something to tell the server then.
        process = subprocess.Popen(
            words, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        server.server_process, server.running = process, True
        atexit.register(server.stop)
        port = _first_line(process, timeout or PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value())
        if not port:
            server.stop()
            raise StoreError(f"Prefect's temporary server, which keeps its files in {folder}, did not start: see above")
        server.port = int(port)


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """What a process says first; nothing where it ends before, or says nothing in time."""
    assert process.stdout is not None
    with process.stdout as said:
        return said.readline() if select.select([said], [], [], seconds)[0] else b""


def _settings() -> tuple[dict[str, str], Path]:
    """The server's environment, and the folder of what is its own: the database too, where the settings name none."""
    import prefect
    from prefect.settings import get_current_settings

    current = get_current_settings()
    folder = current.home / "rubricflow" / f"prefect-{prefect.__version__}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}; PREFECT_HOME names another home") from error
    named = current.to_environment_variables(exclude_unset=True)
    own = {
        f"{_DATABASE}CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        "PREFECT_SERVER_MEMO_STORE_PATH": str(folder / "memo_store.toml"),
    }
    has_database = any(f"{_DATABASE}{part}" in named for part in ("CONNECTION_URL", "HOST", "NAME"))
    return {**os.environ, **({} if has_database else own), **named}, folder
