"""The whole flow on an invented study, and where its time and memory go: python tests/bench/bench_scale.py [RESPONSES].

Twenty items, three criteria each, two human scores a response, and a judge that answers at once: it looks for each
criterion's word, quotes the sentence that has it, and invents one quote in twenty. `--characters N` adds sentences that
say nothing until an answer has that many characters; `--profile` adds what the judge's stage spends its time on.
`--engine ray` (or dask; local for comparison) judges by a server of the same judge instead, with `--address`,
`--warehouse` and `--replies` as the command has them; a new prefix each time.
"""

import argparse
import cProfile
import os
import pstats
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from invented_study import OWN, RESPONSES, STUDY, Stages, begin, decide, write_study
from keyword_server import KeywordServer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def judge_behind(server):
    """The settings of a judge that is asked over HTTP."""
    model = {"model": "bench", "urls": [server.url], "concurrency": 16, "structured": False}
    return {"protocol": "rulers", "backend": "openai", "engine": model, "final_score": "weighted_points"}


def main(responses, characters, profile, place):
    """Grade an invented study of so many responses and print the figures. place: its engine, address, warehouse and
    replies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judge_settings = judge_behind(KeywordServer()) if place.engine else STUDY["judge"]
        study = write_study(folder, responses, characters, judge=judge_settings)
        if place.replies:
            os.environ["RUBRICFLOW_REPLIES"] = place.replies
        os.environ |= {"PREFECT_API_URL": "", "GX_ANALYTICS_ENABLED": "false"}
        started = begin()
        from rubricflow.flows import grade as flow
        from rubricflow.flows import stage as stage_module
        from rubricflow.tasks.core.llm.backend import Offline
        from rubricflow.tasks.core.store.catalogue import read_manifest
        from rubricflow.tasks.core.store.warehouse import Warehouse
        from rubricflow.tasks.grading.judge import task as judge
        from rubricflow.tasks.grading.judge.rows import Rater

        stages = Stages()
        answer = stages.count(OWN, decide)
        if not place.engine:
            judge.rater = lambda *_: Rater("offline:bench:rulers", "simulated", Offline("bench", answer))
        if profile:
            flow.judge = partial(profile.runcall, flow.judge)
        for stage in ("plan", "ingest", "lock", "judge", "calibrate", "evaluate", "record", "report"):
            setattr(flow, stage, stages.watch(stage, getattr(flow, stage)))
        stage_module.checked = stages.watch(
            lambda of: f"check {type(of).__module__.split('.')[1]}", stage_module.checked
        )
        stages.add("imports", started)
        try:
            house = place.warehouse or str(folder / "warehouse")
            run_id = flow.grade(str(study), house, engine=place.engine, address=place.address)
            print("grade_digest", read_manifest(Warehouse.open(house).run(run_id))["grade_digest"])
        finally:
            stages.show(responses, time.perf_counter() - started)


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("responses", type=int, nargs="?", default=RESPONSES)
    words.add_argument("--characters", type=int, default=0)
    words.add_argument("--profile", action="store_true")
    words.add_argument("--engine", choices=["local", "dask", "ray"])
    for name in ("--address", "--warehouse", "--replies"):
        words.add_argument(name)
    options = words.parse_args()
    profile = cProfile.Profile() if options.profile else None
    main(options.responses, options.characters, profile, options)
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
