"""What the page shows, section by section: the values, their takeaway, and why a value is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate

T = TypeVar("T")
FIRST, MOST = 12, 60
"""Rows of a long list that are shown at once, and that are in the page at all; the tables hold the others."""


@dataclass(frozen=True)
class FoldedList(Generic[T]):
    """A long list: the rows shown at once, those folded away, and how many are only in the tables."""

    first: tuple[T, ...] = ()
    folded: tuple[T, ...] = ()
    left_out: int = 0

    @property
    def rows(self) -> tuple[T, ...]:
        """The rows that the page holds."""
        return self.first + self.folded


def listed(rows: Sequence[T], first: int = FIRST) -> FoldedList[T]:
    """The rows in their order, worst first."""
    return FoldedList(tuple(rows[:first]), tuple(rows[first:MOST]), max(0, len(rows) - MOST))


@dataclass(frozen=True)
class NamedCount:
    """A count under a name, and its share of a stated whole where there is one."""

    name: str
    count: int
    share: float | None = None
    meaning: str = ""


@dataclass(frozen=True)
class NamedEstimate:
    """A named estimate."""

    name: str
    estimate: Estimate
    unit: Unit = "number"
    meaning: str = ""


@dataclass(frozen=True)
class LookFirst:
    """One thing to look at first, and the section it is in."""

    text: str
    anchor: str


@dataclass(frozen=True)
class KeyFigure:
    """A key figure of the released (else of all) scores beside that of people."""

    name: str
    unit: Unit
    machine: Estimate
    people: Estimate


@dataclass(frozen=True)
class ReportHead:
    """Title and key figures."""

    study: str
    date: str
    title: str
    looks: tuple[LookFirst, ...]
    keys: tuple[KeyFigure, ...]
    keys_scope: str
    cautions: tuple[str, ...]
    """What to know of intervals that are marked."""


@dataclass(frozen=True)
class OutcomeSection:
    """Where the scores of all responses go. marked: those that people decided; the others are released, go to people,
    or have no score."""

    title: str
    responses: int
    released: int
    review: int
    unscored: int
    released_why: str
    review_reasons: tuple[NamedCount, ...]
    unscored_reasons: tuple[NamedCount, ...]
    marked: int = 0


@dataclass(frozen=True)
class ShownGate:
    """One gate of the verdict; `bound` is the threshold in words."""

    question: str
    where: str
    estimate: Estimate
    unit: Unit
    bound: str
    outcome: str
    outcome_words: str
    """The outcome in words."""
    labels_needed: int | None
    source: str
    if_missed: str


@dataclass(frozen=True)
class VerdictSection:
    """All gates: those for the whole set, then those for its parts."""

    title: str
    overall: FoldedList[ShownGate]
    slices: FoldedList[ShownGate]
    missing: str = ""


@dataclass(frozen=True)
class FunnelStep:
    """One step of the funnel; `lost` names every loss on the way to it."""

    name: str
    count: int
    share: float
    lost: tuple[str, ...] = ()


class Oddity(NamedTuple):
    """Something about the responses that a person should look at."""

    text: str
    responses: int
    examples: str
    """The first of them, by their ids."""


@dataclass(frozen=True)
class DataSection:
    """What was read, lost and held out."""

    title: str
    every: tuple[FunnelStep, ...]
    labelled: tuple[FunnelStep, ...]
    facts: tuple[NamedCount, ...]
    oddities: tuple[Oddity, ...]


class Quoted(NamedTuple):
    """What a part of the answer is quoted for, and by whom."""

    criterion: str
    by: Literal["machine", "people"]


@dataclass(frozen=True)
class Tried:
    """One calibration method tried inside folds."""

    scope: str
    method: str
    chosen: bool
    n: int
    folds: int
    qwk: float | None
    within: float | None
    """QWK of what differs within items, which pooled mappings are chosen by."""
    rmse: float | None
    behind: float | None
    behind_se: float | None
    sd_ratio: float | None
    distinct: int
    note: str


@dataclass(frozen=True)
class FittedMapping:
    """One mapping in use."""

    scope: str
    method: str
    n: int
    reason: str
    features: str
    left_out: str


@dataclass(frozen=True)
class Curve:
    """People's mean (y) in equal groups by the machine's score (x), on one scale from `low` to `high`, before and
    after calibration."""

    scale: str
    low: float
    high: float
    before: tuple[tuple[float, float], ...]
    after: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CalibrationSection:
    """Whether adjustment helped."""

    title: str
    tried: FoldedList[Tried]
    fitted: FoldedList[FittedMapping]
    curve: Curve | None
    figures: tuple[NamedEstimate, ...]
    clipped: str
    distinct: str
    missing: str = ""


@dataclass(frozen=True)
class Grounding:
    """Whether credit is grounded in quotes, and which criteria go with people's scores."""

    title: str
    quotes: tuple[NamedCount, ...]
    actions: tuple[NamedCount, ...]
    criteria: FoldedList[tuple[str, Estimate, Estimate]]
    missing: str = ""


@dataclass(frozen=True)
class DecisionsSection:
    """How good the judge's probabilities of single decisions are: `bins` pairs mean confidence with the share that is
    people's, least confident first."""

    title: str
    bins: tuple[tuple[float, Estimate], ...]
    figures: tuple[NamedEstimate, ...]


@dataclass(frozen=True)
class Facts:
    """A section that is a list of named facts."""

    title: str
    facts: tuple[tuple[str, str], ...]
    missing: str = ""


@dataclass(frozen=True)
class Failed:
    """An expectation that was not met, or could not be checked."""

    stage: str
    table: str
    rule: str
    column: str
    severity: str
    outcome: str
    unexpected: int
    rows: int


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints."""

    title: str
    counts: tuple[NamedCount, ...]
    failed: FoldedList[Failed]


@dataclass(frozen=True)
class LimitsSection:
    """How it was done."""

    title: str
    facts: tuple[tuple[str, str], ...]
    versions: str
    study: str
