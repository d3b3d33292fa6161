"""Consistency memory at round size 1 against larger rounds, on an engine of 20 ms a call that answers a batch in
parallel, with a rater that anchors on exemplars: python tests/bench/bench_memory.py [items] [responses per item]."""

import hashlib
import json
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Bundle, ConsistencyMemory, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Case, Graded, Rater

CALL_S = 0.02
PARALLEL = 64
"""Requests that the engine answers in the time of one."""
ROUNDS = {"1": 1, "2": 2, "4": 4, "8": 8, "16": 16, "no memory": None}
"""Round sizes, all items side by side. The scores are compared with those of one call at a time."""
WORDS = re.findall(
    r"\w+",
    "light water soil roots leaves sugar warm cold grows lives dies drinks energy heat cell plant air green stem sun "
    "seed needs makes takes gives moves helps because therefore always never while under over into from",
)


class Slow:
    """An engine that takes CALL_S for up to PARALLEL requests. Its opinion is a score of its own for each response,
    and half-way between that and the mean of the exemplars' scores where it is shown any."""

    name, model = "slow", "slow"
    batch_size = 4_096
    reads_prose, by_subject = False, True

    def __init__(self) -> None:
        self.calls = self.batches = 0
        self._said: dict[str, float] = {}

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for start in range(0, len(requests), PARALLEL):
            some = requests[start : start + PARALLEL]
            self.calls, self.batches = self.calls + len(some), self.batches + 1
            time.sleep(CALL_S)
            yield from enumerate((Reply(text=self._reply(request)) for request in some), start)

    def _reply(self, request: Request) -> str:
        seed = hashlib.sha256(request.subject.encode()).digest()
        own = sum(seed[:4]) % 11
        anchors = [self._said[source.removeprefix("exemplar:")] for source in request.memory]
        score = round((own + sum(anchors) / len(anchors)) / 2) if anchors else own
        self._said[request.subject] = float(score)
        artifact = {
            "evidence": [],
            "covered": [],
            "missed": [1, 2],
            "rationale": "",
            "subscores": {"clarity": score, "coherence": score},
            "final_score": score,
        }
        return json.dumps(artifact)


def bundle_of(round_size: int | None) -> Bundle:
    memory = ConsistencyMemory(round_size=round_size) if round_size else None
    return Bundle(
        text="",
        scale=Scale(min=0, max=10),
        traits=(
            Trait(id="clarity", name="Clarity", min=0, max=10, source="judged"),
            Trait(id="coherence", name="Coherence", min=0, max=10, source="judged"),
            Trait(id="coverage", name="Coverage", min=0, max=10),
        ),
        criteria=tuple(Criterion(id=f"P{n}", trait="coverage", text=f"point {n}") for n in (1, 2)),
        protocol=Protocol(
            name="gradeagentops",
            final_score="trait_mean",
            signals=("score",),
            min_tokens=3,
            consistency_memory=memory,
        ),
    )


def cases_of(bundle: Bundle, texts: dict[str, str]) -> list[Case]:
    bundle_id = bundle.bundle_id
    return [
        Case(
            key, key.split("-")[0], text, tuple(units(text)), f"Question {key.split('-')[0]}?", None, bundle, bundle_id
        )
        for key, text in texts.items()
    ]


def run(texts: dict[str, str], round_size: int | None, is_sequential: bool = False) -> tuple[float, Slow, list[Graded]]:
    """Seconds, engine and what was graded: all items side by side, or one item after the other."""
    engine = Slow()
    cases = cases_of(bundle_of(round_size), texts)
    items = sorted({case.item_id for case in cases})
    batches = [[c for c in cases if c.item_id == item] for item in items] if is_sequential else [cases]
    with ReplyStore(":memory:") as replies:
        started = time.perf_counter()
        graded = [grade_batch(batch, Rater("slow:bench", "llm", engine), replies) for batch in batches]
        return time.perf_counter() - started, engine, graded


def main() -> None:
    items, count = map(int, sys.argv[1:3] or ("8", "60"))
    chance = random.Random(0)
    texts = {
        f"i{i}-r{n:04d}": " ".join(chance.choices(WORDS, k=chance.randint(20, 60))) + "."
        for i in range(items)
        for n in range(count)
    }
    print(f"{items} items of {count} responses; {CALL_S * 1000:.0f} ms a call, up to {PARALLEL} at once")
    print("round size     | seconds | engine waits | ours, ms/response | times as fast | anchored | same score | QWK")
    first: list[float] = []
    first_s = 0.0
    for name, round_size in (("1, one by one", 1), *ROUNDS.items()):
        seconds, engine, graded = run(texts, round_size, name == "1, one by one")
        found = {one.case.response_id: one.scored.score or 0.0 for batch in graded for one in batch.gradings}
        called = [one for batch in graded for one in batch.called]
        shown = sum(bool(one.answer.attempts[0].request.memory) for one in called) / len(texts)
        scores = [found[key] for key in texts]
        first, first_s = first or scores, first_s or seconds
        same = sum(a == b for a, b in zip(scores, first, strict=True)) / len(scores)
        agreement = qwk(first, scores, 0, 10).value
        ours = 1000 * (seconds - engine.batches * CALL_S) / len(texts)
        print(
            f"{name:<14} | {seconds:7.2f} | {engine.batches:12d} | {ours:17.2f} | {first_s / seconds:13.1f} | "
            f"{shown:8.0%} | {same:10.1%} | {agreement:.3f}"
        )


if __name__ == "__main__":
    main()
