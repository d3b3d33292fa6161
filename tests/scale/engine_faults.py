"""Judging on the workers of Dask or Ray with the run in SeaweedFS and the replies in PostgreSQL, while these fail.

    By hand, minutes:
    python tests/scale/engine_faults.py --weed WEED --postgres /usr/lib/postgresql/15/bin [--engine ray]

Prints for each fault how the command ended, whether its tables have the digests of one process with a folder, and how
many requests were asked more than once. See store_faults.py for the two programs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cluster import HOUSE, QUIET, DaskCluster, Driver, RayCluster
from store_faults import Database, Store, environment, make_bucket
from worker_faults import Trial, prefect_server

sys.path[:0] = [str(HOUSE / "tests")]
os.environ |= QUIET
SLOW_S = 0.3
"""For how long the store keeps each request waiting when it is slow."""


class Weather:
    """What the store is like: fair, or answering one request in three by 503 and the others slowly."""

    def __init__(self) -> None:
        self.is_bad = False
        self.refused = 0

    def __call__(self, verb: str, path: str, times: int) -> float | int | None:
        if not self.is_bad:
            return None
        if random.random() < 1 / 3:
            self.refused += 1
            return 503
        return SLOW_S


def watched(trial: Trial, cluster: DaskCluster | RayCluster, name: str, fault: Callable[[], str]) -> None:
    """One command; the fault comes when a shard is judged."""
    asked: Counter[str] = trial.asked_anew()
    driver = Driver(trial.folder / name, trial.server.url, cluster)
    driver.wait_for(1)
    words = fault()
    trial.tell(name, words, [driver], asked)
    trial.tell(f"{name}, once more", "nothing to do", [Driver(trial.folder / name, trial.server.url, cluster)], asked)


def bad_weather(weather: Weather) -> str:
    weather.is_bad, weather.refused = True, 0
    threading.Timer(60, setattr, (weather, "is_bad", False)).start()
    time.sleep(20)
    return f"{weather.refused} requests answered by 503 in its first 20 s, the others {SLOW_S:g} s late, for 60 s"


def main() -> None:
    from builders.buckets import moody

    words = argparse.ArgumentParser()
    words.add_argument("--weed", type=Path, required=True)
    words.add_argument("--postgres", type=Path, required=True)
    words.add_argument("--engine", choices=["dask", "ray"], default="dask")
    options = words.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, prefect_server(Path(name)):
        folder, weather = Path(name), Weather()
        folder.chmod(0o755)
        for part in ("store", "database"):
            (folder / part).mkdir(mode=0o700)
        trial = Trial(folder)
        store, database = Store(options.weed, folder / "store"), Database(options.postgres, folder / "database")
        behind = environment(folder)["AWS_ENDPOINT_URL"]
        with moody(behind, weather) as (endpoint, _):
            make_bucket()
            os.environ |= environment(folder) | {"AWS_ENDPOINT_URL": endpoint}
            cluster = {"dask": DaskCluster, "ray": RayCluster}[options.engine](2)
            faults: dict[str, Callable[[], str]] = {
                "nothing fails": lambda: "-",
                "database restarted": lambda: database.restart(5) or "killed, and away for 5 s",
                "store killed": lambda: store.restart(10) or "killed, and away for 10 s",
                "store slow and 503": lambda: bad_weather(weather),
            }
            try:
                for number, (fault, act) in enumerate(faults.items()):
                    os.environ["RUBRICFLOW_REPLIES"] = database.create(f"trial{number}")
                    os.environ["RUBRICFLOW_WAREHOUSE"] = f"s3://faults/trial{number}"
                    watched(trial, cluster, fault, act)
            finally:
                cluster.end()
                store.process.kill()
                database.stop()


if __name__ == "__main__":
    main()
