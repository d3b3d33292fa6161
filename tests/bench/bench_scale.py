"""The whole flow on an invented study, and where its time and memory go: python tests/bench/bench_scale.py [RESPONSES].

Twenty items, three criteria each, two human scores a response, and a judge that answers at once: it looks for each
criterion's word, quotes the sentence that has it, and invents one quote in twenty. `--characters N` adds sentences that
say nothing until an answer has that many characters; `--profile` adds what the judge's stage spends its time on.
`--engine ray` (or dask; local for comparison) judges by a server of the same judge instead, with `--address`,
`--warehouse` and `--replies` as the command has them; a new prefix each time.
"""

import argparse
import cProfile
import csv
import json
import os
import pstats
import random
import re
import resource
import sys
import tempfile
import time
import zlib
from collections import Counter
from functools import partial
from pathlib import Path

from keyword_server import KeywordServer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

OWN = "answers"
ITEMS, CRITERIA, RESPONSES, PER_AUTHOR = 20, 3, 20_000, 20
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


def write_study(folder, responses, characters, judge=STUDY["judge"]):
    """The files of a study, a row at a time; the path of its study file."""
    rng = random.Random(0)
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
            writer.writerow(response(n, rng, characters))
    (folder / "study.yaml").write_text(json.dumps(STUDY | {"judge": judge}))
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


def response(number, rng, characters):
    """A row of answers.csv: some 40 words in four sentences, as many more as it takes to have so many characters, and
    two noisy scores of what they say."""
    item = number % ITEMS
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
    text = " ".join(" ".join(words).capitalize() + "." for words in sentences)
    scores = [min(6, max(0, sum(levels) + rng.choice((-1, 0, 0, 1)))) for _ in range(2)]
    author = number // PER_AUTHOR
    return [f"r{number:07d}", f"item{item:02d}", f"a{author:06d}", "de" if author % 3 else "en", text, *scores]


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
    """Seconds of each stage, and the most memory that the process had held when it ended."""

    def __init__(self):
        self.seconds, self.peak = Counter(), {}

    def watch(self, name, act):
        """The act, timed; a name that is a function is made from what the act was given last."""

        def watched(*arguments, **named):
            started = time.perf_counter()
            try:
                return act(*arguments, **named)
            finally:
                self.add(name(arguments[-1]) if callable(name) else name, started)

        return watched

    def add(self, name, started):
        """Count the time since then for a stage."""
        self.seconds[name] += time.perf_counter() - started
        self.peak[name] = peak()

    def show(self, responses, whole):
        """Print the table."""
        own = self.seconds.pop(OWN, 0.0)
        self.seconds["judge"] -= own
        self.seconds["judge's answers (not ours)"] = own
        self.seconds["what is between them"] = whole - sum(self.seconds.values())
        print(f"{'stage':30}{'seconds':>9}{'share':>8}{'responses/s':>13}{'peak MiB':>10}")
        for name, seconds in self.seconds.items():
            rate = responses / seconds if seconds else float("inf")
            print(f"{name:30}{seconds:9.2f}{seconds / whole:8.1%}{rate:13,.0f}{self.peak.get(name, peak()):10,.0f}")
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{'whole':30}{whole:9.2f}{1:8.1%}{responses / whole:13,.0f}{peak():10,.0f}")
        print(f"{responses:,} responses; the largest child process held {children:,.0f} MiB")


def peak():
    """Largest memory that this process has held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
        study = write_study(folder, responses, characters, judge_settings)
        if place.replies:
            os.environ["RUBRICFLOW_REPLIES"] = place.replies
        os.environ |= {"PREFECT_API_URL": "", "GX_ANALYTICS_ENABLED": "false"}
        started = time.perf_counter()
        from flows import grade as flow
        from flows import stage as stage_module
        from tasks.judge import task as judge
        from tasks.judge.rows import Rater
        from tasks.llm.backends.offline import Offline
        from tasks.store.recorded import read_manifest
        from tasks.store.warehouse import Warehouse

        stages = Stages()
        answer = stages.watch(OWN, decide)
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
