"""What the page shows of machine and people beside each other: values, takeaways, and why they are missing."""

from __future__ import annotations

from dataclasses import dataclass, field

from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.cases import ShownCase
from rubricflow.tasks.grading.report.sections import FoldedList, NamedEstimate


@dataclass(frozen=True)
class PairAgreement:
    """Agreement of two persons."""

    estimate: Estimate
    same: bool = False


@dataclass(frozen=True)
class PeopleAgreement:
    """How well people agree: `matrix` has a row and a column per rater, or nothing where there are too many."""

    title: str
    raters: tuple[str, ...]
    matrix: tuple[tuple[PairAgreement, ...], ...]
    figures: tuple[NamedEstimate, ...]
    missing: str = ""


@dataclass(frozen=True)
class SliceComparison:
    """One slice: the machine with the target, people with each other, what people's noise leaves reachable, and what
    length and text alone reach."""

    name: str
    machine: Estimate
    people: Estimate
    ceiling: Estimate
    length: Estimate
    """What length alone reaches."""
    text: Estimate
    """What the text reaches without the rubric."""
    flagged: bool = False


@dataclass(frozen=True)
class Stages:
    """One metric, of people and of the machine at each stage."""

    name: str
    unit: Unit
    people: Estimate
    raw: Estimate
    calibrated: Estimate
    released: Estimate


@dataclass(frozen=True)
class SecondRater:
    """The machine beside a second person, per item and type."""

    title: str
    items: FoldedList[SliceComparison]
    types: FoldedList[SliceComparison]
    overall: tuple[Stages, ...]
    missing: str = ""


@dataclass(frozen=True)
class Bars:
    """Shares of the responses at each level of one scale (0 to 1, levels low to high)."""

    scale: str
    n: int
    levels: tuple[str, ...]
    machine: tuple[float, ...]
    people: tuple[float, ...]


@dataclass(frozen=True)
class Confusion:
    """Counts on one scale: row, people's level; column, the machine's."""

    scale: str
    levels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Distribution:
    """Whether the same marks are awarded."""

    title: str
    panels: tuple[Bars, ...]
    figures: tuple[NamedEstimate, ...]
    missing: str = ""


@dataclass(frozen=True)
class TrueScoreLosses:
    """What is missing to people's true score: PRMSE and the losses that make up the rest of 1."""

    title: str
    prmse: Estimate
    losses: tuple[NamedEstimate, ...]
    figures: tuple[NamedEstimate, ...]
    missing: str = ""


@dataclass(frozen=True)
class Errors:
    """Where machine and people part, and the worst cases."""

    title: str
    confusions: tuple[Confusion, ...]
    rounded: bool
    cases: tuple[ShownCase, ...]
    missing: str = ""


@dataclass(frozen=True)
class RaterTendency:
    """One rater: severity on shared responses (points) and the ratio of spreads."""

    name: str
    machine: bool
    severity: Estimate
    spread: Estimate


@dataclass(frozen=True)
class Effect:
    """One rater by the many-facet model; leniency and drift (the largest of a period) in steps."""

    name: str
    leniency: Estimate
    infit: Estimate
    discrimination: Estimate
    drift: Estimate
    period: str
    halo: Estimate
    flagged: bool


@dataclass(frozen=True)
class Raters:
    """Who is severe, who stays in the middle, and who needs retraining."""

    title: str
    raters: FoldedList[RaterTendency]
    missing: str = ""
    effects: FoldedList[Effect] = field(default_factory=FoldedList)
    training: tuple[str, ...] = ()
