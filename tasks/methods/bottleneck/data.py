"""What graders learn from and what they say, as arrays. Rows are responses, in the order of their ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.stats.arrays import Floats, Ints

MISSING = -1
"""A concept or grade without a label: it enters no loss and no measure."""
BIAS = "bias"
"""In a trace, the place of a concept for what the head adds whatever the response says."""


@dataclass(frozen=True)
class Concepts:
    """The concepts of a bottleneck, in the bundle's order."""

    ids: tuple[str, ...]
    """Criterion ids."""
    names: tuple[str, ...]
    """What people read."""
    texts: tuple[str, ...]
    """What is looked for."""
    anchors: tuple[tuple[str, ...], ...]
    """The levels of each concept, level 0 first."""

    @property
    def tops(self) -> Ints:
        """M of each concept, its highest level, shape (K,)."""
        return np.array([len(levels) - 1 for levels in self.anchors], np.int64)


def concepts_of(bundle: Bundle) -> Concepts:
    """The decided criteria of a bundle, in its order."""
    criteria = bundle.criteria
    return Concepts(
        ids=tuple(criterion.id for criterion in criteria),
        names=tuple(bundle.names.values()),
        texts=tuple(criterion.text for criterion in criteria),
        anchors=tuple(criterion.levels for criterion in criteria),
    )


@dataclass(frozen=True)
class LabelledData:
    """The labels of a data set of n responses, K concepts and S + 1 grades."""

    response_ids: tuple[str, ...]
    """n ids, sorted."""
    concepts: Concepts
    levels: Ints
    """(n, K) levels 0…M_k, MISSING where there is none."""
    weights: Floats
    """(n, K) how much each label counts, in (0, 1]; 1 unless raters' own noise is modelled."""
    grades: Ints
    """(n,) grade classes 0…S, MISSING where there is none."""
    scores: Floats
    """(S + 1,) the score on the scale that each class stands for, rising."""
    split: npt.NDArray[np.str_]
    """(n,) train, calibration or test."""

    def rows(self, split: str) -> Ints:
        """Rows of a split, in order."""
        return np.flatnonzero(self.split == split)


@dataclass(frozen=True)
class Estimates:
    """What a grader says of n responses."""

    levels: Floats | None
    """(n, K, M + 1) probability of each level, M the largest M_k, 0 beyond a concept's own top; None where a grader has
    no concepts."""
    grades: Floats
    """(n, S + 1) probability of each grade, before it is calibrated."""

    def of(self, rows: Ints) -> Estimates:
        """Those of some rows."""
        return Estimates(None if self.levels is None else self.levels[rows], self.grades[rows])

    @property
    def grade(self) -> Ints:
        """(n,) the most probable grade."""
        chosen: Ints = self.grades.argmax(axis=1)
        return chosen

    def chosen(self) -> Ints:
        """(n, K) the most probable level of each concept, of a grader that has concepts."""
        assert self.levels is not None
        chosen: Ints = self.levels.argmax(axis=2)
        return chosen

    def shares(self, tops: Ints) -> Floats:
        """(n, K) s̃, the expected level over the concept's top, in [0, 1] (Eqs. 13 and 18)."""
        assert self.levels is not None
        return shares_of(self.levels, tops)


def shares_of(levels: Floats, tops: Ints) -> Floats:
    """(n, K) s̃ of level probabilities (n, K, M + 1), see `Estimates.shares`."""
    expected: Floats = levels @ np.arange(levels.shape[2])
    return expected / tops
