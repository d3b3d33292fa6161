"""The training report: pure, tables in, a page out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, line_chart
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Drawing, Key, Page, Section
from rubricflow.tasks.core.display.table import Cell, Cells, Table, number
from rubricflow.tasks.core.stats.reward_hacking import (
    FEWEST_EVALUATIONS,
    THRESHOLD,
    Change,
    HackingAlarm,
    hacking_alarms,
)
from rubricflow.tasks.rewards.report.training.curves import (
    CriterionTrend,
    SelfAgreement,
    StepPoint,
    Trend,
    agreement_rows,
    criterion_rows,
    criterion_trends,
    curve,
    leaks,
    paired,
    self_agreement,
    suppression,
    trend,
    unlicensed_shares,
)


class TrainingView(NamedTuple):
    """What the page is made from."""

    run_id: str
    rewards: pd.DataFrame
    responses: pd.DataFrame
    cases: pd.DataFrame
    shares: pd.DataFrame
    """See `criterion_shares`."""
    twice: pd.DataFrame
    """See `judged_twice`; empty where nothing was judged twice."""
    unverified: Mapping[str, float]
    """See `unverified_shares`."""
    quality: pd.DataFrame
    """step, item_id and quality of held-out items; empty where nobody told them."""
    texts: Mapping[tuple[str, str], str]
    """(item, criterion) → what is looked for, as far as it was recorded."""


def page(view: TrainingView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: TrainingView) -> Page:
    """What the page shows."""
    rows = paired(view.rewards, view.responses)
    rows = rows.assign(unverified=rows["response_id"].map(dict(view.unverified)).astype(float))
    gap = trend(rows, "gap")
    alarms = list(hacking_alarms(*_series(rows, view.quality)))
    shown = [
        _rewards(rows, gap),
        held_out(view.quality, alarms),
        _licence(rows, view.cases),
        criteria(rows, view.shares, criterion_trends(rows, view.shares, view.texts)),
        judge(rows, view.twice),
        to_read(rows, view.shares, view.texts),
    ]
    steps = int(rows["step"].nunique())
    who = f"{say.plural(len(rows), 'rollout')} of {say.plural(steps, 'step')}"
    return Page(
        kind="Training report",
        study=say.name(view.run_id),
        title=_sentence(gap, alarms),
        lead=f"{who}. False credit is what a flat sum pays beyond what the dependencies of the criteria license.",
        keys=list(_keys(rows, view.quality, self_agreement(view.twice))),
        sections=list(filter(None, shown)),
    )


def _series(rows: pd.DataFrame, quality: pd.DataFrame) -> tuple[dict[int, float], dict[int, dict[str, float]]]:
    """What the alarm looks at: step → mean false credit, and step of an evaluation → item → quality."""
    credits = rows.dropna(subset=["gap"]).astype({"step": int}).groupby("step")["gap"].mean()
    by_step = defaultdict[int, dict[str, float]](dict)
    for step, item, value in quality[["step", "item_id", "quality"]].itertuples(index=False):
        by_step[int(step)][item] = float(value)
    return dict(zip(credits.index.tolist(), credits.tolist(), strict=True)), by_step


def _sentence(gap: Trend | None, alarms: Sequence[HackingAlarm]) -> str:
    if alarms and alarms[-1].is_raised:
        return "The policy looks as if it learns to earn points without licence: false credit rises, quality falls"
    if gap is None:
        return "Too few steps to say whether false credit rises"
    change = f"from {say.number(gap.first, 3)} to {say.number(gap.last, 3)}"
    if gap.rises:
        return f"False credit rises {change}: the policy may be learning to earn points without licence"
    return f"False credit does not clearly rise: {change} between the first and the last third of the steps"


def _keys(rows: pd.DataFrame, quality: pd.DataFrame, agreement: SelfAgreement | None) -> list[Key]:
    last = rows[rows["step"] == rows["step"].max()]
    scored = last.dropna(subset=["gear"])
    n = f"n = {len(scored)}, last step"
    named = (("Flat reward", "flat"), ("GEAR reward", "gear"), ("False credit", "gap"))
    keys = [Key(words, say.number(float(scored[name].mean()), 3), (n,)) for words, name in named if len(scored)]
    keys.append(Key("Without a reward", say.share(float(rows["unscored"].mean())), (f"n = {len(rows)}",)))
    if rows["unverified"].notna().any():
        known = rows["unverified"].dropna()
        keys.append(Key("Quotes not in the rollout", say.share(float(known.mean())), (f"n = {len(known)}",)))
    if len(quality):
        final = quality[quality["step"] == quality["step"].max()]["quality"]
        keys.append(
            Key("Held-out quality", say.number(float(final.mean()), 3), (f"n = {len(final)}, last evaluation",))
        )
    if agreement is not None:
        below = (f"n = {agreement.decisions} decisions", f"{say.share(agreement.by_chance)} by chance")
        keys.append(Key("Judge agrees with itself", say.share(agreement.value), below))
    return keys


def _rewards(rows: pd.DataFrame, gap: Trend | None) -> Section:
    both = {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}
    credit = {"flat − GEAR": curve(rows, "gap")}
    drawings = [
        draw_curves("Reward by step", both, "reward"),
        draw_curves("False credit by step", credit, "share of the points"),
    ]
    note = "Uprights are 95% intervals over the items of a point, where it has five or more."
    alarm = ""
    if gap is not None:
        ends = f"[{say.signed(gap.low)}, {say.signed(gap.high)}]"
        alarm = f"Change of false credit, last third less first third: 95% interval {ends}, {gap.steps} steps each."
    return Section(
        id="rewards",
        question="Rewards: does the policy earn more, or only more false credit?",
        title="Flat and dependency-aware rewards of the same judging",
        lead=alarm,
        drawings=list(filter(None, drawings)),
        missing="" if both["GEAR"] else "No rollout has a reward.",
        notes=(note, "Beside a rise look at a held-out evaluation: if that falls meanwhile, the reward is gamed."),
    )


def _licence(rows: pd.DataFrame, cases: pd.DataFrame) -> Section | None:
    if cases.empty:
        return None
    by_relation = {say.worded(name): curve(rollouts, "leaked") for name, rollouts in leaks(rows, cases).items()}
    rate = {"suppressed": curve(suppression(rows, cases), "suppressed")}
    drawings = [
        draw_curves("Paid without licence by a flat sum, by relation", by_relation, "share of the points"),
        draw_curves("Supported dependencies whose parent fails", rate, SHARE),
    ]
    return Section(
        id="licence",
        question="Licence: which dependencies are broken?",
        title="Where credit is not licensed",
        drawings=list(filter(None, drawings)),
    )


SHOWN = 12
"""Rollouts with the largest false credit, and criteria, that are in the page."""
DRAWN = 3
"""Criteria that have curves."""
SHARES = (
    "A share is how far a criterion counts, from 0 to 1: by itself, as a flat sum pays it, or licensed, after what it "
    "depends on (last third). In brackets: 95% interval over steps."
)
SHARE = "share"
"""What an axis shows that ends at 1."""
CHARACTERS = 1_500
"""Of a rollout, at most."""


def held_out(quality: pd.DataFrame, alarms: Sequence[HackingAlarm]) -> Section:
    """Whether the policy gets better on what it is not paid for."""
    drawing = draw_curves(
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
    drawings, lines = [], list[Cells]()
    for criterion in trends[:DRAWN]:
        rollouts = criterion_rows(rows, shares, criterion.item_id, criterion.criterion_id)
        curves = {"by itself": curve(rollouts, "own"), "licensed": curve(rollouts, "licensed")}
        words = say.cut(criterion.text or f"{criterion.item_id}, {criterion.criterion_id}", 80)
        drawings.append(draw_curves(words, curves, SHARE))
    for criterion in trends[:SHOWN]:
        own, words = criterion.own, say.cut(criterion.text or criterion.criterion_id, 160)
        change = Cell(own.last - own.first, own.low, own.high, ends="interval")
        shown = Cell(own.first), Cell(own.last), change, Cell(criterion.licensed), Cell(criterion.unlicensed)
        lines.append((criterion.item_id, words, Cell(float(criterion.rollouts), digits=0), *shown))
    header = ("item", "criterion", "rollouts", "first third", "last third", "change", "licensed", "not licensed")
    table = Table(
        "criteria",
        "Criteria whose own share changed most surely",
        header,
        lines,
        (SHARES,),
    )
    return Section(
        id="criteria",
        question="Criteria: what does the policy learn to meet?",
        title="Criteria over the steps",
        drawings=list(filter(None, drawings)),
        tables=(table,),
        notes=(f"{say.plural(len(trends), 'criterion', 'criteria')} were seen in six steps or more.",),
    )


def judge(rows: pd.DataFrame, pairs: pd.DataFrame) -> Section | None:
    """How many rollouts have no reward, which quotes are made up, and how far the judge agrees with itself."""
    lost = draw_curves("Share of rollouts without a reward", {"without a reward": curve(rows, "unscored")}, SHARE)
    twice = agreement_rows(rows, pairs)
    agreed = {"judged again": curve(twice, "agreed")}
    again = draw_curves("Criteria on the same level when judged again", agreed, SHARE)
    quotes = draw_curves(
        "Levels above 0 without a quote in the rollout", {"unverified": curve(rows, "unverified")}, SHARE
    )
    drawings = [lost if rows["unscored"].any() else None, quotes, again]
    if not any(drawings):
        return None
    lead = ""
    if agreement := self_agreement(pairs):
        lead = (
            f"Judged a second time, {say.share(agreement.value)} of {say.plural(agreement.decisions, 'decision')} on "
            f"{say.plural(agreement.rollouts, 'rollout')} stayed the same; by chance alone "
            f"{say.share(agreement.by_chance)} would."
        )
    return Section(
        id="judge",
        question="Judge: how far can its rewards be trusted?",
        title="Rollouts without a reward, quotes that are not there, and rollouts judged twice",
        lead=lead,
        drawings=list(filter(None, drawings)),
    )


def to_read(rows: pd.DataFrame, shares: pd.DataFrame, texts: Mapping[tuple[str, str], str]) -> Section | None:
    """The rollouts with the largest false credit. texts: (item, criterion) → what is looked for."""
    worst = rows.dropna(subset=["gap"]).nlargest(SHOWN, "gap")
    worst = worst[worst["gap"] > 0]
    if worst.empty:
        return None
    unlicensed = unlicensed_shares(shares[shares["response_id"].isin(worst["response_id"])])
    lines = list[Cells]()
    for rollout in worst.to_dict("records"):
        item_id, without_licence = rollout["item_id"], []
        for share in unlicensed.get(rollout["response_id"], ()):
            name = say.cut(texts.get((item_id, share.criterion_id)) or share.criterion_id, 90)
            without_licence.append(f"{name}: {share.own:.2f} by itself, {share.licensed:.2f} licensed")
        numbers = [number(rollout[name]) for name in ("flat", "gear", "gap")]
        words, text = "; ".join(without_licence) or "–", say.cut(rollout["text"], CHARACTERS)
        lines.append((f"{rollout['step']:g}", item_id, *numbers, words, text))
    table = Table(
        "to-read",
        "Rollouts with the largest false credit",
        ("step", "item", "flat", "GEAR", "false credit", "paid without licence", "rollout"),
        lines,
    )
    return Section(
        id="read",
        question="Read: what is paid without licence?",
        title="The rollouts with the largest false credit",
        tables=(table,),
    )


def draw_curves(title: str, curves: Mapping[str, Sequence[StepPoint]], up: str) -> Drawing | None:
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
    drawn = ChartPoint(*point[:4])
    if not is_share or drawn.low is None or drawn.high is None:
        return drawn
    return drawn._replace(low=max(0.0, drawn.low), high=min(1.0, drawn.high))
