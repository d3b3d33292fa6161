"""Responses a second by an exported grader, short answers and essays: python tests/bench/bench_grader.py.

Two cores, or as many as OMP_NUM_THREADS says. MiniLM, frozen, eight concepts. Batches of like length beside one
response at a time, and beside batches in the order given that are padded to the longest input of all. Which concepts
and grades it learned does not matter to the speed.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["OMP_WAIT_POLICY"] = "passive"  # on a busy machine threads that wait would eat the time of those that work
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.grader import Answered
from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.methods.bottleneck import backbone as backbones
from rubricflow.tasks.methods.bottleneck.data import LabelledData
from rubricflow.tasks.methods.bottleneck.fit import Trained
from rubricflow.tasks.methods.bottleneck.grader import load, save
from rubricflow.tasks.methods.bottleneck.labelled import concepts_of
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, LatentHead

CONCEPTS, LEVELS, GRADES = 8, 3, 6
CASES = (("answers of about 60 tokens", 60, 320), ("essays of about 400 tokens", 400, 24))
BATCH = 16
WORDS = ("the", "plant", "needs", "light", "water", "air", "grow", "because", "sugar", "leaves", "carbon", "dioxide")


def exported(folder):
    """A grader with random numbers, written and read back."""
    bundle = Bundle(
        text="",
        scale=Scale(min=0, max=GRADES - 1),
        traits=(Trait(id="t", name="T", min=0, max=GRADES - 1),),
        criteria=tuple(
            Criterion(id=f"c{k}", trait="t", text="Says it.", levels=tuple("abcdefg"[:LEVELS])) for k in range(CONCEPTS)
        ),
        protocol=Protocol(name="bottleneck", final_score="judged", signals=("score",)),
    )
    concepts = concepts_of(bundle)
    data = LabelledData(
        response_ids=("r",),
        concepts=concepts,
        levels=np.zeros((1, CONCEPTS), np.int64),
        weights=np.ones((1, CONCEPTS)),
        grades=np.zeros(1, np.int64),
        scores=np.arange(GRADES, dtype=np.float64),
        split=np.array(["train"]),
    )
    backbone = backbones.load(backbones.MINILM)
    model, head = ConceptEncoder(backbone.width, concepts.tops), LatentHead(CONCEPTS, GRADES).double().as_head()
    trained = Trained("rec_cbm", 0, "", model, head, None, (1, 1), None, 0, 0.0, [], None)
    path = folder / "grader.safetensors"
    save(path, trained, head, Training(), data, bundle, backbone, backbones.MINILM)
    began = time.perf_counter()
    grader = load(path)
    print(f"read back, encoder included, in {time.perf_counter() - began:.2f} s; {path.stat().st_size / 1024:.0f} KiB")
    return grader, backbone


def written(rng, tokens, count):
    """Responses whose lengths scatter around `tokens` as students' do."""
    lengths = np.maximum(5, rng.lognormal(np.log(tokens), 0.4, count)).astype(int)
    return [Answered("What does a plant need to grow?", " ".join(rng.choice(WORDS, length))) for length in lengths]


def padded(grader, backbone, answered):
    """What the same network takes in batches in the order given, all padded to the longest input."""
    tokens = backbone.tokenize(answered)
    longest = int(tokens.lengths.max())
    for at in range(0, len(answered), BATCH):
        rows = range(at, min(at + BATCH, len(answered)))
        ids = np.full((len(rows), longest), backbone.marks.padding, np.int64)
        for place, row in zip(ids, rows, strict=True):
            place[: tokens.lengths[row]] = tokens.ids[tokens.row(row)]
        mask = torch.from_numpy(np.arange(longest) < tokens.lengths[list(rows)][:, None])
        with torch.inference_mode():
            grader._model(backbone.states(torch.from_numpy(ids), mask, torch.zeros(mask.shape)), mask)


def rate(work, count):
    """Responses a second, the better of two runs."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return count / min(took)


def main():
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        grader, backbone = exported(Path(folder))
        for name, tokens, count in CASES:
            answered = written(rng, tokens, count)
            few = answered[: count // 8]
            grader(few)  # warm
            fast = rate(lambda of=answered: grader(of), count)
            single = rate(lambda of=few: [grader([one]) for one in of], len(few))
            flat = rate(lambda of=answered: padded(grader, backbone, of), count)
            traced = rate(lambda of=few: grader.traces([str(i) for i in range(len(of))], of), len(few))
            print(
                f"{name}: {fast:.0f} responses/s; {fast / single:.1f} times one by one ({single:.0f}/s), "
                f"{fast / flat:.1f} times padded to the longest ({flat:.0f}/s); with traces {traced:.0f}/s"
            )


if __name__ == "__main__":
    main()
