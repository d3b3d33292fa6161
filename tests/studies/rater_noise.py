"""Whether labels weighed by each rater's own noise are better than plain ones: simulated, so that the truth is known.

python tests/studies/rater_noise.py [--responses N] [--seeds N]

A concept's true share z is normal, made of whole levels, or skewed, with most responses near the top; two, three or
five raters mark it on a scale of three or five levels, with noise and severity (SD 0.1) of their own and a third of the
marks missing. One who keeps to the middle halves all distances from it, which the model does not know. Printed for each
way of making one label: the root mean squared error of its share of the scale to z (of the estimate before it is
rounded, for all but the majority), and how often its level is the true one, z rounded. Means over seeds; the last
column is the largest standard error of a mean of the line.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from rubricflow.tasks.methods.bottleneck.rater_noise import consensus, rater_noise

NOISE = {
    "3 equal": (0.2, 0.2, 0.2),
    "3 unequal": (0.08, 0.2, 0.35),
    "3, one in the middle": (0.2, 0.2, 0.2),
    "5 equal": (0.2,) * 5,
    "5 unequal": (0.08, 0.15, 0.2, 0.3, 0.4),
    "2 unequal": (0.08, 0.35),
}
TRUTHS = ("normal", "levels", "skewed")
SEVERITY = 0.1
WAYS = ("plain mean", "majority", "rater noise")


def simulated(rng: np.random.Generator, n: int, raters: str, top: int, truth: str) -> tuple[np.ndarray, np.ndarray]:
    """(marks (n, 1, R), true shares (n,))."""
    noise = np.array(NOISE[raters])
    shares = rng.beta(4, 1, n) if truth == "skewed" else rng.normal(0.6, 0.25, n)
    if truth == "levels":
        shares = rounded(shares, top) / top
    bias = rng.normal(0, SEVERITY, len(noise))
    seen = np.repeat(shares[:, None], len(noise), axis=1)
    if raters.endswith("middle"):
        seen[:, 0] = 0.5 + (seen[:, 0] - 0.5) / 2
    marks = rounded(seen + bias - bias.mean() + rng.normal(size=seen.shape) * noise, top).astype(float)
    absent = rng.random(marks.shape) < 1 / 3
    absent[np.arange(n), rng.integers(0, len(noise), n)] = False
    return np.where(absent, np.nan, marks)[:, None], shares


def rounded(shares: np.ndarray, top: int) -> np.ndarray:
    return np.clip(np.floor(shares * top + 0.5), 0, top).astype(np.int64)


def majority(marks: np.ndarray, top: int) -> np.ndarray:
    """The level that most gave; of equally frequent ones the one nearer the mean."""
    votes = (marks[:, :, None] == np.arange(top + 1)).sum(axis=1)
    away = np.abs(np.nanmean(marks, axis=1)[:, None] - np.arange(top + 1))
    return (votes - away / (top + 1)).argmax(axis=1)


def tried(marks: np.ndarray, truth: np.ndarray, top: int) -> np.ndarray:
    """(ways, 2) RMSE and accuracy."""
    tops = np.array([top])
    mean, most = np.nanmean(marks[:, 0], axis=1) / top, majority(marks[:, 0], top)
    latent = rater_noise(marks, tops).latent[:, 0]
    found = ((mean, rounded(mean, top)), (most / top, most), (latent, consensus(marks, tops).levels[:, 0]))
    right = rounded(truth, top)
    return np.array([[np.sqrt(np.mean((share - truth) ** 2)), (level == right).mean()] for share, level in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--responses", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    heads = [f"{name}: {way}" for name in ("RMSE", "right") for way in WAYS]
    print(f"{options.responses} responses, {options.seeds} seeds")
    print(f"{'raters':<22}levels  truth   " + "  ".join(f"{head:>18}" for head in heads) + "  error")
    for raters, top, truth in product(NOISE, (2, 4), TRUTHS):
        runs = []
        for seed in range(options.seeds):
            runs.append(tried(*simulated(np.random.default_rng(seed), options.responses, raters, top, truth), top))
        mean = np.mean(runs, axis=0).T.ravel()
        error = (np.std(runs, axis=0, ddof=1) / np.sqrt(options.seeds)).max()
        line = "  ".join(f"{value:18.3f}" for value in mean)
        print(f"{raters:<22}{top + 1:6d}  {truth:<7} {line}  {error:5.3f}")


if __name__ == "__main__":
    main()
