"""Clusters of Dask and Ray here, a judge's server of a fixed latency, and a study's judging as a process of its own.

Everything is a process, so that each can be killed:
python tests/scale/cluster.py FOLDER SERVER ANSWERS [ENGINE ADDRESS].
"""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests")]
ITEMS, RESPONSES, SHARD = 4, 12, 4
"""Responses of each item; responses of a shard."""
CALLS = 32
"""Calls that the judge's server takes at once."""
POISON = "this answer ends whoever reads it"
AS_WORKER = ("--nthreads", "1", "--no-dashboard", "--memory-limit", "0")
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PRELOAD": "rubricflow.tasks.grading.judge.task",  # as the guide says
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
}


def judged(body: dict[str, Any]) -> object:
    """What a judge says of every answer."""
    return {"decisions": {"P": {"evidence": [{"unit": "s1", "quote": "plants need light"}], "level": 1}}}


class JudgesServer(ThreadingHTTPServer):
    """Answers every request after the same time, and counts how often each was asked."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, latency_s: float, says: Callable[[dict[str, Any]], object] = judged) -> None:
        """says: the artifact that a request's body gets."""
        super().__init__(("127.0.0.1", 0), _Answer)
        self.latency_s, self.says, self.asked, self.poison = latency_s, says, Counter[str](), False
        self.first_s, self.last_s = math.inf, 0.0
        """By the monotonic clock, when the first request came and the last reply went."""
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
        self.server.first_s = min(self.server.first_s, time.monotonic())
        time.sleep(self.server.latency_s)
        message = {"content": json.dumps(self.server.says(json.loads(body)))}
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "model": "m"}
        content = json.dumps(answer | {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}).encode()
        with suppress(ConnectionError):  # who asked was killed meanwhile
            self._send(content)
        self.server.last_s = time.monotonic()
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


class Address(NamedTuple):
    """Where a driver finds a cluster."""

    engine: str
    address: str


KNOWN = """
import ray, sys, time
while not ray.is_initialized():  # its head may answer before it can be used
    try:
        ray.init(sys.argv[1])
    except Exception:
        time.sleep(1)
while ray.cluster_resources().get("CPU", 0) < int(sys.argv[2]):
    time.sleep(.5)
"""


class DaskCluster:
    """A scheduler and so many workers, each restarted by its nanny."""

    engine = "dask"

    def __init__(self, workers: int, port: int | None = None) -> None:
        self.port = port or _free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = _started("distributed.cli.dask_scheduler", "--port", str(self.port), "--no-dashboard")
        self.start_workers(workers)

    def start_workers(self, workers: int) -> None:
        self.nannies = _started("distributed.cli.dask_worker", self.address, "--nworkers", str(workers), *AS_WORKER)
        self.pids = self._pids_of(workers)

    def join(self, workers: int, **environment: str) -> subprocess.Popen[bytes]:
        """One more machine, with an environment of its own; workers: how many there are then."""
        machine = _started("distributed.cli.dask_worker", self.address, *AS_WORKER, **environment)
        self._pids_of(workers)
        return machine

    def _pids_of(self, workers: int) -> list[int]:
        from distributed import Client

        with Client(self.address, timeout=120) as client:
            client.wait_for_workers(workers, timeout=120)
            return sorted(client.run(os.getpid).values())

    def kill_worker(self) -> None:
        os.kill(self.pids[0], signal.SIGKILL)

    def kill_workers(self) -> None:
        """All of them, with the nannies that would start others."""
        kill_with_children(self.nannies)

    def kill_head(self) -> None:
        self.scheduler.kill()

    def end(self) -> None:
        for process in (self.nannies, self.scheduler):
            process.terminate()
            process.wait(30)


class RayCluster:
    """A head that works on nothing, and so many nodes of one processor each."""

    engine = "ray"

    def __init__(self, workers: int) -> None:
        port, self.client_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        ports = f"--port={port}", f"--ray-client-server-port={self.client_port}"
        head = ("--head", *ports, "--num-cpus=0", "--include-dashboard=false", "--node-ip-address=127.0.0.1")
        self.head = _started("ray.scripts.scripts", *self._as_node(), *head)
        _wait_for(lambda: _answers(port))
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.start_workers(workers)

    def start_workers(self, workers: int) -> None:
        for _ in range(workers):  # one by one: two that start at once may take the same ports
            self.nodes.append(self.join(len(self.nodes) + 1))

    def join(self, workers: int, **environment: str) -> subprocess.Popen[bytes]:
        """One more machine, with an environment of its own; workers: how many there are then."""
        words = *self._as_node(), f"--address={self.address}", "--num-cpus=1"
        machine = _started("ray.scripts.scripts", *words, **environment)
        wait = [sys.executable, "-c", KNOWN, self.address, str(workers)]
        subprocess.run(wait, env=os.environ | QUIET, check=True, timeout=300, capture_output=True)
        return machine

    @staticmethod
    def _as_node() -> list[str]:
        """A node waits 15 s for its agents to say at which ports they are, which is too little on a busy machine."""
        agents = ("dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent", "metrics-export")
        return ["start", "--block", "--disable-usage-stats", *(f"--{agent}-port={_free_port()}" for agent in agents)]

    def kill_worker(self) -> None:
        """A process that works on a piece."""
        _wait_for(self._workers)
        self._workers()[0].kill()

    def kill_node(self) -> None:
        _named_below(self.nodes.pop(), "raylet")[0].kill()

    def kill_workers(self) -> None:
        while self.nodes:
            kill_with_children(self.nodes.pop())

    def kill_head(self) -> None:
        _named_below(self.head, "gcs_server")[0].kill()

    def end(self) -> None:
        self.kill_workers()
        kill_with_children(self.head)

    def _workers(self) -> list[Any]:
        workers = [worker for node in self.nodes for worker in _named_below(node, "ray::")]
        return [worker for worker in workers if "::IDLE" not in worker.cmdline()[0]]


CLUSTERS: dict[str, type[DaskCluster] | type[RayCluster]] = {"dask": DaskCluster, "ray": RayCluster}
"""Engine → its cluster on this machine."""


def _started(module: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, *words]
    own = os.environ | QUIET | {"PYTHONPATH": f"{HOUSE}:{HOUSE / 'tests'}"} | environment
    nowhere, code = (
        subprocess.DEVNULL,
        own["PYTHONPATH"].partition(":")[0],
    )  # `-m` looks into the working directory first
    process = subprocess.Popen(command, env=own, cwd=code, stdout=nowhere, stderr=nowhere)
    atexit.register(kill_with_children, process)  # where a trial ends early, too
    return process


def _named_below(process: subprocess.Popen[bytes], name: str) -> list[Any]:
    """The processes that this one has started, by their name or the name of their program."""
    import psutil

    below = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                words = child.cmdline() or [""]
                if child.name().startswith(name) or Path(words[0]).name.startswith(name):
                    below.append(child)
    return below


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    children = _named_below(process, "")
    process.kill()
    for child in children:
        with suppress(Exception):  # it went with the one that started it
            child.kill()
    process.wait(30)


def _wait_for(is_so: Callable[[], object], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("the cluster did not start")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Driver:
    """A process that judges the study in a folder, or in a bucket where the environment names one."""

    def __init__(
        self, folder: Path, server: str, cluster: DaskCluster | RayCluster | Address | None = None, answers: int = 0
    ) -> None:
        """answers: how many to each question, judged by the plain command; 0: a few in small shards."""
        folder.mkdir(parents=True, exist_ok=True)
        place = [cluster.engine, cluster.address] if cluster else []
        words = [sys.executable, __file__, str(folder), server, str(answers), *place]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | QUIET
        )
        self.folder = folder

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> tuple[int, str, list[str]]:
        """Exit code, what it said, and the digests of its tables."""
        said, _ = self._process.communicate(timeout=900)
        digests = re.findall(r"^digest (\w+)$", said, re.MULTILINE)
        return self._process.returncode, said, digests

    def marks(self) -> int:
        """Shards that are judged."""
        if bucket := os.environ.get("RUBRICFLOW_WAREHOUSE"):
            from rubricflow.tasks.core.store.objects import Bucket

            return len(Bucket(bucket).names("run/_done/judge"))
        return len(list(self.folder.glob("house/run/_done/judge/*.json")))

    def wait_for(self, marks: int) -> None:
        """Until so many shards are judged, or it has ended."""
        while self.marks() < marks and self._process.poll() is None:
            time.sleep(0.05)


def judge_study(folder: str, server: str, answers: str, engine: Any = None, address: str | None = None) -> None:
    """Judge in this process, or on the cluster at the address; prints the digests."""
    from builders.bundles import bundle, criterion
    from builders.cases import to_judge

    from rubricflow.tasks.core.contracts.errors import UserError
    from rubricflow.tasks.core.contracts.settings.engine import HERE, Engine, Placement
    from rubricflow.tasks.core.contracts.settings.judge import Judge
    from rubricflow.tasks.core.store.warehouse import Warehouse
    from rubricflow.tasks.grading.judge import task as door

    if answers == "0":
        door.SHARD = SHARD
    run = Warehouse.open(os.environ.get("RUBRICFLOW_WAREHOUSE") or Path(folder) / "house").run("run")
    words: dict[str, dict[str, str]] = {
        f"i{item}": {f"i{item}-{n:02d}": f"plants need light {item} {n}" for n in range(int(answers) or RESPONSES)}
        for item in range(ITEMS)
    }
    words["i1"]["i1-05"] = f"plants need light, and {POISON}"
    given: Any = to_judge(run, bundle(criterion("P", text="light")), words)
    # No call waits for the limit, but each is counted in the ledger, as those of hosted models are.
    model = Engine(model="m", urls=(server,), concurrency=CALLS, structured=False, requests_per_minute=60_000)
    plan = Judge(protocol="rulers", backend="openai", engine=model)
    placement = Placement(engine=engine, address=address) if engine else HERE
    try:
        judged = door.judge.fn(run, plan, Path(folder), *given, placement=placement)
    except UserError as error:
        print(f"rubricflow: {error}")
        raise SystemExit(2) from None
    for ref in filter(None, judged):
        print("digest", ref.digest)


if __name__ == "__main__":
    judge_study(*sys.argv[1:])
