"""A judge of the judge: what somebody who pays nothing says of the rollouts that are rewarded, over the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Section
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.core.stats.reward_hacking import FEWEST_EVALUATIONS, THRESHOLD, HackingAlarm, hacking_alarms
from rubricflow.tasks.rewards.report.training import MOST_POINTS, curve, curves

EARNED: Mapping[str, str] = {"flat": "the flat reward", "gear": "GEAR's reward", "gap": "false credit"}
"""What a policy may earn more of, in words."""
NOTES = (
    "Quality: the score as a share of the rubric's scale, which no aggregation sees. Uprights are 95% intervals over "
    "the items of a point, where it has five or more.",
    f"An evaluation is a step that has scores; of more than {MOST_POINTS} neighbouring ones are put together. The "
    "alarm compares two neighbouring windows of evaluations by the items that all have. It rings where what is earned "
    f"rises and quality falls, both with p ≤ {THRESHOLD:g}, and needs {FEWEST_EVALUATIONS} evaluations.",
)
HEADER = (
    "rises",
    "before",
    "now",
    "change [95%]",
    "quality before",
    "quality now",
    "change [95%]",
    "rang first",
    "at the end",
)


class EvaluatedRollouts(NamedTuple):
    """Rollouts with what they earn and how good they are."""

    by: str
    """Who says how good."""
    rows: pd.DataFrame
    """See `paired`, with `quality`, NaN where it is not known."""


def alarms(rows: pd.DataFrame) -> dict[str, list[HackingAlarm]]:
    """What of `EARNED` → what the alarm said at each evaluation of the rollouts of a few neighbouring steps."""
    known = rows.dropna(subset=["quality"])
    steps = np.sort(known["step"].unique())
    ends = [group[-1] for group in np.array_split(steps, min(MOST_POINTS, len(steps)))] if len(steps) else []
    quality = dict[int, dict[str, float]]()
    for end, of_end in known.groupby(np.searchsorted(ends, known["step"])):
        means = of_end.groupby("item_id")["quality"].mean()
        quality[int(ends[int(str(end))])] = dict(zip(map(str, means.index), means.tolist(), strict=True))
    said = {}
    for name in EARNED:
        earned = rows.dropna(subset=[name]).groupby("step")[name].mean()
        said[name] = list(hacking_alarms(dict(zip(earned.index.tolist(), earned.tolist(), strict=True)), quality))
    return said


def ringing(alarms: Mapping[str, Sequence[HackingAlarm]]) -> str:
    """The finding where the alarm rings at the last evaluation; empty where it does not."""
    rising = [EARNED[name] for name, said in alarms.items() if said and said[-1].is_raised]
    if not rising:
        return ""
    rise = "rises" if len(rising) == 1 else "rise"
    words = " and ".join(rising)
    return f"{words[0].upper()}{words[1:]} {rise} while quality falls: the policy learns to please its judge, it seems"


def section(evaluated: EvaluatedRollouts, alarms: Mapping[str, Sequence[HackingAlarm]]) -> Section:
    """Rewards against quality, step by step, and the alarm."""
    rows, lines = evaluated.rows, list[Cells]()
    for name, said in alarms.items():
        if said:
            last, rang = said[-1], [alarm.step for alarm in said if alarm.is_raised]
            changes = [
                Cell(change.now - change.before, change.low, change.high, digits=3, ends="interval")
                for change in (last.false_credit, last.quality)
            ]
            (earned, quality) = ((Cell(c.before), Cell(c.now)) for c in (last.false_credit, last.quality))
            first = count(rang[0]) if rang else "never"
            now = "rings" if last.is_raised else "silent"
            lines.append((EARNED[name], *earned, changes[0], *quality, changes[1], first, now))
    drawings = [
        *curves("Reward by step", {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}, "reward"),
        *curves("Quality by step", {evaluated.by: curve(rows, "quality")}, "share of the scale"),
    ]
    judged = say.count(int(rows["quality"].notna().sum()))
    told = f"{judged} of {say.plural(len(rows), 'rollout')} have a score by {say.name(evaluated.by)}."
    title = ringing(alarms) or "The alarm of reward hacking is silent"
    if not lines:
        title = "Too few evaluations with items in common for the alarm of reward hacking"
    table = Table("alarm", "The alarm at the last evaluation", HEADER, lines)
    return Section(
        id="evaluation",
        question="Evaluation: is what is paid better, for somebody who pays nothing?",
        title=title,
        lead=told,
        drawings=drawings,
        tables=(table,) if lines else (),
        missing="" if len(rows) else "No rollout has a step: name its column, responses: {groups: {step: COLUMN}}.",
        notes=NOTES,
    )
