"""Faults of a run on the workers of Dask or Ray, each by SIGKILL in the middle; minutes, by hand.

    python tests/scale/worker_faults.py [--engine ray] [FAULT ...]

Prints for each fault how the killed command ended and what of it a user reads, how the same command ended after it,
whether its tables have the digests of a run in one process, and how many requests were asked more than once. Needs the
extra `dask` or `ray`; `ray_client` that of `ray[client]`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import HOUSE, QUIET, Address, DaskCluster, Driver, JudgesServer, RayCluster, kill_with_children

os.environ |= QUIET
LATENCY_S = 0.4
Cluster = DaskCluster | RayCluster
READ = re.compile(r"was lost|is gone|workers left|workers again|is away|^rubricflow: ")
"""Lines that tell of a fault."""


@contextmanager
def prefect_server(folder: Path) -> Iterator[None]:
    """A server for all of them, with a home of its own."""
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    server.start(600)
    os.environ["PREFECT_API_URL"] = server.api_url
    try:
        yield
    finally:
        server.stop()


class Trial:
    """Kills, beside what a run in one process came to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, JudgesServer(LATENCY_S)
        code, said, self.expected = Driver(folder / "here", self.server.url).end()
        assert code == 0, said

    def tell(self, fault: str, first: str, drivers: list[Driver], seconds: Counter[str]) -> None:
        """The commands after the fault, to their ends, and one line."""
        ends = [driver.end() for driver in drivers]
        for code, said, digests in ends:
            self.show(said)
            if code or digests != self.expected:
                print(said[-2000:])
        equal = all(digests == self.expected for *_, digests in ends)
        twice = sum(count > 1 for count in seconds.values())
        asked = len(seconds)
        codes = [code for code, *_ in ends]
        line = f"{fault}: {first}; then exit {codes}, digests equal: {equal}, {asked} asked, {twice} of them twice"
        print(line, flush=True)

    def first(self, driver: Driver) -> str:
        """How a command ended that the fault ended; shows what its user reads."""
        code, said, digests = driver.end()
        self.show(said)
        return f"exit {code}, digests equal: {digests == self.expected}"

    def show(self, said: str) -> None:
        for line in dict.fromkeys(re.sub(r"^\S+ \| .*? - ", "", line) for line in said.splitlines()):
            if READ.search(line):
                print(f"    reads: {line}", flush=True)

    def driver(self, name: str, cluster: Cluster) -> Driver:
        return Driver(self.folder / name, self.server.url, cluster)

    def asked_anew(self) -> Counter[str]:
        self.server.asked = Counter()
        return self.server.asked


def worker_killed(trial: Trial, cluster: Cluster) -> None:
    asked, driver = trial.asked_anew(), trial.driver("worker", cluster)
    driver.wait_for(2)
    cluster.kill_worker()
    trial.tell("worker killed", "the command goes on", [driver], asked)


def driver_killed(trial: Trial, cluster: Cluster) -> None:
    asked, driver = trial.asked_anew(), trial.driver("driver", cluster)
    driver.wait_for(3)
    driver.kill()
    code, *_ = driver.end()
    trial.tell("driver killed", f"exit {code}", [trial.driver("driver", cluster)], asked)


def two_drivers(trial: Trial, cluster: Cluster) -> None:
    asked = trial.asked_anew()
    trial.tell("two drivers of one study", "side by side", [trial.driver("two", cluster) for _ in range(2)], asked)


def mark_lost(trial: Trial, cluster: Cluster) -> None:
    """A shard whose worker died between its files and its mark."""
    asked = trial.asked_anew()
    marks = sorted((trial.folder / "driver" / "house" / "run" / "_done" / "judge").glob("*.json"))
    marks[1].unlink()
    trial.tell("killed between file and mark", "its mark is not there", [trial.driver("driver", cluster)], asked)


def preempted(trial: Trial, cluster: Cluster) -> None:
    """A machine that is told, two seconds before its end, that it will be taken away."""
    drain = trial.folder / "drain"
    asked, machine = trial.asked_anew(), cluster.join(3, RUBRICFLOW_DRAIN=str(drain))
    driver = trial.driver("preempted", cluster)
    driver.wait_for(3)
    drain.touch()
    time.sleep(2)
    machine.send_signal(signal.SIGTERM)
    time.sleep(1)
    kill_with_children(machine)
    trial.tell("a machine preempted", "the command goes on", [driver], asked)


def terminated(trial: Trial, cluster: Cluster) -> None:
    """A machine that is shut down: SIGTERM, and nothing before it."""
    asked, machine = trial.asked_anew(), cluster.join(3)
    driver = trial.driver("terminated", cluster)
    driver.wait_for(3)
    machine.send_signal(signal.SIGTERM)
    trial.tell("a machine shut down by SIGTERM", "the command goes on", [driver], asked)
    kill_with_children(machine)


def other_version(trial: Trial, cluster: Cluster) -> None:
    """A machine whose code differs by a comment."""
    other = trial.folder / "other"
    for part in ("rubricflow", "flows", "tasks", "sql", "data/demo"):
        shutil.copytree(HOUSE / part, other / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "tasks/core/text/digest.py").open("a") as file:
        file.write("# another version\n")
    asked, machine = trial.asked_anew(), cluster.join(3, PYTHONPATH=f"{other}:{HOUSE / 'tests'}")
    first = trial.first(trial.driver("version", cluster))
    machine.terminate()
    machine.wait(30)
    kill_with_children(machine)
    trial.tell("another version on one machine", first, [trial.driver("version", cluster)], asked)


def poison_shard(trial: Trial, cluster: Cluster) -> None:
    asked, trial.server.poison = trial.asked_anew(), True
    first = trial.first(trial.driver("poison", cluster))
    trial.server.poison = False
    trial.tell("poison shard", first, [trial.driver("poison", cluster)], asked)


def head_killed(trial: Trial, cluster: Cluster) -> None:
    """The last fault: its cluster does not come back."""
    asked, driver = trial.asked_anew(), trial.driver("head", cluster)
    driver.wait_for(2)
    cluster.kill_head()
    first = trial.first(driver)
    cluster.end()
    again = type(cluster)(2)
    trial.tell("scheduler or head killed", first, [trial.driver("head", again)], asked)
    again.end()


def node_killed(trial: Trial, cluster: Cluster) -> None:
    """A machine of Ray's with all that works on it."""
    if isinstance(cluster, DaskCluster):
        return
    asked, driver = trial.asked_anew(), trial.driver("node", cluster)
    driver.wait_for(2)
    cluster.kill_node()
    trial.tell("node killed", "the command goes on", [driver], asked)
    cluster.start_workers(1)


def no_workers_left(trial: Trial, cluster: Cluster) -> None:
    """All workers are killed, and others come after half a minute."""
    asked, driver = trial.asked_anew(), trial.driver("none left", cluster)
    driver.wait_for(2)
    cluster.kill_workers()
    time.sleep(30)
    cluster.start_workers(2)
    trial.tell("no workers left for 30 s", trial.first(driver), [trial.driver("none left", cluster)], asked)


def ray_client(trial: Trial, cluster: Cluster) -> None:
    """No fault: the address of Ray's client server."""
    if isinstance(cluster, RayCluster):
        client = Address("ray", f"ray://127.0.0.1:{cluster.client_port}")
        trial.tell("ray://", "-", [Driver(trial.folder / "client", trial.server.url, client)], trial.asked_anew())


FAULTS: tuple[Callable[[Trial, DaskCluster], None], ...] = (
    ray_client,
    worker_killed,
    driver_killed,
    mark_lost,
    two_drivers,
    node_killed,
    preempted,
    terminated,
    other_version,
    no_workers_left,
    poison_shard,
    head_killed,
)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--engine", choices=["dask", "ray"], default="dask")
    words.add_argument("faults", nargs="*", choices=[[], *(fault.__name__ for fault in FAULTS)])
    options = words.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, prefect_server(Path(name)):
        trial, cluster = Trial(Path(name)), {"dask": DaskCluster, "ray": RayCluster}[options.engine](2)
        try:
            for fault in FAULTS:
                if not options.faults or fault.__name__ in options.faults:
                    fault(trial, cluster)
        finally:
            cluster.end()


if __name__ == "__main__":
    main()
