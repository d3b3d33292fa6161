"""A Prefect server in the process of this script, until its parent ends:

    python -P flows/served.py PARENT PORT FOLDER

PARENT is the parent's process id. On PORT, or a free one for 0, it listens on this machine alone; once it answers, it
prints the port. FOLDER holds the lock under which servers start one after the other: each migrates the database.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from pathlib import Path

LOOK_S = 0.1
"""How often it looks whether the parent is there."""


def end_with(parent: int) -> None:
    """From now on this process ends when its parent does, at once: a database of SQLite stands that."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(port: int, folder: Path) -> None:
    """Serves until it is told to stop."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            with (folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                await super().startup(sockets)
            if self.started:
                os.write(1, f"{listening.getsockname()[1]}\n".encode())
                os.dup2(2, 1)  # nobody reads on

    os.environ |= {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    listening = socket.create_server(("127.0.0.1", port))
    create = "prefect.server.api.server:create_app"
    Server(uvicorn.Config(create, factory=True, log_level="error", lifespan="on")).run([listening])


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    serve(int(sys.argv[2]), Path(sys.argv[3]))
