"""How well workers of Dask divide judging by the plain command: python tests/scale/efficiency.py [ANSWERS [S]].

ANSWERS (2,400) to four questions; the judge's server answers every request after S seconds (1), 32 at once. Beside the
plain formula stand the seconds from the first request to the last reply, and those of the whole command on a cluster
that runs already. Needs the extra `dask`.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from pathlib import Path

from cluster import CALLS, ITEMS, QUIET, DaskCluster, Driver, JudgesServer
from worker_faults import prefect_server

os.environ |= QUIET


def main(answers: int, latency_s: float) -> None:
    """Prints a line for the command alone, and one for each number of workers."""
    formula, digests = math.ceil(answers / CALLS) * latency_s, set()
    print(f"{'workers':>9}{'calls, s':>10}{'formula':>9}{'efficiency':>12}{'command, s':>12}")
    with tempfile.TemporaryDirectory() as name, prefect_server(Path(name)):
        for workers in (0, 1, 2, 4):
            server = JudgesServer(latency_s)
            cluster = DaskCluster(workers) if workers else None
            begun = time.monotonic()
            driver = Driver(Path(name) / str(workers), server.url, cluster, answers // ITEMS)
            code, said, found = driver.end()
            command = time.monotonic() - begun
            if cluster:
                cluster.end()
            assert code == 0, said
            digests.add(tuple(found[:2]))
            calls = server.last_s - server.first_s
            who = f"{workers:9}" if workers else "no"
            print(f"{who:>9}{calls:10.1f}{formula:9.1f}{formula / calls:12.1%}{command:12.1f}", flush=True)
    print(f"tables equal: {len(digests) == 1}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2] or ["2400"]), *(float(word) for word in sys.argv[2:3] or ["1"]))
