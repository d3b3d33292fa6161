"""What three choices in training a bottleneck grader save: python tests/bench/bench_bottleneck.py.

Stage II on what Stage I said, computed once, beside Stage I anew for each batch (Algorithm 1, line 20); states in
batches of like lengths beside batches padded to the longest input; attention of all concepts in one product beside a
loop over them. On one core, processor time.
"""

import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from rubricflow.tasks.core.contracts.grader import Answered
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.loop import denoising_loss, sparsity_loss, task_loss
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, LatentHead, expected_levels
from rubricflow.tasks.methods.bottleneck.states import Cached, States, encode

CONCEPTS, GRADES, TOP, WIDTH, BATCH = 8, 6, 2, 384, 8
RESPONSES, EPOCHS = 400, 20
WORDS = ["water", "plants", "light", "energy", "because", "food", "the", "grow", "sun", "leaf"]


def timed(act, repeats=1):
    """Result and least processor time of some runs."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        result = act()
        times.append(time.process_time() - started)
    return result, min(times)


def lengths(rng, n, middle):
    """Token counts as in essays and answers: some much longer than most."""
    return np.clip(rng.lognormal(np.log(middle), 0.6, n), 8, 480).astype(np.int64)


def random_states(rng, counts):
    """Cached states of inputs of these lengths."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Cached(States(rng.normal(size=(starts[-1], WIDTH)).astype(np.float16), starts))


def stage_2(rng):
    """Print an epoch-budget of Stage II with Stage I's shares kept, and with them made anew for each batch."""
    encoder = random_states(rng, lengths(rng, RESPONSES, 100))
    model = ConceptEncoder(WIDTH, [TOP] * CONCEPTS)
    levels = torch.from_numpy(rng.integers(0, TOP + 1, (RESPONSES, CONCEPTS)))
    grades = torch.from_numpy(rng.integers(0, GRADES, RESPONSES))
    tops, weights = torch.full((CONCEPTS,), TOP), torch.ones(RESPONSES, CONCEPTS).double()

    def shares(rows):
        with torch.no_grad():
            return (expected_levels(model(*encoder(rows))) / tops).double()

    def train(shares_of):
        head = LatentHead(CONCEPTS, GRADES).double()
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.02)
        drawn = np.random.default_rng(0)
        for _ in range(EPOCHS):
            for rows in np.split(drawn.permutation(RESPONSES), RESPONSES // BATCH):
                logits, posterior = head(shares_of(rows))
                loss = task_loss(logits, grades[rows]) + 0.005 * sparsity_loss(head.factor)
                loss = loss + 0.1 * denoising_loss(posterior, levels[rows], tops, weights[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return head

    def once():
        kept = torch.cat([shares(rows) for rows in np.split(np.arange(RESPONSES), RESPONSES // BATCH)])
        return train(lambda rows: kept[rows])

    once()
    (one, fast), (other, slow) = timed(once), timed(lambda: train(shares))
    gap = (one.weights - other.weights).abs().max().item()
    print(
        f"stage II, {RESPONSES} responses, {EPOCHS} epochs: shares kept {fast:.2f} s, read anew from frozen "
        f"states {slow:.2f} s, {slow / fast:.1f} times; largest difference in W {gap:.0e}; "
        "an encoder run anew would add to that"
    )
    assert gap < 1e-4


def encoding(rng):
    """Print the encoding of responses in batches of like lengths, and in their order padded to the longest."""
    backbone = load("minilm")
    counts = lengths(rng, 96, 80)
    tokens = backbone.tokenize([Answered("", " ".join(rng.choice(WORDS, int(n)))) for n in counts])
    longest = int(tokens.lengths.max())

    def padded():
        found = []
        for rows in np.split(np.arange(len(counts)), len(counts) // BATCH):
            ids = torch.zeros(len(rows), longest, dtype=torch.long)
            for place, row in zip(ids, rows, strict=True):
                place[: tokens.lengths[row]] = torch.from_numpy(tokens.ids[tokens.row(row)])
            mask = torch.arange(longest) < torch.from_numpy(tokens.lengths[rows])[:, None]
            with torch.inference_mode():
                found.append(backbone.states(ids, mask, torch.zeros_like(ids))[mask].numpy())
        return np.concatenate(found)

    encode(backbone, tokens)
    (ours, fast), (theirs, slow) = timed(lambda: encode(backbone, tokens).values), timed(padded)
    gap = np.abs(ours - theirs).max()
    share = tokens.starts[-1] / (len(counts) * longest)
    print(
        f"encoding {len(counts)} responses of {tokens.lengths.mean():.0f} tokens, {longest} at most: like lengths "
        f"{fast:.1f} s, padded to the longest {slow:.1f} s, {slow / fast:.1f} times; {share:.0%} of its places are "
        f"tokens; largest difference {gap:.0e}, of half precision"
    )
    assert gap < 1e-2


def attention(rng):
    """Print a forward and backward pass with all concepts in one product, and concept by concept."""
    model = ConceptEncoder(WIDTH, [TOP] * CONCEPTS)
    states, mask = random_states(rng, lengths(rng, BATCH, 200))(np.arange(BATCH))

    def looped():
        logits = []
        for query, classifier in zip(model.queries, model.classifiers, strict=True):
            alpha = (states @ query).masked_fill(~mask, -torch.inf).softmax(1)
            logits.append((alpha[:, :, None] * states).sum(1) @ classifier.T)
        return torch.stack(logits, 1)

    def passes(forward):
        for _ in range(50):
            model.zero_grad()
            logits = forward()
            logits.square().mean().backward()
        return logits.detach(), model.queries.grad.clone()

    passes(looped)
    (ours, fast), (theirs, slow) = (
        timed(lambda: passes(lambda: model(states, mask)), 3),
        timed(lambda: passes(looped), 3),
    )
    gap = max((one - other).abs().max().item() for one, other in zip(ours, theirs, strict=True))
    print(
        f"{CONCEPTS} concepts, {BATCH} responses, {states.shape[1]} tokens, forward and backward: one product "
        f"{1e3 * fast / 50:.2f} ms, a loop {1e3 * slow / 50:.2f} ms, {slow / fast:.1f} times; "
        f"largest difference {gap:.0e}"
    )
    assert gap < 1e-4


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    attention(rng)
    stage_2(rng)
    encoding(rng)


if __name__ == "__main__":
    main()
