"""A cluster of Dask here, a judge's server of a fixed latency, and a study's judging as a process of its own.

Everything is a process, so that each can be killed: python tests/scale/cluster.py FOLDER SERVER [ADDRESS] judges.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests")]
ITEMS, RESPONSES, SHARD = 4, 12, 4
"""Responses of each item; responses of a shard."""
POISON = "this answer ends whoever reads it"
QUIET = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}


class JudgesServer(ThreadingHTTPServer):
    """Answers every request after the same time, and counts how often each was asked."""

    daemon_threads = True

    def __init__(self, latency_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.latency_s, self.asked, self.poison = latency_s, Counter[str](), False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Answer(BaseHTTPRequestHandler):
    server: JudgesServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.poison and POISON.encode() in body:
            os.kill(_process_of(self.client_address[1]), signal.SIGKILL)
            return
        time.sleep(self.server.latency_s)
        quote = [{"unit": "s1", "quote": "plants need light"}]
        message = {"content": json.dumps({"decisions": {"P": {"evidence": quote, "level": 1}}})}
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "model": "m"}
        content = json.dumps(answer | {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}).encode()
        with suppress(ConnectionError):  # who asked was killed meanwhile
            self._send(content)
        self.server.asked[hashlib.sha256(body).hexdigest()] += 1

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _process_of(port: int) -> int:
    """Who has this port of this machine."""
    import psutil

    return next(c.pid for c in psutil.net_connections("tcp4") if c.laddr and c.laddr.port == port and c.pid)


class DaskCluster:
    """A scheduler and so many workers, each restarted by its nanny."""

    def __init__(self, workers: int, port: int | None = None) -> None:
        self.port = port or _free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = _started("dask_scheduler", "--port", str(self.port), "--no-dashboard")
        rest = ("--nthreads", "1", "--nworkers", str(workers), "--no-dashboard", "--memory-limit", "0")
        self.workers = _started("dask_worker", self.address, *rest)
        self._wait(workers)

    def _wait(self, workers: int) -> None:
        from distributed import Client

        with Client(self.address, timeout=120) as client:
            client.wait_for_workers(workers, timeout=120)
            self.pids = sorted(client.run(os.getpid).values())

    def end(self) -> None:
        for process in (self.workers, self.scheduler):
            process.terminate()
            process.wait(30)


def _started(module: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{module}", *words]
    environment = os.environ | QUIET | {"PYTHONPATH": f"{HOUSE}:{HOUSE / 'tests'}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Driver:
    """A process that judges the study in a folder."""

    def __init__(self, folder: Path, server: str, address: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, __file__, str(folder), server, *([address] if address else [])]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | QUIET
        )
        self.folder = folder

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> tuple[int, str, list[str]]:
        """Exit code, what it said, and the digests of its tables."""
        said, _ = self._process.communicate(timeout=400)
        digests = re.findall(r"^digest (\w+)$", said, re.MULTILINE)
        return self._process.returncode, said, digests

    def marks(self) -> int:
        """Shards that are judged."""
        return len(list(self.folder.glob("house/run/_done/judge/*.json")))

    def wait_for(self, marks: int) -> None:
        """Until so many shards are judged, or it has ended."""
        while self.marks() < marks and self._process.poll() is None:
            time.sleep(0.05)


def judge_study(folder: str, server: str, address: str | None = None) -> None:
    """Judge in this process, or on the cluster at the address; prints the digests."""
    from builders.bundles import bundle, criterion
    from builders.cases import to_judge

    from tasks.contracts.errors import UserError
    from tasks.contracts.settings.engine import Engine
    from tasks.contracts.settings.judge import Judge
    from tasks.contracts.settings.placement import HERE, Placement
    from tasks.judge import task as door
    from tasks.judge.shards import shards
    from tasks.store.warehouse import Warehouse

    door.shards = lambda counts: shards(counts, SHARD)  # type: ignore[assignment]
    run = Warehouse.open(Path(folder) / "house").run("run")
    words: dict[str, dict[str, str]] = {
        f"i{item}": {f"i{item}-{n:02d}": f"plants need light {item} {n}" for n in range(RESPONSES)}
        for item in range(ITEMS)
    }
    words["i1"]["i1-05"] = f"plants need light, and {POISON}"
    given: Any = to_judge(run, bundle(criterion("P", text="light")), words)
    engine = Engine(model="m", urls=(server,), concurrency=64, structured=False)
    plan = Judge(protocol="rulers", backend="openai", engine=engine)
    placement = Placement(engine="dask", address=address) if address else HERE
    try:
        judged = door.judge.fn(run, plan, Path(folder), *given, placement=placement)
    except UserError as error:
        print(f"rubricflow: {error}")
        raise SystemExit(2) from None
    for ref in judged:
        print("digest", ref.digest)


if __name__ == "__main__":
    judge_study(*sys.argv[1:])
