"""How well 1, 2 and 4 workers of Dask divide judging, beside the plain formula: python tests/scale/efficiency.py [S].

The judge's server answers every request after S seconds (10), and a shard's requests go to it at once, so that a shard
takes S seconds and hardly any processor. From when the first shards begin to when the last one is marked; the start of
workers and of Prefect's server (some 10 to 60 s) is left out. Needs the extra `dask`.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from pathlib import Path

from cluster import ITEMS, QUIET, RESPONSES, SHARD, DaskCluster, Driver, JudgesServer
from worker_faults import prefect_server

os.environ |= QUIET
SHARDS = ITEMS * RESPONSES // SHARD


def main(latency_s: float) -> None:
    """Prints a line for each number of workers."""
    print(f"{'workers':>7}{'seconds':>9}{'formula':>9}{'efficiency':>12}{'overhead a shard, s':>21}")
    with tempfile.TemporaryDirectory() as name, prefect_server(Path(name)):
        server = JudgesServer(latency_s)
        for workers in (1, 2, 4):
            cluster = DaskCluster(workers)
            driver = Driver(Path(name) / str(workers), server.url, cluster)
            code, said, _ = driver.end()
            cluster.end()
            assert code == 0, said
            marks = sorted(path.stat().st_mtime for path in driver.folder.glob("house/run/_done/judge/*.json"))
            seconds = marks[-1] - marks[0] + latency_s
            formula = math.ceil(SHARDS / workers) * latency_s
            overhead = (seconds - formula) / math.ceil(SHARDS / workers)
            print(f"{workers:7}{seconds:9.1f}{formula:9.1f}{formula / seconds:12.1%}{overhead:21.2f}", flush=True)


if __name__ == "__main__":
    started = time.monotonic()
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
    print(f"{SHARDS} shards, {time.monotonic() - started:.0f} s in all")
