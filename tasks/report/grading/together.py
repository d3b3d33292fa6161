"""People with people, and the machine beside them: agreement, true score, raters."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.display import say
from tasks.report.grading.comparison import (
    PairAgreement,
    PeopleAgreement,
    Raters,
    RaterTendency,
    SecondRater,
    SliceComparison,
    Stages,
    TrueScoreLosses,
)
from tasks.report.grading.figures import ALL, Figures
from tasks.report.grading.parts import NamedEstimate, listed
from tasks.stats.estimate import Estimate

MOST_IN_MATRIX = 12
PEOPLE = ("alpha_ordinal", "exact", "icc", "reliability", "ceiling_qwk")
"""What is told of people together."""
WIDE_GAP = 0.1
"""QWK below people's from which an item is in bold: the flag for degradation."""
NO_LABELS = "no held-out response has a human score"
ONE_PERSON = "one person scored; a second one on the same responses would show how far people agree"


def people(figures: Figures, raters: Sequence[str]) -> PeopleAgreement:
    """How well people agree, pair by pair."""
    if len(raters) < 2:
        return PeopleAgreement(
            "Nobody scored" if not raters else "One person scored: how far people agree is not known",
            tuple(map(say.name, raters)),
            (),
            (),
            NO_LABELS if not raters else ONE_PERSON,
        )
    whole = _whole(figures)
    mean = figures.people(whole)
    found = [figures.figure(figures.metrics[name], figures.people(name)) for name in PEOPLE]
    grid: list[tuple[PairAgreement, ...]] = []
    if len(raters) <= MOST_IN_MATRIX:
        grid = [
            tuple(PairAgreement(Estimate(None) if a == b else figures.pair(whole, a, b), a == b) for b in raters)
            for a in raters
        ]
    title = (
        "How far people agree is not known"
        if mean.value is None
        else f"People agree with each other at {say.number(mean.value)} QWK{_over_items(figures, 'human')}"
    )
    if mean.value is not None and len(figures.pairs) > 1:
        known = [(figures.pair(whole, a, b), a, b) for a, b in figures.pairs]
        least = min((e for e in known if e[0].value is not None), key=lambda e: e[0].value or 0.0)
        title += " on average"
        if (lowest := say.number(least[0].value or 0.0)) != say.number(mean.value):
            title += f", {say.name(least[1])} and {say.name(least[2])} least, at {lowest}"
    return PeopleAgreement(
        title, tuple(map(say.name, raters)), tuple(grid), tuple(found), mean.note if mean.value is None else ""
    )


def _whole(figures: Figures) -> str:
    """The QWK of the whole set, or its mean over items where the items have different scales."""
    known = figures.machine("qwk").value is not None or figures.people("qwk").value is not None
    return "qwk" if known or figures.machine("qwk_item_mean").value is None else "qwk_item_mean"


def _over_items(figures: Figures, stage: str = "calibrated") -> str:
    """The mean over items in words, where it is not what is told already."""
    return figures.over_items(stage) if _whole(figures) == "qwk" else ""


def agreement(figures: Figures, labelled: int) -> SecondRater:
    """The machine beside a second person, by item and type, the largest gap first."""
    items, types = (_compared(figures, part) for part in ("item", "type"))
    overall = tuple(
        Stages(
            metric.title,
            metric.unit,
            figures.people(metric.name),
            *(figures.machine(metric.name, stage) for stage in ("raw", "calibrated", "released")),
        )
        for metric in figures.listed("agreement")
        if figures.values(metric.name, ALL)
    )
    missing = "" if labelled else NO_LABELS
    return SecondRater(
        _agreement_title(figures, items, missing),
        listed(items),
        listed(types if len(types) > 1 else []),
        overall,
        missing,
    )


def _compared(figures: Figures, part: str) -> list[SliceComparison]:
    rows = []
    for value in figures.values("qwk", part):
        machine, human = (figures.machine("qwk", "calibrated", part, value), figures.people("qwk", part, value))
        ceiling, length, text = (figures.any(name, part, value) for name in ("ceiling_qwk", "length_qwk", "text_qwk"))
        rows.append(
            SliceComparison(say.name(value), machine, human, ceiling, length, text, _gap(machine, human) >= WIDE_GAP)
        )
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
    whole = _whole(figures)
    machine, human = figures.machine(whole), figures.people(whole)
    if machine.value is None:
        return "Whether the machine agrees with people is not known"
    if human.value is None:
        start = f"The machine agrees with people at {say.number(machine.value)} QWK{_over_items(figures)}"
        return f"{start}; how far people agree is not known"
    if len(items) > 1 and _gap(items[0].machine, items[0].people) >= 0.01:
        worst = items[0]
        own, other = _or(worst.machine.value, 0), _or(worst.people.value, 0)
        return f"{worst.name} is furthest below people: {say.number(own)} QWK against {say.number(other)}"
    own, other = machine.value, human.value
    start = f"The machine agrees with people at {say.number(own)} QWK{_over_items(figures)}"
    return f"{start}, people with each other at {say.number(other)}{_over_items(figures, 'human')}"


def true_score(figures: Figures) -> TrueScoreLosses:
    """PRMSE and the losses that keep it from 1."""
    prmse = figures.machine("prmse")
    losses = (
        NamedEstimate(
            "ranking: orders responses otherwise",
            figures.machine("loss_association"),
            "number",
            "calibration cannot mend it",
        ),
        NamedEstimate(
            "spread: too narrow or too wide", figures.machine("loss_spread"), "number", "calibration can mend it"
        ),
        NamedEstimate(
            "shift: too severe or generous", figures.machine("loss_bias"), "number", "calibration can mend it"
        ),
    )
    found = (
        NamedEstimate("PRMSE before calibration", figures.machine("prmse", "raw")),
        *(figures.figure(figures.metrics[name], figures.any(name)) for name in ("qwk_true", "r_true", "reliability")),
    )
    if prmse.value is None:
        return TrueScoreLosses("What is missing to the true score is not known", prmse, losses, found, prmse.note)
    known = [loss for loss in losses if loss.estimate.value is not None]
    largest = max(known, key=lambda loss: loss.estimate.value or 0.0, default=None)
    title = f"The score predicts {say.share(prmse.value)} of the variance of people's true score"
    if largest is not None and prmse.value < 1:
        title += f"; most of the rest is lost to {largest.name.split(':')[0]}"
    return TrueScoreLosses(title, prmse, losses, found)


def rater_section(figures: Figures, persons: Sequence[str]) -> Raters:
    """Severity and spread of each rater on shared responses, the most severe first."""
    names = figures.values("severity", "rater")
    rows = [
        RaterTendency(
            say.name(name),
            name not in persons,
            figures.any("severity", "rater", name),
            figures.any("sd_ratio", "rater", name),
        )
        for name in names
    ]
    rows.sort(key=lambda row: (_or(row.severity.value, float("inf")), row.name))
    if not rows:
        missing = NO_LABELS if not persons else ONE_PERSON if len(persons) < 2 else figures.any("severity").note
        return Raters("Who is severe is not known", listed([]), missing)
    known = [row for row in rows if row.severity.value is not None]
    if not known:
        return Raters("Who is severe is not known", listed(rows), rows[0].severity.note)
    end = max(known, key=lambda row: abs(row.severity.value or 0.0))
    value = end.severity.value or 0.0
    clear = (
        end.severity.low is not None
        and end.severity.high is not None
        and (end.severity.low > 0 or end.severity.high < 0)
    )
    if not clear:
        return Raters("No rater is clearly more severe than the others", listed(rows))
    word = "below" if value < 0 else "above"
    return Raters(
        f"{end.name} scores {say.number(abs(value))} points {word} the others on the same responses", listed(rows)
    )
