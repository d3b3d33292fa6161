"""Answers that the sentence encoder reads in a second of processor time, beside sentence-transformers' own loop.

    python tests/bench/bench_encoder.py [ANSWERS] [ROUNDS]

The demo's answers, or ANSWERS of them (100), are read whole, in turns, ROUNDS times (3), by as many threads
as OpenVINO takes and one of PyTorch's, whose threads spin while they wait; processor time of all threads counts.
Printed: answers a second for each, the ratio of the medians, and the cosine between the two vectors of an answer.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

from rubricflow.tasks.core.llm import encoder
from rubricflow.tasks.core.llm.encoder import MiniLM
from rubricflow.tasks.grading.calibrate.features import embed

HOUSE = Path(__file__).resolve().parents[2]


def answers(number: int) -> list[str]:
    """The first answers of the demo that have a text."""
    texts = pd.concat(pd.read_csv(HOUSE / "data" / "demo" / f"responses{part}.csv")["text"] for part in ("", "_b"))
    return texts.dropna().sample(frac=1, random_state=0).tolist()[:number]


def timed(read: Callable[[Sequence[str]], np.ndarray], texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """The vectors, and answers a second of processor time."""
    start = time.process_time()
    vectors = read(texts)
    return vectors, len(texts) / (time.process_time() - start)


def main(number: int, rounds: int) -> None:
    texts = answers(number)
    torch.set_num_threads(1)
    ours = MiniLM()
    folder = Path(__import__(encoder._PACKAGE).__file__).parent / "model"
    plain = SentenceTransformer(str(folder), device="cpu")
    plain.max_seq_length = encoder._MAX_TOKENS

    def read(texts: Sequence[str]) -> np.ndarray:
        ours._kept.clear()  # each round reads anew
        return embed(texts, ours)

    rates: dict[str, list[float]] = {"ours": [], "sentence-transformers": []}
    for _ in range(rounds):
        found, rate = timed(read, texts)
        rates["ours"].append(rate)
        expected, rate = timed(lambda texts: plain.encode(texts, normalize_embeddings=True), texts)
        rates["sentence-transformers"].append(rate)
    whole = np.array([len(text.split()) <= 150 for text in texts])  # longer ones are read in windows
    cosine = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1)
    for name, values in rates.items():
        median, spread = statistics.median(values), f"{min(values):.1f} to {max(values):.1f}"
        print(f"{name:22} {median:7.1f} answers a processor second ({spread})")
    ratio = statistics.median(rates["ours"]) / statistics.median(rates["sentence-transformers"])
    print(f"{ratio:.2f} times as many; cosine of the vectors at least {cosine[whole].min():.4f}; {ours.made}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
