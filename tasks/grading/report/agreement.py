"""People with people, and the machine next to a second person: agreement, and what is missing to the true score."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import body
from rubricflow.tasks.core.display.section import (
    MOST,
    Columns,
    Content,
    Figure,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    long_list,
    unknown_notes,
)
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import TEMPLATE, Dot, ForestRow, Shade, forest, shades
from rubricflow.tasks.grading.report.figures import ALL, Figures
from rubricflow.tasks.grading.report.raters import NO_LABELS, ONE_PERSON

MOST_IN_MATRIX = 12
WIDE_GAP = 0.1
"""QWK below people's from which an item is in bold: the flag for degradation."""
NOT_TOLD = "Whether the machine agrees with people is not known"
LOSSES = (
    ("ranking: orders responses otherwise", "loss_association", "calibration cannot mend it"),
    ("spread: too narrow or too wide", "loss_spread", "calibration can mend it"),
    ("shift: too severe or generous", "loss_bias", "calibration can mend it"),
)
"""What keeps a score from predicting people's true score: its name, its metric, and what mends it."""
TOGETHER = ("alpha_ordinal", "exact", "icc", "reliability", "ceiling_qwk")
"""Figures of people together."""


def people_section(figures: Figures, raters: Sequence[str]) -> Section:
    """How well people agree, pair by pair."""
    question = "People: how well do they agree?"
    if len(raters) < 2:
        title = "One person scored: how far people agree is not known" if raters else "Nobody scored"
        return Section("people", question, title, unknown=ONE_PERSON if raters else NO_LABELS)
    metric = _pooled_metric(figures)
    mean = figures.people(metric)
    statistics = figure_table([figures.named(name, figures.people(name)) for name in TOGETHER])
    parts = [Columns([[_pairs(figures, metric, raters)], statistics])]
    unknown = mean.note if mean.value is None else ""
    return Section("people", question, _people_title(figures, metric, mean), unknown=unknown, parts=parts)


def _pairs(figures: Figures, metric: str, raters: Sequence[str]) -> Part:
    """The agreement of each rater with each; nothing where it meets itself."""
    if len(raters) > MOST_IN_MATRIX:
        words = Markup("{} people scored: their pairs are in the table <code>metrics</code>.")
        return Text(words.format(say.count(len(raters))))
    rows = []
    for rater in raters:
        row = []
        for other in raters:
            estimate = figures.pair(metric, rater, other)
            value = "–" if estimate.value is None else say.number(estimate.value)
            pair = Shade(estimate.value or 0, value, say.count(estimate.n))
            row.append(Shade(0, "·") if rater == other else pair)
        rows.append(row)
    caption = "QWK of each pair; below it the responses that both scored"
    return shades(caption, [say.name(rater) for rater in raters], rows, "people")


def _people_title(figures: Figures, metric: str, mean: Estimate) -> str:
    if mean.value is None:
        return "How far people agree is not known"
    title = f"People agree with each other at {say.number(mean.value)} QWK{_over_items(figures, 'human')}"
    if len(figures.pairs) < 2:
        return title
    pairs = [(figures.pair(metric, *pair).value, pair) for pair in figures.pairs]
    lowest, (first, second) = min((value, pair) for value, pair in pairs if value is not None)
    if say.number(lowest) == say.number(mean.value):
        return f"{title} on average"
    return f"{title} on average, {say.name(first)} and {say.name(second)} least, at {say.number(lowest)}"


def _pooled_metric(figures: Figures) -> str:
    """The QWK of the whole set, or its mean over items where the items have different scales."""
    pooled = figures.machine("qwk").value is not None or figures.people("qwk").value is not None
    return "qwk" if pooled or figures.machine("qwk_item_mean").value is None else "qwk_item_mean"


def _over_items(figures: Figures, stage: str = "calibrated") -> str:
    """The mean over items in words, where it is not the figure itself."""
    return figures.over_items(stage) if _pooled_metric(figures) == "qwk" else ""


class SliceComparison(NamedTuple):
    """One slice: the machine with the target, people with each other, what people's noise leaves reachable, and what
    length and text alone reach."""

    name: str
    machine: Estimate
    people: Estimate
    ceiling: Estimate
    length: Estimate
    text: Estimate

    @property
    def gap(self) -> float:
        """How far the machine is below people; without people, −∞, so that the row comes after those with them."""
        if self.machine.value is None or self.people.value is None:
            return float("-inf")
        return self.people.value - self.machine.value


def compared(figures: Figures, part: str) -> list[SliceComparison]:
    """Items or types, the largest gap first."""
    rows = []
    for value in figures.values("qwk", part):
        machine = figures.machine("qwk", "calibrated", part, value)
        baselines = (figures.any(f"{name}_qwk", part, value) for name in ("ceiling", "length", "text"))
        alike = (found if found.n == machine.n else Estimate(None) for found in baselines)
        rows.append(SliceComparison(say.name(value), machine, figures.people_like(machine, "qwk", part, value), *alike))
    return sorted(rows, key=lambda row: (-row.gap, 2.0 if row.machine.value is None else row.machine.value, row.name))


def agreement_section(figures: Figures, labelled: int) -> Section:
    """The machine next to a second person, by item and type, and before and after calibration."""
    items, types = compared(figures, "item"), compared(figures, "type")
    parts = []
    if items:
        parts += [
            Text(
                "Quadratic weighted kappa with 95% interval, calibrated scores of held-out responses, before any is "
                "withheld; the largest gap first. Upright: the ceiling that people's noise leaves. Grey after the "
                "name: responses. Bold: at least 0.10 below people."
            ),
            *_compared_table(items, "Item"),
            *unknown_notes(row.machine for row in items[:MOST]),
            *unknown_notes(row.people for row in items[:MOST]),
        ]
    if len(types) > 1:
        parts += [Text("By type of item", "h3"), *_compared_table(types, "Type")]
    rows, unknown = list[tuple[Content, ...]](), list[tuple[Estimate, ...]]()
    for metric in figures.listed("agreement"):
        if figures.values(metric.name, ALL):
            raw, after, out = (figures.machine(metric.name, stage) for stage in ("raw", "calibrated", "released"))
            people = figures.people_like(after, metric.name)
            shown = zip((people, raw, after, out), ("h", "", "m", ""), strict=True)
            rows.append((metric.title, *(Figure(estimate, metric.unit, by) for estimate, by in shown)))
            unknown.append((after, people, out))
    if rows:
        stages = (Named(name, "m key") for name in ("before calibration", "after", "released"))
        parts += [Text("All held-out responses", "h3"), Grid(("", Named("people", "h key"), *stages), rows, "stack")]
        parts += unknown_notes(chain.from_iterable(zip(*unknown, strict=True)))
    title = _agreement_title(figures, items) if labelled else NOT_TOLD
    why = "" if labelled else NO_LABELS
    return Section("agreement", "Agreement: as good as a second person?", title, unknown=why, parts=parts)


def _compared_table(rows: Sequence[SliceComparison], first: str) -> list[Part]:
    """The plot, with a column for each baseline that any row has."""
    baselines = {"ceiling": "ceiling", "length": "length alone", "text": "text alone"}
    held = [name for name in baselines if any(getattr(row, name).value is not None for row in rows[:MOST])]
    lines = []
    for row in rows:
        dots = Dot(row.people, "h"), Dot(row.ceiling, "c"), Dot(row.machine, "m")
        cells = Figure(row.machine, by="m"), Figure(row.people, by="h"), *(Figure(getattr(row, name)) for name in held)
        lines.append(ForestRow(row.name, row.machine.n, dots, cells, row.gap >= WIDE_GAP))
    heads = [Named("machine", "m key"), Named("people", "h key"), *(Named(baselines[name]) for name in held)]
    return long_list(forest(first, heads, lines), "rows", "metrics", "more, the smaller gaps")


def worst_item(figures: Figures) -> str:
    """What to say of the item furthest below people, where it is in bold and one of several; '' otherwise."""
    items = compared(figures, "item")
    if len(items) < 2 or items[0].gap < WIDE_GAP:
        return ""
    name, machine, people, *_ = items[0]
    return f"{name} agrees at {say.number(machine.value or 0)} QWK where people reach {say.number(people.value or 0)}"


def _agreement_title(figures: Figures, items: Sequence[SliceComparison]) -> str:
    metric = _pooled_metric(figures)
    machine = figures.machine(metric)
    people = figures.people_like(machine, metric).value
    if machine.value is None:
        return NOT_TOLD
    start = f"The machine agrees with people at {say.number(machine.value)} QWK{_over_items(figures)}"
    if people is None:
        return f"{start}; how far people agree on the same answers is not known"
    if len(items) > 1 and items[0].gap >= 0.01:
        name, lower, other, *_ = items[0]
        figure = f"{say.number(lower.value or 0)} QWK against {say.number(other.value or 0)}"
        return f"{name} is furthest below people: {figure}"
    return f"{start}, people with each other at {say.number(people)}{_over_items(figures, 'human')}"


def true_score_section(figures: Figures) -> Section:
    """PRMSE and the losses that keep it from 1."""
    question, prmse = "True score: what is missing?", figures.machine("prmse")
    if prmse.value is None:
        title = "What is missing to the true score is not known"
        return Section("true-score", question, title, unknown=prmse.note)
    losses = [(name, figures.machine(metric), mends) for name, metric, mends in LOSSES]
    title = f"The score predicts {say.share(prmse.value)} of the variance of people's true score"
    defined = [(estimate.value, name) for name, estimate, _ in losses if estimate.value is not None]
    if defined and prmse.value < 1:
        title += f"; most of the rest is lost to {max(defined)[1].split(':')[0]}"
    shares = [("PRMSE", prmse.value), *((name, estimate.value) for name, estimate, _ in losses)]
    flow = [body(TEMPLATE, "losses", shares)] if all(share is not None and share >= 0 for _, share in shares) else []
    rows: list[tuple[Content, ...]] = [(_swatch("prmse", "PRMSE"), Figure(prmse, by="m"))]
    for place, (name, estimate, mends) in enumerate(losses, 1):
        rows.append((Named(_swatch(f"l{place}", f"Lost to {name}"), mends), Figure(estimate)))
    before = Named("PRMSE before calibration"), Figure(figures.machine("prmse", "raw"))
    statistics = [before, *(figures.named(name, figures.any(name)) for name in ("qwk_true", "r_true", "reliability"))]
    lead = (
        "PRMSE is the share of the variance of people's true score, freed of their noise, that the calibrated score "
        f"predicts (95% interval {say.interval(prmse, 'number') or say.NOT_KNOWN}, n = {say.count(prmse.n)}). What is "
        "missing to 1 has three causes."
    )
    columns = Columns([[Grid((), rows)], figure_table(statistics)])
    return Section("true-score", question, title, parts=[Text(lead), *flow, columns])


def _swatch(style: str, words: str) -> Markup:
    return Markup('<span class="swatch {}" aria-hidden="true"></span>{}').format(style, words)
