"""The training report: pure, tables in, a page out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Key, Page, Section
from rubricflow.tasks.core.stats.reward_hacking import HackingAlarm, hacking_alarms
from rubricflow.tasks.rewards.report.training import sections
from rubricflow.tasks.rewards.report.training.curves import (
    Trend,
    criterion_trends,
    curve,
    leaks,
    paired,
    suppression,
    trend,
)
from rubricflow.tasks.rewards.report.training.judging import SelfAgreement, self_agreement
from rubricflow.tasks.rewards.report.training.sections import drawn


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
        sections.held_out(view.quality, alarms),
        _licence(rows, view.cases),
        sections.criteria(rows, view.shares, criterion_trends(rows, view.shares, view.texts)),
        sections.judge(rows, view.twice),
        sections.to_read(rows, view.shares, view.texts),
    ]
    steps = int(rows["step"].nunique())
    who = f"{say.plural(len(rows), 'rollout')} of {say.plural(steps, 'step')}"
    return Page(
        kind="Training report",
        study=say.name(view.run_id),
        title=_sentence(gap, alarms),
        lead=f"{who}. False credit is what a flat sum pays beyond what the dependencies of the criteria license.",
        keys=tuple(_keys(rows, view.quality, self_agreement(view.twice))),
        sections=tuple(section for section in shown if section is not None),
    )


def _series(rows: pd.DataFrame, quality: pd.DataFrame) -> tuple[dict[int, float], dict[int, dict[str, float]]]:
    """What the alarm looks at: step → mean false credit, and step of an evaluation → item → quality."""
    credits = rows.dropna(subset=["gap"]).groupby("step")["gap"].mean()
    by_step: dict[int, dict[str, float]] = {}
    for row in quality.to_dict("records"):
        by_step.setdefault(int(row["step"]), {})[str(row["item_id"])] = float(row["quality"])
    return {int(step): float(value) for step, value in credits.items()}, by_step  # type: ignore[call-overload]


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
        beside = (f"n = {agreement.decisions} decisions", f"{say.share(agreement.by_chance)} by chance")
        keys.append(Key("Judge agrees with itself", say.share(agreement.value), beside))
    return keys


def _rewards(rows: pd.DataFrame, gap: Trend | None) -> Section:
    both = {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}
    credit = {"flat − GEAR": curve(rows, "gap")}
    drawings = [drawn("Reward by step", both, "reward"), drawn("False credit by step", credit, "share of the points")]
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
        drawings=tuple(drawing for drawing in drawings if drawing),
        missing="" if both["GEAR"] else "No rollout has a reward.",
        notes=(note, "Beside a rise look at a held-out evaluation: if that falls meanwhile, the reward is gamed."),
    )


def _licence(rows: pd.DataFrame, cases: pd.DataFrame) -> Section | None:
    if cases.empty:
        return None
    by_relation = {say.worded(name): curve(rollouts, "leaked") for name, rollouts in leaks(rows, cases).items()}
    rate = {"suppressed": curve(suppression(rows, cases), "suppressed")}
    drawings = [
        drawn("Paid without licence by a flat sum, by relation", by_relation, "share of the points"),
        drawn("Supported dependencies whose parent fails", rate, sections.SHARE),
    ]
    return Section(
        id="licence",
        question="Licence: which dependencies are broken?",
        title="Where credit is not licensed",
        drawings=tuple(drawing for drawing in drawings if drawing),
    )
