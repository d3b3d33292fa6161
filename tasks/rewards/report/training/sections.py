"""The sections of the training report beside its rewards: held-out quality, criteria, judge, and what to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, line_chart
from rubricflow.tasks.core.display.section import Drawing, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Table
from rubricflow.tasks.core.stats.reward_hacking import FEWEST_EVALUATIONS, THRESHOLD, Change, HackingAlarm
from rubricflow.tasks.rewards.report.training.curves import (
    CriterionTrend,
    StepPoint,
    UnlicensedShare,
    criterion_rows,
    curve,
    unlicensed_shares,
)
from rubricflow.tasks.rewards.report.training.judging import SelfAgreement, agreement_rows, self_agreement

SHOWN = 12
"""Rollouts with the largest false credit, and criteria, that are in the page."""
DRAWN = 3
"""Criteria that have curves."""
SHARE = "share"
"""What an axis shows that ends at 1."""
CHARACTERS = 1_500
"""Of a rollout, at most."""


def held_out(quality: pd.DataFrame, alarms: Sequence[HackingAlarm]) -> Section:
    """Whether the policy gets better on what it is not paid for."""
    drawing = drawn(
        "Held-out quality by step", {"held-out quality": curve(quality, "quality")}, "the training's own unit"
    )
    missing = "Nobody told the server: client.held_out(step, {item: quality}) after each evaluation draws it here."
    rule = (
        f"The alarm compares two neighbouring windows of evaluations; it rings where false credit rises and held-out "
        f"quality falls, both with p ≤ {THRESHOLD:g}. It needs {FEWEST_EVALUATIONS} evaluations."
    )
    return Section(
        id="held-out",
        question="Held-out: does the policy get better where it is not paid?",
        title="Held-out quality, and the alarm of reward hacking",
        lead=_alarm_sentence(alarms) if len(quality) else "",
        drawings=(drawing,) if drawing else (),
        small=(_alarm_table(alarms[-1]),) if alarms else (),
        missing="" if drawing else missing,
        notes=(rule,) if drawing else (),
    )


def _alarm_sentence(alarms: Sequence[HackingAlarm]) -> str:
    if not alarms:
        return "There are too few evaluations for the alarm."
    rang = [alarm.step for alarm in alarms if alarm.is_raised]
    if not rang:
        return "The alarm never rang."
    now = "and rings now" if alarms[-1].is_raised else "and is silent at the last evaluation"
    return f"The alarm rang first at step {rang[0]:,}, at {say.plural(len(rang), 'evaluation')} in all, {now}."


def _alarm_table(alarm: HackingAlarm) -> Table:
    header = ("", "earlier window", "later window", "change", "p")
    rows = (
        _change_row("false credit, a rise", alarm.false_credit, alarm.false_credit.p_rise),
        _change_row("held-out quality, a fall", alarm.quality, alarm.quality.p_fall),
    )
    title = f"The last {2 * alarm.evaluations} evaluations, {alarm.evaluations} in each window"
    return Table("alarm", title, header, rows, ("In brackets: 95% interval over evaluations.",))


def _change_row(words: str, change: Change, p_value: float) -> Cells:
    difference = Cell(change.now - change.before, change.low, change.high, ends="interval")
    return (words, Cell(change.before), Cell(change.now), difference, Cell(p_value, digits=4))


def criteria(rows: pd.DataFrame, shares: pd.DataFrame, trends: Sequence[CriterionTrend]) -> Section | None:
    """What each criterion is worth over the steps."""
    if not trends:
        return None
    drawings = [_criterion_drawing(rows, shares, criterion) for criterion in trends[:DRAWN]]
    header = ("item", "criterion", "rollouts", "first third", "last third", "change", "licensed", "not licensed")
    table = Table(
        "criteria",
        "Criteria whose own share changed most surely",
        header,
        tuple(map(_criterion_row, trends[:SHOWN])),
        (
            "A share is how far a criterion counts, from 0 to 1: by itself, as a flat sum pays it, or licensed, after "
            "what it depends on (last third). In brackets: 95% interval over steps.",
        ),
    )
    return Section(
        id="criteria",
        question="Criteria: what does the policy learn to meet?",
        title="Criteria over the steps",
        drawings=tuple(drawing for drawing in drawings if drawing),
        tables=(table,),
        notes=(f"{say.plural(len(trends), 'criterion', 'criteria')} were seen in six steps or more.",),
    )


def _criterion_drawing(rows: pd.DataFrame, shares: pd.DataFrame, criterion: CriterionTrend) -> Drawing | None:
    rollouts = criterion_rows(rows, shares, criterion.item_id, criterion.criterion_id)
    curves = {"by itself": curve(rollouts, "own"), "licensed": curve(rollouts, "licensed")}
    words = say.cut(criterion.text or f"{criterion.item_id}, {criterion.criterion_id}", 80)
    return drawn(words, curves, SHARE)


def _criterion_row(criterion: CriterionTrend) -> Cells:
    own = criterion.own
    return (
        criterion.item_id,
        say.cut(criterion.text or criterion.criterion_id, 160),
        Cell(float(criterion.rollouts), digits=0),
        Cell(own.first),
        Cell(own.last),
        Cell(own.last - own.first, own.low, own.high, ends="interval"),
        Cell(criterion.licensed),
        Cell(criterion.unlicensed),
    )


def judge(rows: pd.DataFrame, pairs: pd.DataFrame) -> Section | None:
    """How many rollouts have no reward, which quotes are made up, and how far the judge agrees with itself."""
    lost = drawn("Share of rollouts without a reward", {"without a reward": curve(rows, "unscored")}, SHARE)
    twice = agreement_rows(rows, pairs)
    again = drawn("Criteria on the same level when judged again", {"judged again": curve(twice, "agreed")}, SHARE)
    quotes = drawn("Levels above 0 without a quote in the rollout", {"unverified": curve(rows, "unverified")}, SHARE)
    drawings = [lost if rows["unscored"].any() else None, quotes, again]
    agreement = self_agreement(pairs)
    if not any(drawings):
        return None
    return Section(
        id="judge",
        question="Judge: how far can its rewards be trusted?",
        title="Rollouts without a reward, quotes that are not there, and rollouts judged twice",
        lead=_agreement_sentence(agreement) if agreement else "",
        drawings=tuple(drawing for drawing in drawings if drawing),
    )


def _agreement_sentence(agreement: SelfAgreement) -> str:
    rollouts = say.plural(agreement.rollouts, "rollout")
    return (
        f"Judged a second time, {say.share(agreement.value)} of {say.plural(agreement.decisions, 'decision')} on "
        f"{rollouts} stayed the same; by chance alone {say.share(agreement.by_chance)} would."
    )


def to_read(rows: pd.DataFrame, shares: pd.DataFrame, texts: Mapping[tuple[str, str], str]) -> Section | None:
    """The rollouts with the largest false credit. texts: (item, criterion) → what is looked for."""
    worst = rows.dropna(subset=["gap"]).nlargest(SHOWN, "gap")
    worst = worst[worst["gap"] > 0]
    if worst.empty:
        return None
    unlicensed = unlicensed_shares(shares[shares["response_id"].isin(worst["response_id"])])
    table = Table(
        "to-read",
        "Rollouts with the largest false credit",
        ("step", "item", "flat", "GEAR", "false credit", "paid without licence", "rollout"),
        tuple(_rollout_row(row, unlicensed, texts) for row in worst.to_dict("records")),
    )
    return Section(
        id="read",
        question="Read: what is paid without licence?",
        title="The rollouts with the largest false credit",
        tables=(table,),
    )


def _rollout_row(
    rollout: Mapping[Any, Any],
    unlicensed: Mapping[str, Sequence[UnlicensedShare]],
    texts: Mapping[tuple[str, str], str],
) -> Cells:
    figures = [Cell(float(rollout[name])) for name in ("flat", "gear", "gap")]
    text, item_id = say.cut(str(rollout["text"]), CHARACTERS), str(rollout["item_id"])
    criteria_in_words = [
        _unlicensed_words(share, texts.get((item_id, share.criterion_id), ""))
        for share in unlicensed.get(str(rollout["response_id"]), ())
    ]
    return (f"{float(rollout['step']):g}", item_id, *figures, "; ".join(criteria_in_words) or "–", text)


def _unlicensed_words(share: UnlicensedShare, text: str) -> str:
    name = say.cut(text, 90) if text else share.criterion_id
    return f"{name}: {share.own:.2f} by itself, {share.licensed:.2f} licensed"


def drawn(title: str, curves: Mapping[str, Sequence[StepPoint]], up: str) -> Drawing | None:
    """Curves as a figure whose axis holds 0; None where none has a point."""
    is_share = up == SHARE
    lines = [
        ChartLine(label, tuple(_as_point(point, is_share) for point in points))
        for label, points in curves.items()
        if points
    ]
    return Drawing(title, line_chart(title, lines, "step", up, within=(0.0,))) if lines else None


def _as_point(point: StepPoint, is_share: bool) -> ChartPoint:
    """As it is drawn; the interval of a share stays between 0 and 1."""
    if not is_share or point.low is None or point.high is None:
        return ChartPoint(point.step, point.value, point.low, point.high)
    return ChartPoint(point.step, point.value, max(0.0, point.low), min(1.0, point.high))
