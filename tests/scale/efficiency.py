"""How well workers divide a study by the plain command: python tests/scale/efficiency.py [--engine ray] [ANSWERS [S]].

`rubricflow grade` on ANSWERS (2,400) to four questions, without marks; the judge's server answers every request after S
seconds (1), and the study asks it 32 at once. Beside the plain formula stand the seconds from the first request to the
last reply, and those of the whole command: without a cluster, on one that runs already, and on one that it starts
itself. Needs the extra `dask` or `ray`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import CALLS, CLUSTERS, HOUSE, ITEMS, QUIET, JudgesServer
from worker_faults import prefect_server

sys.path.insert(0, str(HOUSE / "tests" / "bench"))
os.environ |= QUIET


def said_of(body: dict[str, object]) -> object:
    """What the judge says of every answer: nothing is credited."""
    return {"decisions": {f"P{number}": {"evidence": [], "level": 0} for number in (1, 2, 3)}}


def study_in(folder: Path, url: str, answers: int) -> Path:
    from invented_study import STUDY, write_study

    responses = {"response_id": "id", "item_id": "item", "author_id": "author", "text": "text"}
    sources = [STUDY["data"]["sources"][0], {"file": "answers.csv", "responses": responses}]
    model = {"model": "m", "urls": [url], "concurrency": CALLS, "structured": False}
    judge = {"protocol": "rulers", "backend": "openai", "engine": model, "final_score": "weighted_points"}
    folder.mkdir(parents=True)
    return write_study(folder, answers, 0, ITEMS, data={"sources": sources}, judge=judge)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--engine", choices=list(CLUSTERS), default="dask")
    words.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 4])
    words.add_argument("answers", type=int, nargs="?", default=2400)
    words.add_argument("seconds", type=float, nargs="?", default=1.0)
    options = words.parse_args()
    formula, digests = math.ceil(options.answers / CALLS) * options.seconds, set()
    print(f"{'who':>22}{'calls, s':>10}{'formula':>9}{'efficiency':>12}{'command, s':>12}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, prefect_server(Path(name)):
        for workers in [*options.workers, -4]:
            server = JudgesServer(options.seconds, said_of)
            cluster = CLUSTERS[options.engine](workers) if workers > 0 else None
            study = study_in(Path(name) / str(workers), server.url, options.answers)
            place = ["--engine", options.engine] if workers else []
            place += ["--address", cluster.address] if cluster else []
            if workers < 0:  # a cluster of its own, and no server of Prefect's
                study.write_text(
                    json.dumps(json.loads(study.read_text()) | {"run": {"engine": options.engine, "workers": -workers}})
                )
            environment = {key: word for key, word in os.environ.items() if workers > 0 or key != "PREFECT_API_URL"}
            command = [
                sys.executable,
                "-m",
                "rubricflow.flows.cli",
                "grade",
                str(study),
                "--warehouse",
                str(study.parent / "house"),
            ]
            begun = time.monotonic()
            ended = subprocess.run([*command, *place], env=environment, text=True, capture_output=True)
            seconds = time.monotonic() - begun
            (Path(tempfile.gettempdir()) / f"efficiency-{workers}.log").write_text(ended.stdout + ended.stderr)
            if cluster:
                cluster.end()
            assert ended.returncode == 0, ended.stderr[-3000:]
            manifest = json.loads(next((study.parent / "house").glob("*/manifest.json")).read_text())
            digests.add(json.dumps([(t["table"], t["digest"]) for t in manifest["tables"] if t["stage"] == "judge"]))
            calls = server.last_s - server.first_s
            who = f"{workers} workers" if workers > 0 else "cluster of its own" if workers else "no workers"
            print(f"{who:>22}{calls:10.1f}{formula:9.1f}{formula / calls:12.1%}{seconds:12.1f}", flush=True)
    print(f"tables equal: {len(digests) == 1}")


if __name__ == "__main__":
    main()
