"""Seconds of each stage of `grade`, and what it holds in memory: python tests/bench/bench_stage_memory.py [RESPONSES].

Twenty items (or `--items N`), three criteria each, two human scores a response, and a judge that answers at once.
`--characters N` makes answers longer. With `--judged N` answers repeat after N but for a number: the first N are judged
alone, in a process of its own, and those that repeat them get the same rows, so that every other stage is measured on a
million responses within minutes. `--features judge characters embedding` is what calibration reads of the texts; by
default nothing. A stage's peak is the most that the process held while the stage ran, what earlier stages left
included. `--engine ray` (or dask; local for comparison) judges by a server of the same judge instead, with `--address`,
`--warehouse` and `--replies` as the command has them; a new prefix each time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from functools import cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
from invented_study import ITEMS, OWN, RESPONSES, Stages, begin, by_keywords, decide, write_study

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (1, 2)]


def judge_behind(server):
    """The settings of a judge that is asked over HTTP."""
    model = {"model": "bench", "urls": [server.url], "concurrency": 16, "structured": False}
    return {"protocol": "rulers", "backend": "openai", "engine": model, "final_score": "weighted_points"}


def repeated(judge, folder, judged):
    """The judge, with the rows that it finds there: those of the run in `folder`, under the ids of all responses that
    repeat the ones judged in it."""

    def repeating(run, *arguments, **named):
        from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
        from rubricflow.tasks.core.store.warehouse import Warehouse, counted
        from rubricflow.tasks.grading.judge.stored_cases import in_shard_order
        from rubricflow.tasks.grading.judge.task import shard_sizes

        warehouse = Warehouse.open(folder / "warehouse")
        source = warehouse.run(warehouse.begun()[0])
        rows = in_shard_order(run, named["responses"])
        for name, count in shard_sizes(counted(run, named["responses"], "item_id")).items():
            ids = [row["response_id"] for row in islice(rows, count)]
            if not run.done("judge", name):
                tables = (Judgments, Gradings, Attempts)
                run.commit("judge", name, {table: rows_of(source, table, ids, judged) for table in tables})
        return judge(run, *arguments, **named)

    return repeating


def rows_of(source, table, ids, judged):
    """A table's rows of these responses, each those of the judged response that it repeats."""
    rows, places = judged_rows(source, table)
    picked = [(place, name) for name in ids for place in places[int(name[1:]) % judged]]
    names = pa.array([name for _, name in picked], pa.string())
    column = rows.column_names.index("response_id")
    return rows.take([place for place, _ in picked]).set_column(column, rows.schema.field(column), names)


@cache
def judged_rows(source, table):
    """The rows of a table of the judged run, and by a response's place in answers.csv where its rows are."""
    rows, places = source.read(source.ref(table, "judge")), defaultdict(list)
    for place, name in enumerate(rows["response_id"].to_pylist()):
        places[int(name[1:])].append(place)
    return rows, places


def main(given):
    """Grade an invented study of so many responses and print the figures; with `into`, only up to the judge."""
    with tempfile.TemporaryDirectory() as name:
        place, judged = given.into or Path(name), given.judged or given.responses
        changes = {"calibration": {"features": given.features}}
        if given.engine:
            from scale.cluster import JudgesServer

            changes["judge"] = judge_behind(JudgesServer(0, by_keywords))
        study = write_study(place, given.responses, given.characters, given.items, judged, **changes)
        if judged < given.responses:
            first = Path(name) / "judged"
            first.mkdir()
            same = ["--characters", str(given.characters), "--items", str(given.items)]
            subprocess.run([sys.executable, __file__, str(judged), *same, "--into", str(first)], check=True)
        os.environ |= {"PREFECT_API_URL": "", "GX_ANALYTICS_ENABLED": "false"}
        if given.replies:
            os.environ["RUBRICFLOW_REPLIES"] = given.replies
        started = begin()
        from rubricflow.flows import grade as flow
        from rubricflow.flows import judging
        from rubricflow.flows import stage as stage_module
        from rubricflow.tasks.core.llm.backend import Offline
        from rubricflow.tasks.core.store.catalogue import read_manifest
        from rubricflow.tasks.core.store.warehouse import Warehouse
        from rubricflow.tasks.grading.judge import shard_judge
        from rubricflow.tasks.grading.judge.rows import Rater

        stages = Stages()
        if not given.engine:
            answer = stages.count(OWN, decide)
            shard_judge.rater = lambda *_: Rater("offline:bench:rulers", "simulated", Offline("bench", answer))
        watched = {flow: ("plan", "ingest", "calibrate", "evaluate", "data_docs", "record", "report")}
        for module, names in (watched | {judging: ("judge",), stage_module: ("lock",)}).items():
            for stage in names:
                setattr(module, stage, stages.watch(stage, getattr(module, stage)))
        if judged < given.responses:
            judging.judge = repeated(judging.judge, first, judged)
        if given.into:
            flow.calibrate = stop
        stage_module.checked = stages.watch(
            lambda written: f"check {next(stage_module.references(written)).stage}", stage_module.checked
        )
        stages.add("imports", started)
        try:
            house = given.warehouse or str(place / "warehouse")
            run_id = flow.grade(str(study), house, engine=given.engine, address=given.address)
            print("grade_digest", read_manifest(Warehouse.open(house).run(run_id))["grade_digest"])
        finally:
            stages.show(given.responses, time.perf_counter() - started)


def stop(*_, **__):
    """In place of the stage at which the run ends."""
    raise SystemExit(0)


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("responses", type=int, nargs="?", default=RESPONSES)
    words.add_argument("--characters", type=int, default=0)
    words.add_argument("--judged", type=int)
    words.add_argument("--items", type=int, default=ITEMS)
    words.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    words.add_argument("--features", nargs="+", default=["judge"])
    words.add_argument("--engine", choices=["local", "dask", "ray"])
    for name in ("--address", "--warehouse", "--replies"):
        words.add_argument(name)
    main(words.parse_args())
