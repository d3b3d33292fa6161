"""What an engine costs around the engine: python tests/bench/bench_waves.py [RESPONSES PER ITEM], in .venv-vllm.

The tests' random model grades the demo under rulers, with structured output. Waves against one call after the other on
the same engine in this process; then the same through vLLM's server. Prints, for each: responses/s, contract-valid
share, prefix-cache hit rate, tokens per response by part, and what a response costs beyond the engine's own time.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests" / "engines")]
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


class Timed:
    """A backend and the seconds that its answers were waited for."""

    def __init__(self, backend, batch_size=None):
        self.name, self.model, self.batch_size = backend.name, backend.model, batch_size or backend.batch_size
        self.by_subject, self.reads_prose = backend.by_subject, backend.reads_prose
        self._backend, self.seconds = backend, 0.0

    def answer(self, requests):
        arriving = self._backend.answer(requests)
        while True:
            begun = time.perf_counter()
            item = next(arriving, None)
            self.seconds += time.perf_counter() - begun
            if item is None:
                return
            yield item


def graded(cases, backend, sampling, batch_size=None):
    """(seconds, seconds in the engine, attempts) of grading cases anew, tables made."""
    from rubricflow.tasks.core.contracts.tables.judging import Attempts
    from rubricflow.tasks.core.llm.reply_store import ReplyStore
    from rubricflow.tasks.grading.judge.grade import grade_batch
    from rubricflow.tasks.grading.judge.rater import Levelled
    from rubricflow.tasks.grading.judge.rows import Rater

    timed = Timed(backend, batch_size)
    with tempfile.TemporaryDirectory() as folder, ReplyStore(Path(folder) / "replies.sqlite") as store:
        begun = time.perf_counter()
        who = Rater("bench", "llm", Levelled(timed), sampling=sampling, want_logprobs=True)
        tables = grade_batch(cases, who, store).tables()
        return time.perf_counter() - begun, timed.seconds, tables[Attempts].to_pylist()


def say(name, cases, seconds, engine, attempts):
    """The figures of one way of asking."""
    parts, prompt = Counter(), sum(a["prompt_tokens"] for a in attempts)
    for attempt in attempts:
        sizes = dict(attempt["characters"])
        for part, size in sizes.items():
            parts[part] += attempt["prompt_tokens"] * size / sum(sizes.values())
    parts["reply"] = sum(a["completion_tokens"] for a in attempts)
    valid = sum(a["error"] is None and not broken(a) for a in attempts) / len(attempts)
    cached = sum(a["cached_tokens"] or 0 for a in attempts) / prompt
    shares = ", ".join(f"{part} {count / len(cases):.0f}" for part, count in parts.items())
    print(
        f"{name}: {len(cases) / seconds:.2f} responses/s, {1000 * (seconds - engine) / len(cases):.2f} ms a response "
        f"beyond the engine, contract-valid {valid:.1%}, prefix-cache hits {cached:.1%} of prompt tokens\n"
        f"    tokens a response: {shares}"
    )


def broken(attempt):
    """Violations of the contract; a quote that the random model invented is none."""
    return [v for v in attempt["violations"] if v.partition(":")[0] != "evidence_failed"]


def bench(per_item, folder):
    from demo import write_study
    from serving import ModelServer
    from tiny_model import OPTIONS, make

    from rubricflow.flows.validate import _read_study
    from rubricflow.tasks.core.contracts.settings.engine import Sampling
    from rubricflow.tasks.core.contracts.settings.judge import Judge
    from rubricflow.tasks.core.llm.opening import open_backend

    make(folder / "tiny")
    server = ModelServer(folder / "tiny", "tiny", folder / "server.log").ready()
    try:
        engine = {"model": "tiny", "logprobs": 10, "options": OPTIONS, "urls": [server.url]}
        study = write_study(folder / "study.yaml", "vllm", {"model": "tiny"}, final_score="weighted_points")
        cases = [case for _, _, some in _read_study(study, per_item).items for case in some]
        sampling = Sampling(temperature=0.8, max_tokens=8000)
        local, remote = (open_backend(Judge(backend=kind, engine=engine), folder, None) for kind in ("vllm", "openai"))
        graded(cases[:2], local, sampling)  # loads the model
        waves = graded(cases, local, sampling)
        say("in process, waves", cases, *waves)
        few = cases[:: max(1, len(cases) // 8)]
        single = graded(few, local, Sampling(temperature=0.8, max_tokens=8000, seed=1), batch_size=1)
        say("in process, one after the other", few, *single)
        print(f"waves are {(single[0] / len(few)) / (waves[0] / len(cases)):.1f} times as fast")
        say("server, waves", cases, *graded(cases, remote, sampling))
    finally:
        server.stop()


if __name__ == "__main__":
    if importlib.util.find_spec("vllm") is None:
        print("needs vLLM: make test-vllm, then .venv-vllm/bin/python tests/bench/bench_waves.py")
        sys.exit(0)
    with tempfile.TemporaryDirectory() as here:
        bench(int(sys.argv[1]) if len(sys.argv) > 1 else 6, Path(here))
