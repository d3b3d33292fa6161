"""Graphs of rubrics that workers of Dask (or ENGINE ray) ask about, beside one process, and repeated calls after kills.

    python tests/scale/graph_workers.py [LATENCY_S] [ENGINE]

The model's server answers every request after the same time (0.5 s) by its schema. It bears 8 calls at once for each
worker, as a cluster with a replica for each does. Prints seconds of the door beside the plain formula, calls, and
whether the tables have the digests of one process. Needs the extra of the engine.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from cluster import CLUSTERS, HOUSE, POISON, QUIET, DaskCluster, JudgesServer, RayCluster
from worker_faults import prefect_server

RUBRICS, CRITERIA = 300, 6
CALLS = 8
ENGINE = os.environ.get("ENGINE") or next((word for word in sys.argv[2:3] if word in CLUSTERS), "dask")
"""At once, of a worker."""
os.environ |= QUIET | {"ENGINE": ENGINE}


def by_schema(body: dict[str, Any]) -> object:
    """An artifact of the request's schema, the same for the same request."""
    drawn = zlib.crc32(body["messages"][-1]["content"].encode())
    return _filled(body["response_format"]["json_schema"]["schema"], drawn)


def _filled(schema: dict[str, Any], drawn: int) -> object:
    if "enum" in schema:
        return schema["enum"][drawn % len(schema["enum"])]
    if schema["type"] == "integer":
        return 80
    return {
        name: _filled(part, drawn // (place + 1)) for place, (name, part) in enumerate(schema["properties"].items())
    }


class Driver:
    """A process that builds the graphs of a folder's run."""

    def __init__(self, folder: Path, server: str, concurrency: int, address: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, __file__, "--build", str(folder), server, str(concurrency), address]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self) -> tuple[int, str, list[str], float]:
        """Exit code, what it said, digests of its tables, seconds of the door."""
        said, _ = self.process.communicate(timeout=900)
        seconds = re.findall(r"^seconds ([\d.]+)$", said, re.MULTILINE)
        digests = re.findall(r"^digest (\w+)$", said, re.MULTILINE)
        return self.process.returncode, said, digests, float(seconds[0]) if seconds else 0.0


def build_graphs(folder: str, server: str, concurrency: str, address: str) -> None:
    """Build in this process, or on the cluster at the address; prints digests and seconds."""
    sys.path[:0] = [str(HOUSE), str(HOUSE / "tests")]
    from builders import studies
    from builders.bundles import bundle
    from builders.rows import item, locked

    from rubricflow.tasks.core.contracts.bundle import Criterion
    from rubricflow.tasks.core.contracts.errors import UserError
    from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
    from rubricflow.tasks.core.contracts.tables.data import Items
    from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
    from rubricflow.tasks.core.store.warehouse import Warehouse
    from rubricflow.tasks.rewards.graph.task import graph

    run = Warehouse.open(Path(folder) / "house").run("run")
    names = [f"r{number:03d}" for number in range(RUBRICS)]
    criteria = [Criterion(id=f"c{n}", trait="t", text=f"Says {n}.", weight=1) for n in range(CRITERIA)]
    questions = {name: f"Why {name}?{f' {POISON}' if name == names[70] else ''}" for name in names}
    run.commit("ingest", "all", {Items: [item(name, question=words) for name, words in questions.items()]})
    run.commit("lock", "all", {Bundles: [locked(bundle(*criteria), name) for name in names]})
    model = {"model": "m", "urls": [server], "concurrency": int(concurrency)}
    study = studies.study(graph={"backend": "openai", "engine": model})
    placement = Placement(engine=ENGINE, address=address) if address else HERE
    started = time.monotonic()
    try:
        tables = run.ref(Items, "ingest"), run.ref(Bundles, "lock")
        graphed = graph.fn(run, study, Path(folder), *tables, placement=placement)
    except UserError as error:
        print(f"rubricflow: {error}")
        raise SystemExit(2) from None
    print(f"seconds {time.monotonic() - started:.1f}")
    for ref in graphed:
        print("digest", ref.digest)


class Trials:
    """Builds beside what one process came to."""

    def __init__(self, folder: Path, latency_s: float) -> None:
        self.folder, self.server = folder, JudgesServer(latency_s, by_schema)
        code, said, self.expected, seconds = Driver(folder / "here", self.server.url, CALLS).end()
        assert code == 0, said
        self.calls, self.formula = len(self.server.asked), len(self.server.asked) * latency_s / CALLS
        print(
            f"one process: {self._span()}, door {seconds:.1f} s, formula {self.formula:.1f}, {self._asked()}",
            flush=True,
        )

    def whole(self, workers: int) -> None:
        """Workers that nothing happens to."""
        asked, cluster = self._anew(), CLUSTERS[ENGINE](workers)
        code, said, digests, seconds = self._driver(f"w{workers}", workers, cluster).end()
        cluster.end()
        assert code == 0, said
        formula, equal = self.formula / workers, digests == self.expected
        line = f"{self._span()}, door {seconds:.1f} s, formula {formula:.1f}, digests equal: {equal}, {self._asked()}"
        print(f"{workers} workers: {line}", flush=True)
        assert sum(asked.values()) == self.calls

    def harmed(self, fault: str) -> None:
        """A fault in the middle, and the same command again."""
        self._anew()
        cluster = CLUSTERS[ENGINE](2)
        self.server.poison = fault == "poison"
        driver = self._driver(fault, 2, cluster)
        while fault != "poison" and len(self.server.asked) < self.calls / 2:
            time.sleep(0.05)
        if fault == "worker":
            cluster.kill_worker()
        elif fault == "command":
            driver.process.kill()
        code, said, *_ = driver.end()
        self.server.poison, last = False, said.strip().splitlines()[-1][:170]
        again, said, digests, _ = self._driver(fault, 2, cluster).end()
        cluster.end()
        first = f"exit {code}" + (f", '{last}'" if fault == "poison" else "")
        print(
            f"{fault}: {first}; then exit {again}, equal: {digests == self.expected}, {self._asked()}",
            flush=True,
        )

    def _driver(self, name: str, workers: int, cluster: DaskCluster | RayCluster) -> Driver:
        return Driver(self.folder / name, self.server.url, CALLS * workers, cluster.address)

    def _anew(self) -> Counter[str]:
        self.server.asked, self.server.first_s = Counter(), math.inf
        return self.server.asked

    def _span(self) -> str:
        return f"{self.server.last_s - self.server.first_s:.1f} s from the first request to the last reply"

    def _asked(self) -> str:
        twice = sum(count > 1 for count in self.server.asked.values())
        return f"{len(self.server.asked):,} requests, {twice} of them twice"


def main(latency_s: float) -> None:
    """Prints a line for each trial."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, prefect_server(Path(name)):
        trials = Trials(Path(name), latency_s)
        for workers in (1, 2):
            trials.whole(workers)
        for fault in ("worker", "command", "poison"):
            trials.harmed(fault)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        build_graphs(*sys.argv[2:])
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
