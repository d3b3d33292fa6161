"""The invented study of bench_stage_memory and scale/efficiency, a judge for it that needs no time, a watch on stages.

Items with three criteria each, two human scores a response. Answers and scores may repeat after so many responses,
under other ids and each text with its number.
"""

import csv
import json
import random
import re
import resource
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

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


def write_study(folder, responses, characters, items=ITEMS, repeat=None, **changes):
    """The files of a study, a row at a time; the path of its study file. repeat: responses after which they
    repeat; changes: sections of it."""
    with (folder / "items.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item_id", "question", "rubric_id"])
        writer.writerows(
            [f"item{n:02d}", f"What happens in case {n}, and why?", f"rubric{n:02d}"] for n in range(items)
        )
    (folder / "rubrics.yaml").write_text(json.dumps({"rubrics": [rubric(n) for n in range(items)]}))  # JSON is YAML
    with (folder / "answers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "item", "author", "language", "text", "one", "two"])
        for n in range(responses):
            writer.writerow(response(n, items, characters, repeat or responses))
    (folder / "study.yaml").write_text(json.dumps(STUDY | changes))
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


def response(number, items, characters, repeat):
    """A row of answers.csv: some 40 words in four sentences, as many more as it takes to have so many characters, and
    two noisy scores of what they say."""
    item, rng = number % items, random.Random(number % repeat)
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
    from rubricflow.tasks.core.llm.request import Reply

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


CRITERION = re.compile(r"^- (P\d+) .*explains (\w+)\.$", re.MULTILINE)
SENTENCE = re.compile(r"^\[(sentence \d+)\] (.*)$", re.MULTILINE)


def by_keywords(body):
    """The same judge behind a server: the artifact that a request's body gets."""
    system, response = (message["content"] for message in body["messages"][:2])
    sentences, decisions = SENTENCE.findall(response), {}
    for criterion, word in CRITERION.findall(system):
        unit, text = next(((unit, text) for unit, text in sentences if word in text.lower()), (None, ""))
        quote = "nobody wrote these words" if zlib.crc32(text.encode()) % 20 == 0 else text
        level = 0 if unit is None else 2 if f"{word} because" in text.lower() else 1
        decisions[criterion] = {"evidence": [{"unit": unit, "quote": quote}] if level else [], "level": level}
    return {"decisions": decisions}


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
