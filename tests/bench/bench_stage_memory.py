"""What each stage of `grade` holds in memory: python tests/bench/bench_stage_memory.py [RESPONSES].

Twenty items (or `--items N`), three criteria each, two human scores a response, and a judge that answers at once.
`--characters N` makes answers longer. Answers repeat after REPEAT but for a number: `--judged N` judges the first N
alone, in a process of its own, and gives those that repeat them the same rows, so that every other stage is measured on
a million responses within minutes. `--features judge characters embedding` is what calibration reads of the texts; by
default nothing. A stage's peak is the most that the process held while the stage ran, what earlier stages left
included.
"""

import argparse
import csv
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

OWN = "answers"
ITEMS, CRITERIA, RESPONSES, PER_AUTHOR = 20, 3, 20_000, 20
REPEAT = 20_000
"""Responses after which answers and scores repeat, under other ids and each with its number."""
WORDS = re.findall(
    r"\w+",
    "the a of to and energy heat water plant cell light pressure force because therefore molecules move faster when "
    "temperature rises evidence claim author argues that since helps people learn culture history shows example reason",
)
KEYS = re.findall(r"\w+", "amber basalt cobalt dolomite ember fjord garnet harbour indigo juniper kelp lichen marble")
STUDY = {
    "name": "scale",
    "data": {
        "sources": [
            {"file": "items.csv", "items": {name: name for name in ("item_id", "question", "rubric_id")}},
            {
                "file": "answers.csv",
                "responses": {"response_id": "id", "item_id": "item", "author_id": "author", "text": "text"},
                "groups": {"language": "language"},
                "scores": [{"rater": "one", "score": "one"}, {"rater": "two", "score": "two"}],
            },
        ]
    },
    "rubrics": {"file": "rubrics.yaml"},
    "split": {"by": "author", "per": "set", "calibration": 2000},
    "judge": {"protocol": "rulers", "backend": "replay", "model": "bench", "final_score": "weighted_points"},
    "evaluation": {"target": "mean"},
}


def write_study(folder, responses, characters, features):
    """The files of a study, a row at a time; the path of its study file."""
    with (folder / "items.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item_id", "question", "rubric_id"])
        writer.writerows(
            [f"item{n:02d}", f"What happens in case {n}, and why?", f"rubric{n:02d}"] for n in range(ITEMS)
        )
    (folder / "rubrics.yaml").write_text(json.dumps({"rubrics": [rubric(n) for n in range(ITEMS)]}))  # JSON is YAML
    with (folder / "answers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "item", "author", "language", "text", "one", "two"])
        for n in range(responses):
            writer.writerow(response(n, characters))
    (folder / "study.yaml").write_text(json.dumps(STUDY | {"calibration": {"features": features}}))
    return folder / "study.yaml"


def rubric(number):
    """An authored rubric of three criteria, each of which asks for one word."""
    criteria = [
        {
            "id": f"P{k + 1}",
            "trait": "content",
            "text": f"The answer explains {KEYS[(number + 5 * k) % len(KEYS)]}.",
            "levels": ["absent", "named", "explained"],
        }
        for k in range(CRITERIA)
    ]
    scale = {"min": 0, "max": 6}
    trait = {"id": "content", "name": "Content", **scale}
    return {"rubric_id": f"rubric{number:02d}", "text": "", "scale": scale, "traits": [trait], "criteria": criteria}


def response(number, characters):
    """A row of answers.csv: some 40 words in four sentences, as many more as it takes to have so many characters, and
    two noisy scores of what they say."""
    item, rng = number % ITEMS, random.Random(number % REPEAT)
    levels = [rng.choice((0, 1, 2)) for _ in range(CRITERIA)]
    sentences = [rng.choices(WORDS, k=rng.randint(7, 13)) for _ in range(CRITERIA + 1)]
    for k, level in enumerate(levels):
        if level:
            sentences[k][3] = KEYS[(item + 5 * k) % len(KEYS)]
        if level == 2:
            sentences[k][4] = "because"
    length = sum(len(word) + 1 for words in sentences for word in words)
    while length < characters:
        sentences.append(rng.choices(WORDS, k=rng.randint(7, 13)))
        length += sum(len(word) + 1 for word in sentences[-1])
    text = " ".join(" ".join(words).capitalize() + "." for words in sentences) + f" This is number {number}."
    scores = [min(6, max(0, sum(levels) + rng.choice((-1, 0, 0, 1)))) for _ in range(2)]
    author = number // PER_AUTHOR
    return [response_id(number), f"item{item:02d}", f"a{author:06d}", "de" if author % 3 else "en", text, *scores]


def response_id(number):
    """The id of a response by its place in answers.csv."""
    return f"r{number:07d}"


def decide(questions):
    """The replies of a judge that needs no time to speak of: the sentence with the criterion's word is its quote."""
    from tasks.llm.request import Reply

    replies = []
    for question in questions:
        decisions, text = {}, question.text.lower()
        for criterion in question.criteria:
            word = criterion.text.split()[-1].rstrip(".")
            at = text.find(word)
            if at < 0:
                decisions[criterion.id] = {"evidence": [], "level": 0}
                continue
            unit = next(u for u in question.units if u.start <= at < u.end)
            quote = question.text[unit.start : unit.end]
            if zlib.crc32(quote.encode()) % 20 == 0:
                quote = "nobody wrote these words"
            level = 2 if f"{word} because" in text else 1
            decisions[criterion.id] = {"evidence": [{"unit": unit.unit_id, "quote": quote}], "level": level}
        replies.append(Reply(text=json.dumps({"decisions": decisions}), prompt_tokens=400, completion_tokens=90))
    return replies


class Stages:
    """Seconds of each stage, and the most memory that the process held while it ran."""

    def __init__(self):
        self.seconds, self.peak = Counter(), {}

    def watch(self, name, act):
        """The act, timed; a name that is a function is made from what the act was given last."""

        def watched(*arguments, **named):
            started = begin()
            try:
                return act(*arguments, **named)
            finally:
                self.add(name(arguments[-1]) if callable(name) else name, started)

        return watched

    def count(self, name, act):
        """The act, timed; its memory is that of the stage around it."""

        def counted(*arguments):
            started = time.perf_counter()
            try:
                return act(*arguments)
            finally:
                self.seconds[name] += time.perf_counter() - started

        return counted

    def add(self, name, started):
        """Count the time since then, and the memory, for a stage."""
        self.seconds[name] += time.perf_counter() - started
        self.peak[name] = peak()
        print(f"{name}: {self.seconds[name]:.1f} s, {self.peak[name]:,.0f} MiB", file=sys.stderr)

    def show(self, responses, whole):
        """Print the table."""
        own = self.seconds.pop(OWN, 0.0)
        self.seconds["judge"] -= own
        self.seconds["judge's answers (not ours)"] = own
        self.seconds["what is between them"] = whole - sum(self.seconds.values())
        print(f"{'stage':30}{'seconds':>9}{'share':>8}{'responses/s':>13}{'peak MiB':>10}")
        for name, seconds in self.seconds.items():
            rate = responses / seconds if seconds else float("inf")
            held = f"{self.peak[name]:10,.0f}" if name in self.peak else ""
            print(f"{name:30}{seconds:9.2f}{seconds / whole:8.1%}{rate:13,.0f}{held}")
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{'whole':30}{whole:9.2f}{1:8.1%}{responses / whole:13,.0f}{max(self.peak.values()):10,.0f}")
        print(f"{responses:,} responses; the largest child process held {children:,.0f} MiB")


def begin():
    """Forget the largest memory so far; what the clock says."""
    Path("/proc/self/clear_refs").write_text("5")
    return time.perf_counter()


def peak():
    """Largest memory that this process has held since `begin`, MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def repeated(judge, folder, judged):
    """The judge, with the rows that it finds there: those of the run in `folder`, under the ids of all responses that
    repeat the ones judged in it."""

    def repeating(run, *arguments, **named):
        from tasks.contracts.tables.judging import Attempts, Gradings, Judgments
        from tasks.judge.shards import shards
        from tasks.judge.tables import item_counts
        from tasks.store.warehouse import Warehouse

        warehouse = Warehouse.open(folder / "warehouse")
        source = warehouse.run(warehouse.begun()[0])
        counts = item_counts(run, arguments[3])
        for name, parts in shards(counts):
            if not run.done("judge", name):
                tables = (Judgments, Gradings, Attempts)
                run.commit("judge", name, {table: rows_of(source, table, parts, judged) for table in tables})
        return judge(run, *arguments, **named)

    return repeating


def rows_of(source, table, parts, judged):
    """A table's rows of a shard, made of the judged ones; parts: item, first position and number of responses."""
    import pyarrow as pa

    pieces, per_round = [], judged // ITEMS
    for item, start, count in parts:
        rows, numbers = item_rows(source, table)[item]
        for turn in range(start // per_round, (start + count - 1) // per_round + 1):
            repeats = numbers + turn * judged
            kept = (repeats // ITEMS >= start) & (repeats // ITEMS < start + count)
            ids = pa.array([response_id(number) for number in repeats[kept]], pa.string())
            place = rows.column_names.index("response_id")
            pieces.append(rows.filter(pa.array(kept)).set_column(place, rows.schema.field(place), ids))
    return pa.concat_tables(pieces)


@cache
def item_rows(source, table):
    """Item → its rows of a table of the judged run, and the place in answers.csv of each row's response."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = source.read(source.ref(table, "judge"))
    numbers = pc.cast(pc.utf8_slice_codeunits(rows["response_id"], 1), pa.int64()).to_numpy()
    kept = {item: numbers % ITEMS == item for item in range(ITEMS)}
    return {f"item{item:02d}": (rows.filter(pa.array(mine)), numbers[mine]) for item, mine in kept.items()}


def main(responses, characters, features, judged, folder=None):
    """Grade an invented study of so many responses and print the figures; with a folder, only up to the judge, into
    it."""
    with tempfile.TemporaryDirectory() as name:
        place = folder or Path(name)
        study = write_study(place, responses, characters, features)
        if judged < responses:
            first = Path(name) / "judged"
            first.mkdir()
            same = ["--characters", str(characters), "--items", str(ITEMS)]
            subprocess.run([sys.executable, __file__, str(judged), *same, "--into", str(first)], check=True)
        os.environ |= {"PREFECT_API_URL": "", "GX_ANALYTICS_ENABLED": "false"}
        started = begin()
        from flows import grade as flow
        from flows import stage as stage_module
        from tasks.judge import task as judge
        from tasks.judge.rows import Rater
        from tasks.llm.backends.offline import Offline

        stages = Stages()
        answer = stages.count(OWN, decide)
        judge.rater = lambda *_: Rater("offline:bench:rulers", "simulated", Offline("bench", answer))
        for stage in ("plan", "ingest", "lock", "judge", "calibrate", "evaluate", "data_docs", "record", "report"):
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
    ITEMS = arguments.items
    judged = arguments.judged or arguments.responses
    main(arguments.responses, arguments.characters, arguments.features, judged, arguments.into)
