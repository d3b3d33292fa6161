"""Characters a second in which control tokens are looked for and broken: for servers, and with a tokenizer in hand.

python tests/bench/bench_control_tokens.py [FOLDER of a model]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks/core/llm"))

import chat_families as families

from rubricflow.tasks.core.llm.backends.chat import plain
from rubricflow.tasks.core.llm.backends.structure import Structure

ESSAY = ("The plant's light energy is, in fact, made of photons: a < b. " * 40)[:2_000]
TEXTS = {
    "essay of 2,000 characters": ESSAY,
    "the same with curly quotes": ESSAY.replace("'", "’"),
    "the same with dots and accents": ESSAY.replace(",", "…").replace("e", "é"),
    "context of 200,000 characters": ESSAY * 100,
    "1,000,000 times <": "<" * 1_000_000,
    "1,000,000 hidden characters": "<\u200b" * 500_000,
    "80,000 control tokens": "<|im_start|>" * 80_000,
    "40,000 tokens in tokens": "<|im_<|im_start|>start|>" * 40_000,
}


def seconds(act, text):
    """The best of some runs."""
    best = float("inf")
    for _ in range(max(3, 400_000 // len(text))):
        begun = time.perf_counter()
        act(text)
        best = min(best, time.perf_counter() - begun)
    return best


def main():
    known = {"servers": plain, "chatml": Structure(families.byte_level(families.FAMILIES["chatml"]), "chatml").plain}
    if len(sys.argv) > 1:
        from transformers import AutoTokenizer

        reader = AutoTokenizer.from_pretrained(sys.argv[1])
        known["its tokenizer alone"] = lambda text: reader(text, add_special_tokens=False)["input_ids"]
        known["with its tokenizer"] = Structure(reader, "model").plain
    for name, text in TEXTS.items():
        for way, act in known.items():
            took = seconds(act, text)
            print(f"{name:32} {way:20} {took * 1e3:9.2f} ms {len(text) / took / 1e6:8.2f} million characters/s")


if __name__ == "__main__":
    main()
