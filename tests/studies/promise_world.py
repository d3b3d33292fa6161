"""Simulated classes whose truth is known: people, a judge, authors and items, and what a released score is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

SCALE = Scale(min=0, max=5)
TOP = SCALE.levels - 1
PERSON = 0.45
"""Standard deviation of one person's mark around the true one, in steps."""
ALIKE = 0.5
"""Share of the variance of what makes the judge err that authors bring with them, where they do."""
ANSWERS = 6
"""Answers of an author, over all items."""
TOLERANCE = 1.0
ITEMS = ("easy", "middling", "hard")
HARDER = (0.7, 1.0, 1.6)
"""The judge's error on each item, in that of the middling one."""


@dataclass(frozen=True)
class World:
    """raters: people who mark a response; clustered: whether authors answer several items, and err alike; noise: the
    judge's error, in steps; blind: whether what the judge says of its uncertainty is worth nothing."""

    raters: int
    clustered: bool
    noise: float
    blind: bool = False

    def __str__(self) -> str:
        authors = "authors" if self.clustered else "single"
        return f"{self.raters} rater{'s' * (self.raters > 1)}, {authors}, noise {self.noise:g}{', blind' * self.blind}"


def drawn(world: World, n: int, rng: np.random.Generator) -> tuple[LabelledRows, Floats]:
    """(n responses to each item, pooled, with true marks in steps); those of new authors in every draw."""
    (labels,), truth = drawn_by_judges(world, (world.noise,), 0.0, n, rng)
    return labels, truth


def drawn_by_judges(
    world: World, noises: Sequence[float], in_common: float, n: int, rng: np.random.Generator
) -> tuple[list[LabelledRows], Floats]:
    """(the same responses as each of several judges sees them, true marks). noises: the error of each, in place of the
    world's; in_common: share of the variance of their errors that they have in common."""
    item = np.repeat(np.arange(len(ITEMS)), n)
    size = len(item)
    author = rng.permutation(size) // ANSWERS if world.clustered else np.arange(size)
    alike = ALIKE if world.clustered else 0.0
    own, shared = rng.normal(size=(2, size)), rng.normal(size=(2, author.max() + 1))[:, author]
    skill, error = np.sqrt(alike) * shared + np.sqrt(1 - alike) * own
    truth = TOP * norm.cdf(0.3 + skill)
    unsure = rng.uniform(0.1, 1.9, size)
    marks = np.clip(np.floor(truth[:, None] + rng.normal(0, PERSON, (size, world.raters)) + 0.5), 0, TOP)
    told = rng.uniform(0.1, 1.9, size) if world.blind else unsure
    seen = []
    for noise in noises:
        alone = rng.normal(size=size) if len(noises) > 1 else error
        mixed = np.sqrt(in_common) * error + np.sqrt(1 - in_common) * alone
        raw = np.clip(truth + noise * np.array(HARDER)[item] * unsure * mixed, 0, TOP) / TOP
        labels = LabelledRows(
            names=("score", "uncertainty"),
            left_out=(),
            items=ITEMS,
            scales=(SCALE,) * len(ITEMS),
            low=0.0,
            high=1.0,
            item=item,
            raw=raw,
            human=marks.mean(axis=1) / TOP,
            matrix=np.column_stack([raw, told]),
            weight=np.full(size, float(world.raters)),
            cluster=np.char.add("author ", author.astype(str)),
            weak=np.zeros(size, dtype=np.bool_),
        )
        seen.append(labels)
    return seen, truth


def wrongness(level: Floats, truth: Floats, raters: int, tolerance: float) -> Floats:
    """Probability, (n,), that the mean of so many people's marks differs from the level by more than the tolerance."""
    ends = np.concatenate([[-np.inf], np.arange(TOP) + 0.5, [np.inf]])
    one = np.diff(norm.cdf((ends - truth[:, None]) / PERSON), axis=1)
    sums = one
    for _ in range(raters - 1):
        wider = np.zeros((len(truth), sums.shape[1] + TOP))
        for mark in range(TOP + 1):
            wider[:, mark : mark + sums.shape[1]] += one[:, [mark]] * sums
        sums = wider
    means = np.arange(sums.shape[1]) / raters
    return np.asarray((sums * (np.abs(means - level[:, None]) > tolerance + 1e-9)).sum(axis=1), dtype=np.float64)
