"""The training report: pure, tables in, a page out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tasks.display import say
from tasks.display.lines import ChartLine, ChartPoint, line_chart
from tasks.display.page import rendered
from tasks.display.section import Drawing, Key, Page, Section
from tasks.display.table import Cell, Cells, Table
from tasks.report.training.curves import StepPoint, Trend, curve, leaks, paired, suppression, trend

SHOWN = 12
"""Rollouts with the largest false credit that are in the page."""
CHARACTERS = 1_500
"""Of each, at most."""


class TrainingView(NamedTuple):
    """What the page is made from."""

    run_id: str
    rewards: pd.DataFrame
    responses: pd.DataFrame
    cases: pd.DataFrame


def page(view: TrainingView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: TrainingView) -> Page:
    """What the page shows."""
    rows = paired(view.rewards, view.responses)
    gap = trend(rows, "gap")
    sections = [_rewards(rows, gap), _licence(rows, view.cases), _unscored(rows), _to_read(rows)]
    steps = int(rows["step"].nunique())
    who = f"{say.plural(len(rows), 'rollout')} of {say.plural(steps, 'step')}"
    return Page(
        kind="Training report",
        study=say.name(view.run_id),
        title=_sentence(gap),
        lead=f"{who}. False credit is what a flat sum pays beyond what the dependencies of the criteria license.",
        keys=tuple(_keys(rows)),
        sections=tuple(section for section in sections if section is not None),
    )


def _sentence(gap: Trend | None) -> str:
    if gap is None:
        return "Too few steps to say whether false credit rises"
    change = f"from {say.number(gap.first, 3)} to {say.number(gap.last, 3)}"
    if gap.rises:
        return f"False credit rises {change}: the policy may be learning to earn points without licence"
    return f"False credit does not clearly rise: {change} between the first and the last third of the steps"


def _keys(rows: pd.DataFrame) -> list[Key]:
    last = rows[rows["step"] == rows["step"].max()]
    scored = last.dropna(subset=["gear"])
    n = f"n = {len(scored)}, last step"
    named = (("Flat reward", "flat"), ("GEAR reward", "gear"), ("False credit", "gap"))
    keys = [Key(words, say.number(float(scored[name].mean()), 3), (n,)) for words, name in named if len(scored)]
    return [*keys, Key("Without a reward", say.share(float(rows["unscored"].mean())), (f"n = {len(rows)}",))]


def _rewards(rows: pd.DataFrame, gap: Trend | None) -> Section:
    both = {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}
    credit = {"flat − GEAR": curve(rows, "gap")}
    drawings = [_drawn("Reward by step", both, "reward"), _drawn("False credit by step", credit, "share of the points")]
    note = "Uprights are 95% intervals over the items of a step."
    alarm = ""
    if gap is not None:
        ends = f"[{say.signed(gap.low)}, {say.signed(gap.high)}]"
        alarm = f"Change of false credit, last third less first third: 95% interval {ends}, {gap.steps} steps each."
    return Section(
        id="rewards",
        question="Rewards: does the policy earn more, or only more false credit?",
        title="Flat and dependency-aware rewards of the same judging",
        lead=alarm,
        drawings=tuple(drawing for drawing in drawings if drawing),
        missing="" if both["GEAR"] else "No rollout has a reward.",
        notes=(note, "Beside a rise look at a held-out evaluation: if that falls meanwhile, the reward is gamed."),
    )


def _licence(rows: pd.DataFrame, cases: pd.DataFrame) -> Section | None:
    if cases.empty:
        return None
    by_relation = {say.worded(name): curve(found, "leaked") for name, found in leaks(rows, cases).items()}
    rate = {"suppressed": curve(suppression(rows, cases), "suppressed")}
    drawings = [
        _drawn("Paid without licence by a flat sum, by relation", by_relation, "share of the points"),
        _drawn("Supported dependencies whose parent fails", rate, "share"),
    ]
    return Section(
        id="licence",
        question="Licence: which dependencies are broken?",
        title="Where credit is not licensed",
        drawings=tuple(drawing for drawing in drawings if drawing),
    )


def _unscored(rows: pd.DataFrame) -> Section | None:
    drawing = _drawn("Share of rollouts without a reward", {"without a reward": curve(rows, "unscored")}, "share")
    if drawing is None or not rows["unscored"].any():
        return None
    return Section(
        id="unscored",
        question="Judge: how many rollouts have no reward?",
        title="Rollouts that the judge did not score",
        drawings=(drawing,),
    )


def _to_read(rows: pd.DataFrame) -> Section | None:
    worst = rows.dropna(subset=["gap"]).nlargest(SHOWN, "gap")
    worst = worst[worst["gap"] > 0]
    if worst.empty:
        return None
    header = ("step", "item", "flat", "GEAR", "false credit", "rollout")
    table = Table(
        "to-read",
        "Rollouts with the largest false credit",
        header,
        tuple(_row(row) for row in worst.to_dict("records")),
    )
    return Section(
        id="read",
        question="Read: what is paid without licence?",
        title="The rollouts with the largest false credit",
        tables=(table,),
    )


def _row(rollout: Mapping[Any, Any]) -> Cells:
    figures = [Cell(float(str(rollout[name]))) for name in ("flat", "gear", "gap")]
    text = say.cut(str(rollout["text"]), CHARACTERS)
    return (f"{float(str(rollout['step'])):g}", str(rollout["item_id"]), *figures, text)


def _drawn(title: str, curves: Mapping[str, Sequence[StepPoint]], up: str) -> Drawing | None:
    lines = [ChartLine(label, tuple(map(_as_point, points))) for label, points in curves.items() if points]
    return Drawing(title, line_chart(title, lines, "step", up, within=(0.0,))) if lines else None


def _as_point(point: StepPoint) -> ChartPoint:
    return ChartPoint(point.step, point.value, point.low, point.high)
