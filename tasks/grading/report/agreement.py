"""People with people, and the machine beside them: agreement, true score, raters."""

from __future__ import annotations

from collections.abc import Sequence

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.metrics import Metric
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.comparison import (
    PairAgreement,
    PeopleAgreement,
    Raters,
    RaterTendency,
    SecondRater,
    SliceComparison,
    Stages,
    TrueScoreLosses,
)
from rubricflow.tasks.grading.report.figures import ALL, Figures
from rubricflow.tasks.grading.report.sections import NamedEstimate, listed

MOST_IN_MATRIX = 12
PEOPLE = ("alpha_ordinal", "exact", "icc", "reliability", "ceiling_qwk")
"""What is told of people together."""
WIDE_GAP = 0.1
"""QWK below people's from which an item is in bold: the flag for degradation."""
NO_LABELS = "no held-out response has a human score"
ONE_PERSON = "one person scored; a second one on the same responses would show how far people agree"


LOSSES = (
    ("ranking: orders responses otherwise", "loss_association", "calibration cannot mend it"),
    ("spread: too narrow or too wide", "loss_spread", "calibration can mend it"),
    ("shift: too severe or generous", "loss_bias", "calibration can mend it"),
)
"""What keeps a score from predicting people's true score: its name, its metric, and what mends it."""


def people(figures: Figures, raters: Sequence[str]) -> PeopleAgreement:
    """How well people agree, pair by pair."""
    names = tuple(map(say.name, raters))
    if not raters:
        return PeopleAgreement("Nobody scored", names, (), (), NO_LABELS)
    if len(raters) == 1:
        return PeopleAgreement("One person scored: how far people agree is not known", names, (), (), ONE_PERSON)
    metric = _pooled_metric(figures)
    mean = figures.people(metric)
    statistics = [figures.figure(figures.metrics[name], figures.people(name)) for name in PEOPLE]
    in_matrix = raters if len(raters) <= MOST_IN_MATRIX else ()
    return PeopleAgreement(
        title=_people_title(figures, metric, mean),
        raters=names,
        matrix=tuple(_matrix_row(figures, metric, rater, raters) for rater in in_matrix),
        figures=tuple(statistics),
        missing=mean.note if mean.value is None else "",
    )


def _matrix_row(figures: Figures, metric: str, rater: str, raters: Sequence[str]) -> tuple[PairAgreement, ...]:
    """A rater's agreement with each rater; nothing stands where it meets itself."""
    row = []
    for other in raters:
        same = rater == other
        row.append(PairAgreement(Estimate(None) if same else figures.pair(metric, rater, other), same))
    return tuple(row)


def _people_title(figures: Figures, metric: str, mean: Estimate) -> str:
    if mean.value is None:
        return "How far people agree is not known"
    title = f"People agree with each other at {say.number(mean.value)} QWK{_over_items(figures, 'human')}"
    if len(figures.pairs) < 2:
        return title
    pairs = [(figures.pair(metric, first, second), first, second) for first, second in figures.pairs]
    measured = [pair for pair in pairs if pair[0].value is not None]
    estimate, first, second = min(measured, key=lambda pair: pair[0].value or 0.0)
    title += " on average"
    lowest = say.number(estimate.value or 0.0)
    if lowest == say.number(mean.value):
        return title
    return f"{title}, {say.name(first)} and {say.name(second)} least, at {lowest}"


def _pooled_metric(figures: Figures) -> str:
    """The QWK of the whole set, or its mean over items where the items have different scales."""
    pooled = figures.machine("qwk").value is not None or figures.people("qwk").value is not None
    return "qwk" if pooled or figures.machine("qwk_item_mean").value is None else "qwk_item_mean"


def _over_items(figures: Figures, stage: str = "calibrated") -> str:
    """The mean over items in words, where it is not what is told already."""
    return figures.over_items(stage) if _pooled_metric(figures) == "qwk" else ""


def agreement(figures: Figures, labelled: int) -> SecondRater:
    """The machine beside a second person, by item and type, the largest gap first."""
    items, types = (_compared(figures, part) for part in ("item", "type"))
    overall = [_stages(figures, metric) for metric in figures.listed("agreement") if figures.values(metric.name, ALL)]
    missing = "" if labelled else NO_LABELS
    title = _agreement_title(figures, items, missing)
    return SecondRater(title, listed(items), listed(types if len(types) > 1 else []), tuple(overall), missing)


def _stages(figures: Figures, metric: Metric) -> Stages:
    raw, calibrated, released = (figures.machine(metric.name, stage) for stage in ("raw", "calibrated", "released"))
    return Stages(metric.title, metric.unit, figures.people_like(calibrated, metric.name), raw, calibrated, released)


def _compared(figures: Figures, part: str) -> list[SliceComparison]:
    rows = []
    for value in figures.values("qwk", part):
        machine = figures.machine("qwk", "calibrated", part, value)
        human = figures.people_like(machine, "qwk", part, value)
        beside = {name: figures.any(f"{name}_qwk", part, value) for name in ("ceiling", "length", "text")}
        same = {name: found if found.n == machine.n else Estimate(None) for name, found in beside.items()}
        row = SliceComparison(
            name=say.name(value),
            machine=machine,
            people=human,
            **same,
            flagged=_gap(machine, human) >= WIDE_GAP,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: (-_gap(row.machine, row.people), _or(row.machine.value, 2.0), row.name))


def _gap(machine: Estimate, human: Estimate) -> float:
    """How far the machine is below people; without people, −∞, so that the row comes after those with them."""
    if machine.value is None or human.value is None:
        return float("-inf")
    return human.value - machine.value


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _agreement_title(figures: Figures, items: Sequence[SliceComparison], missing: str) -> str:
    if missing:
        return "Whether the machine agrees with people is not known"
    metric = _pooled_metric(figures)
    machine = figures.machine(metric)
    human = figures.people_like(machine, metric)
    if machine.value is None:
        return "Whether the machine agrees with people is not known"
    if human.value is None:
        start = f"The machine agrees with people at {say.number(machine.value)} QWK{_over_items(figures)}"
        return f"{start}; how far people agree on the same answers is not known"
    if len(items) > 1 and _gap(items[0].machine, items[0].people) >= 0.01:
        worst = items[0]
        lower, other = _or(worst.machine.value, 0), _or(worst.people.value, 0)
        return f"{worst.name} is furthest below people: {say.number(lower)} QWK against {say.number(other)}"
    lower, other = machine.value, human.value
    start = f"The machine agrees with people at {say.number(lower)} QWK{_over_items(figures)}"
    return f"{start}, people with each other at {say.number(other)}{_over_items(figures, 'human')}"


def true_score(figures: Figures) -> TrueScoreLosses:
    """PRMSE and the losses that keep it from 1."""
    prmse = figures.machine("prmse")
    losses = tuple(NamedEstimate(name, figures.machine(metric), "number", mends) for name, metric, mends in LOSSES)
    statistics = (
        NamedEstimate("PRMSE before calibration", figures.machine("prmse", "raw")),
        *(figures.figure(figures.metrics[name], figures.any(name)) for name in ("qwk_true", "r_true", "reliability")),
    )
    if prmse.value is None:
        return TrueScoreLosses("What is missing to the true score is not known", prmse, losses, statistics, prmse.note)
    defined = [loss for loss in losses if loss.estimate.value is not None]
    largest = max(defined, key=lambda loss: loss.estimate.value or 0.0, default=None)
    title = f"The score predicts {say.share(prmse.value)} of the variance of people's true score"
    if largest is not None and prmse.value < 1:
        title += f"; most of the rest is lost to {largest.name.split(':')[0]}"
    return TrueScoreLosses(title, prmse, losses, statistics)


def rater_section(figures: Figures, persons: Sequence[str]) -> Raters:
    """Severity and spread of each rater on shared responses, the most severe first."""
    rows = []
    for name in figures.values("severity", "rater"):
        severity, spread = (figures.any(metric, "rater", name) for metric in ("severity", "sd_ratio"))
        rows.append(RaterTendency(say.name(name), name not in persons, severity, spread))
    rows.sort(key=lambda row: (_or(row.severity.value, float("inf")), row.name))
    if not rows:
        return Raters("Who is severe is not known", listed([]), _why_no_severity(figures, persons))
    measured = [row for row in rows if row.severity.value is not None]
    if not measured:
        return Raters("Who is severe is not known", listed(rows), rows[0].severity.note)
    furthest = max(measured, key=lambda row: abs(row.severity.value or 0.0))
    if not _excludes_zero(furthest.severity):
        return Raters("No rater is clearly more severe than the others", listed(rows))
    value = furthest.severity.value or 0.0
    word = "below" if value < 0 else "above"
    points = say.number(abs(value))
    return Raters(f"{furthest.name} scores {points} points {word} the others on the same responses", listed(rows))


def _why_no_severity(figures: Figures, persons: Sequence[str]) -> str:
    if not persons:
        return NO_LABELS
    return ONE_PERSON if len(persons) < 2 else figures.any("severity").note


def _excludes_zero(estimate: Estimate) -> bool:
    """Whether the whole interval lies on one side of 0; no where there is no interval."""
    low, high = estimate.low, estimate.high
    return low is not None and high is not None and (low > 0 or high < 0)
