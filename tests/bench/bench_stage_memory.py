"""What each stage of `grade` holds in memory: python tests/bench/bench_stage_memory.py [RESPONSES].

Twenty items (or `--items N`), three criteria each, two human scores a response, and a judge that answers at once.
`--characters N` makes answers longer. With `--judged N` answers repeat after N but for a number: the first N are judged
alone, in a process of its own, and those that repeat them get the same rows, so that every other stage is measured on a
million responses within minutes. `--features judge characters embedding` is what calibration reads of the texts; by
default nothing. A stage's peak is the most that the process held while the stage ran, what earlier stages left
included.
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
from invented_study import ITEMS, OWN, RESPONSES, Stages, begin, decide, write_study

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


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


def main(responses, characters, features, judged, items, folder=None):
    """Grade an invented study of so many responses and print the figures; with a folder, only up to the judge, into
    it."""
    with tempfile.TemporaryDirectory() as name:
        place = folder or Path(name)
        study = write_study(place, responses, characters, items, judged, calibration={"features": features})
        if judged < responses:
            first = Path(name) / "judged"
            first.mkdir()
            same = ["--characters", str(characters), "--items", str(items)]
            subprocess.run([sys.executable, __file__, str(judged), *same, "--into", str(first)], check=True)
        os.environ |= {"PREFECT_API_URL": "", "GX_ANALYTICS_ENABLED": "false"}
        started = begin()
        from rubricflow.flows import grade as flow
        from rubricflow.flows import stage as stage_module
        from rubricflow.tasks.core.llm.backend import Offline
        from rubricflow.tasks.grading.judge import task as judge
        from rubricflow.tasks.grading.judge.rows import Rater

        stages = Stages()
        answer = stages.count(OWN, decide)
        judge.rater = lambda *_: Rater("offline:bench:rulers", "simulated", Offline("bench", answer))
        for stage in (
            "plan",
            "ingest",
            "lock_rubrics",
            "judge",
            "calibrate",
            "evaluate",
            "data_docs",
            "record",
            "report",
        ):
            setattr(flow, stage, stages.watch(stage, getattr(flow, stage)))
        if judged < responses:
            flow.judge = repeated(flow.judge, first, judged)
        if folder:
            flow.calibrate = stop
        stage_module.checked = stages.watch(
            lambda of: f"check {type(of).__module__.split('.')[1]}", stage_module.checked
        )
        stages.add("imports", started)
        try:
            flow.grade(str(study), str(place / "warehouse"))
        finally:
            stages.show(responses, time.perf_counter() - started)


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
    arguments = words.parse_args()
    judged = arguments.judged or arguments.responses
    main(arguments.responses, arguments.characters, arguments.features, judged, arguments.items, arguments.into)
