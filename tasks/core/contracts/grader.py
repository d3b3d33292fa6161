"""A trained grader as the judge meets it: texts in, probabilities and a score out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Answered:
    """A response with what a grader may read beside it: x = (q, r, a) (REC-CBM, Eq. 1)."""

    question: str
    response: str
    reference: str | None = None
    """The model answer."""
    context: str | None = None
    """Material that belongs to the question."""


@dataclass(frozen=True)
class GraderOutput:
    """What a grader makes of one response."""

    levels: Mapping[str, list[float]]
    """Concept → probability of each of its levels."""
    grades: Mapping[float, float]
    """Score → its probability, calibrated where the grader was."""
    score: float
    """The most probable score."""


class Grader(Protocol):
    """A trained grader."""

    @property
    def name(self) -> str:
        """Names all that can change an estimate: backbone, method and a digest of the weights."""

    @property
    def concepts(self) -> Mapping[str, int]:
        """Concept → its number of levels."""

    @property
    def scores(self) -> Sequence[float]:
        """The scores that it gives."""

    def __call__(self, answered: Sequence[Answered]) -> list[GraderOutput]:
        """One estimate for each, in order; an estimate does not depend on the others beyond float rounding."""
