"""Calibration's packs on workers of Dask (or ENGINE ray), beside one process.

    python tests/scale/calibration.py [ANSWERS] [ENGINE]

First the demo, graded whole with packs of 50: the digests of all tables. Then ANSWERS (1,000) answers of 400 words in
packs of 125: seconds from the fitted mappings to the last pack with 1 and 2 workers of one thread each, which begin by
loading the encoder; and digests where a worker or the command is killed in the middle, with the same command
after it. Minutes, by hand; needs the extras `embedded` and `dask` or `ray`.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster import CLUSTERS, HOUSE, QUIET
from worker_faults import prefect_server

PACK_OF_DEMO, PACK, WORDS, MARKED = 50, 125, 400, 80
ENGINE = os.environ.get("ENGINE") or next((word for word in sys.argv[2:3] if word in CLUSTERS), "dask")


class Command:
    """A process that grades the demo, or calibrates a run, in this folder; its marks tell how far it is."""

    def __init__(self, what: str, folder: Path, address: str = "", **environment: str) -> None:
        self.folder = folder
        words = [sys.executable, __file__, what, str(folder), address]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
        )

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> tuple[int, list[str]]:
        """Exit code and the digests of all tables; what it said is printed where it failed."""
        said, _ = self._process.communicate(timeout=1800)
        if self._process.returncode > 0:
            print(said[-3000:])
        return self._process.returncode, re.findall(r"^digest (.+)$", said, re.MULTILINE)

    def marks(self) -> list[float]:
        """When the mappings were fitted and each pack was finished, in order."""
        paths = self.folder.glob("house/*/_done/calibrate/*.json")
        return sorted(path.stat().st_mtime for path in paths if path.stem != "all")

    def wait_for(self, packs: int) -> None:
        """Until so many packs are predicted, or it has ended."""
        while len(self.marks()) <= packs and self._process.poll() is None:
            time.sleep(0.05)


def grade_demo(folder: Path, address: str) -> None:
    """Grade the demo; prints the digests of all its tables."""
    from rubricflow.flows.grade import grade
    from rubricflow.tasks.core.store.warehouse import Warehouse
    from rubricflow.tasks.grading.calibrate import task as door

    door.SHARD_ROWS = PACK_OF_DEMO
    shutil.copytree(HOUSE / "data" / "demo", folder / "demo", dirs_exist_ok=True)
    study = folder / "demo" / "study.yaml"
    study.write_text(study.read_text().replace(", beside: [baseline.yaml]", ""))
    run_id = grade(str(study), str(folder / "house"), **_placed(address))
    manifest = Warehouse.open(folder / "house").run(run_id).fetched("manifest.json")
    for table in json.loads(manifest.read_bytes())["tables"]:
        print("digest", table["path"].partition("/")[2], table["digest"])


def calibrate_run(folder: Path, address: str) -> None:
    """Calibrate as many answers as ANSWERS says; prints the digests of what it writes."""
    sys.path.append(str(HOUSE / "tests" / "tasks" / "grading" / "calibrate"))
    import texts_scene

    from rubricflow.tasks.core.contracts.settings.engine import Placement
    from rubricflow.tasks.grading.calibrate import task as door

    answers = int(os.environ["ANSWERS"])
    door.SHARD_ROWS = PACK
    texts_scene.SIZES = {"p": answers // 2, "q": answers - answers // 2}
    rng, padding = random.Random(0), re.findall(r"\w+", (HOUSE / "README.md").read_text())
    row = texts_scene.response

    def response(name: str, item_id: str, text: str, split: str) -> dict[str, Any]:
        """A long text; only the first of an item are marked, so that to predict is what takes time."""
        longer = f"{text} {' '.join(rng.choices(padding, k=WORDS))}"
        return row(name, item_id, text=longer, split=split if int(name.split("-")[1]) < MARKED else "test")

    texts_scene.response = response
    run, refs = texts_scene.run_of(folder / "house")
    plan = texts_scene.plan(features=["judge", "embedding"])
    for ref in door.calibrate.fn(run, plan, *refs, placement=Placement(**_placed(address))):
        print("digest", ref.table, ref.digest)


def _placed(address: str) -> dict[str, Any]:
    return {"engine": ENGINE, "address": address} if address else {}


def compare_demo(folder: Path) -> None:
    """Grades the demo in one process, with as many threads as it takes, and with two workers; prints what differs."""
    local = Command("demo", folder / "demo-here", OMP_NUM_THREADS=str(os.cpu_count()))
    code, expected = local.end()
    cluster = CLUSTERS[ENGINE](2)
    there = Command("demo", folder / "demo-there", cluster.address)
    code_there, digests = there.end()
    cluster.end()
    differ = sorted({*expected} ^ {*digests})
    packs = len(there.marks()) - 1
    print(f"demo: exit {code} and {code_there}, {len(digests)} tables, {packs} packs, of other digests: {differ}")


def measure(folder: Path) -> list[str]:
    """Prints the seconds of one process and of 1 and 2 workers; the digests."""
    expected: list[str] = []
    for workers in (0, 1, 2):
        cluster = CLUSTERS[ENGINE](workers) if workers else None
        command = Command("run", folder / str(workers), cluster.address if cluster else "")
        code, digests = command.end()
        expected = expected or digests
        marks = command.marks()
        who = f"{workers} workers" if workers else "one process"
        line = f"{len(marks) - 1} packs in {marks[-1] - marks[0]:.1f} s, {marks[-1] - marks[1]:.1f} s after the first"
        print(f"{who}: exit {code}, {line}, digests equal: {digests == expected}", flush=True)
        if cluster:
            cluster.end()
    return expected


def kill(folder: Path, expected: list[str]) -> None:
    """Kills a worker, and then the command, when two packs are there; prints what the same command makes of it."""
    for what in ("worker", "command"):
        cluster = CLUSTERS[ENGINE](2)
        first = Command("run", folder / what, cluster.address)
        first.wait_for(2)
        before = first.marks()
        first.kill() if what == "command" else cluster.kill_worker()
        code, digests = first.end()
        again, after = Command("run", folder / what, cluster.address).end()
        cluster.end()
        kept = set(before) <= set(first.marks())
        equal = all(found == expected for found in (digests, after) if found)
        print(f"{what} killed: exit {code}, then {again}; equal: {equal}; finished packs stayed: {kept}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        {"demo": grade_demo, "run": calibrate_run}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
        raise SystemExit
    os.environ |= QUIET | {"ENGINE": ENGINE, "ANSWERS": sys.argv[1] if len(sys.argv) > 1 else "1000"}
    with tempfile.TemporaryDirectory() as name, prefect_server(Path(name)):
        compare_demo(Path(name))
        kill(Path(name), measure(Path(name)))
