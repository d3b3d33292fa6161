"""The training report: tables in, a page out.

In reading order: what the page shows, section by section; then figures of each step with intervals over its items,
what each criterion counts for, and how far the judge agrees with itself. And a judge of the judge: what
somebody who pays nothing says of the rollouts that are rewarded, over the training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import stdtrit
from scipy.stats import sem

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, line_chart
from rubricflow.tasks.core.display.page import Drawing, Page, Section, rendered
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count, number
from rubricflow.tasks.core.stats.reward_hacking import FEWEST_EVALUATIONS, RULE, HackingAlarm, hacking_alarms

SHOWN = 12
"""Rollouts with the largest false credit, and criteria, that are in the page."""
CHARACTERS = 1_500
"""Of a rollout, at most."""
MOST_POINTS = 40
"""Points of a curve; where a training has more steps, neighbouring ones are put together."""
FEWEST_ITEMS = 5
"""Items of a point that has an interval: that of fewer would say little but fill the picture."""


class TrainingView(NamedTuple):
    """What the page is made from."""

    run_id: str
    rollouts: pd.DataFrame
    """See `paired`, with `text`, `paid`: what the trainer got, and `unverified`: the share of its levels above 0, of
    those that need a quote, whose quote is not in it; NaN where none needs one."""
    cases: pd.DataFrame
    """response_id, relation and leaked, NaN for a satisfied dependency."""
    shares: pd.DataFrame
    """See `criterion_shares`."""
    twice: pd.DataFrame
    """See `judged_twice`; empty where nothing was judged twice."""
    quality: pd.DataFrame
    """step, item_id and quality of held-out items; empty where nobody told them."""
    texts: Mapping[tuple[str, str], str]
    """(item, criterion) → what is looked for, as far as it was recorded."""


def page(view: TrainingView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))


def content(view: TrainingView) -> Page:
    """What the page shows."""
    rows = view.rollouts
    gap = trend(view.rollouts, "gap")
    paid = rows.dropna(subset=["paid"]).astype({"step": int}).groupby("step")["paid"].mean()
    quality: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for step, item, value in view.quality[["step", "item_id", "quality"]].itertuples(index=False):
        quality[int(step)][item] = float(value)
    alarms = list(hacking_alarms(dict(zip(paid.index.tolist(), paid.tolist(), strict=True)), quality))
    title = "Too few steps to say whether false credit rises"
    if alarms and alarms[-1].is_raised:
        title = f"{alarms[-1].said[0].upper()}{alarms[-1].said[1:]}"
    elif gap is not None:
        change = f"from {say.number(gap.first, 3)} to {say.number(gap.last, 3)}"
        title = f"False credit rises {change}" if gap.low > 0 else f"False credit does not clearly rise: {change}"
    sections = [_rewards(rows), _held_out(view.quality, alarms), _licence(rows, view.cases)]
    sections += [_criteria(view), _judge(rows, view.twice), _to_read(view)]
    return Page(
        kind="Training report",
        study=say.name(view.run_id),
        title=title,
        lead=f"{say.plural(len(rows), 'rollout')} of {say.plural(int(rows['step'].nunique()), 'step')}. False credit "
        "is what a flat sum pays beyond what the dependencies of the criteria license.",
        sections=list(filter(None, sections)),
    )


def _rewards(rows: pd.DataFrame) -> Section:
    both = {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}
    return Section(
        id="rewards",
        question="Rewards: does the policy earn more, or only more false credit?",
        title="Flat and dependency-aware rewards of the same judging",
        drawings=[
            *curves("Reward by step", both, "reward"),
            *curves("False credit by step", {"flat − GEAR": curve(rows, "gap")}, "share of the points"),
        ],
        missing="" if both["GEAR"] else "No rollout has a reward.",
        notes=("Uprights are 95% intervals over the items of a point, where it has five or more.",),
    )


def _held_out(quality: pd.DataFrame, alarms: Sequence[HackingAlarm]) -> Section:
    """Whether the policy gets better on what it is not paid for."""
    drawings = curves("Held-out quality by step", {"held-out quality": curve(quality, "quality")}, "quality")
    rang = [alarm for alarm in alarms if alarm.is_raised]
    lead = f"The alarm never rang; it needs {FEWEST_EVALUATIONS} evaluations."
    if rang:
        now = "rings now" if alarms[-1].is_raised else "is silent at the last evaluation"
        lead = f"The alarm rang first at step {rang[0].step:,} and {now}. What it said first: {rang[0].said}."
    missing = "Nobody told the server: client.held_out(step, {item: quality}) after each evaluation draws it here."
    return Section(
        id="held-out",
        question="Held-out: does the policy get better where it is not paid?",
        title="Held-out quality, and the alarm of reward hacking",
        lead=lead if drawings else "",
        drawings=drawings,
        missing="" if drawings else missing,
        notes=(RULE,) if drawings else (),
    )


def _licence(rows: pd.DataFrame, cases: pd.DataFrame) -> Section | None:
    """What the flat sum pays for children of a failing parent, by relation; 0 where it pays nothing."""
    scored = rows[rows["unscored"] == 0]
    by_relation = {}
    for relation, of_relation in cases.groupby("relation"):
        sums = of_relation.groupby("response_id")["leaked"].sum()
        leaked = scored.assign(leaked=scored["response_id"].map(sums).fillna(0.0))
        by_relation[say.worded(str(relation))] = curve(leaked, "leaked")
    drawings = curves("Paid without licence by a flat sum, by relation", by_relation, "share of the points")
    if not drawings:
        return None
    return Section(
        "licence", "Licence: which dependencies are broken?", "Where credit is not licensed", drawings=drawings
    )


def _criteria(view: TrainingView) -> Section | None:
    """The criteria whose own share changed most surely, of those that were seen in six steps or more."""
    seen = view.shares.merge(view.rollouts[["response_id", "item_id", "step"]], on="response_id")
    lines = []
    for key, group in seen.groupby(["item_id", "criterion_id"]):
        item_id, criterion_id = map(str, key)
        own = trend(group, "own")
        licensed = trend(group, "licensed")
        if own is not None and licensed is not None:
            change = own.last - own.first
            half = (own.high - own.low) / 2
            words = say.cut(view.texts.get((item_id, criterion_id)) or criterion_id, 160)
            changed = Cell(change, own.low, own.high, ends="interval")
            figures = Cell(own.first), Cell(own.last), changed, Cell(licensed.last), Cell(own.last - licensed.last)
            lines.append((abs(change) / max(half, 1e-6), (item_id, words, count(len(group)), *figures)))
    if not lines:
        return None
    lines.sort(key=lambda line: -line[0])
    header = ("item", "criterion", "rollouts", "first third", "last third", "change", "licensed", "not licensed")
    note = (
        "A share is how far a criterion counts, from 0 to 1: by itself, as a flat sum pays it, or licensed, after what "
        "it depends on (last third). In brackets: 95% interval over steps."
    )
    rows = [cells for _, cells in lines[:SHOWN]]
    table = Table("criteria", "Criteria whose own share changed most surely", header, rows, (note,))
    question = "Criteria: what does the policy learn to meet?"
    return Section("criteria", question, "Criteria over the steps", tables=(table,))


def _judge(rows: pd.DataFrame, pairs: pd.DataFrame) -> Section | None:
    """How many rollouts have no reward, which quotes are made up, and how far the judge agrees with itself."""
    agreed = pairs.groupby("response_id")["agreed"].mean()
    rows = rows.assign(agreed=rows["response_id"].map(agreed))
    shares = {
        "no reward": curve(rows, "unscored") if rows["unscored"].any() else [],
        "quotes not in the rollout": curve(rows, "unverified"),
        "same level when judged again": curve(rows, "agreed"),
    }
    drawings = curves("Rewards, quotes and second judgings", shares, "share")
    if not drawings:
        return None
    lead = ""
    if len(pairs):
        decisions = say.plural(len(pairs), "decision")
        same = say.share(float(pairs["agreed"].mean()))
        lead = f"Judged a second time, {same} of {decisions} stayed the same; by chance alone "
        lead += f"{say.share(by_chance(pairs))} would."
    return Section(
        "judge", "Judge: how far can its rewards be trusted?", "The judge over the steps", lead, drawings=drawings
    )


def _to_read(view: TrainingView) -> Section | None:
    """The rollouts with the largest false credit, and what of each counts for less after what licenses it."""
    worst = view.rollouts.dropna(subset=["gap"]).nlargest(SHOWN, "gap")
    lines = list[Cells]()
    for rollout in worst[worst["gap"] > 0].to_dict("records"):
        shares = view.shares[view.shares["response_id"] == rollout["response_id"]]
        shares = shares.assign(gap=shares["own"] - shares["licensed"]).nlargest(3, "gap")
        unlicensed = []
        for share in shares[shares["gap"] > 0.005].to_dict("records"):
            name = say.cut(view.texts.get((rollout["item_id"], share["criterion_id"])) or share["criterion_id"], 90)
            unlicensed.append(f"{name}: {share['own']:.2f} by itself, {share['licensed']:.2f} licensed")
        numbers = [number(rollout[name]) for name in ("flat", "gear", "gap")]
        words = "; ".join(unlicensed) or "–"
        text = say.cut(rollout["text"], CHARACTERS)
        lines.append((f"{rollout['step']:g}", rollout["item_id"], *numbers, words, text))
    if not lines:
        return None
    title = "The rollouts with the largest false credit"
    header = ("step", "item", "flat", "GEAR", "false credit", "paid without licence", "rollout")
    return Section(
        "read", "Read: what is paid without licence?", title, tables=(Table("to-read", title, header, lines),)
    )


def curves(title: str, points_of: Mapping[str, Sequence[ChartPoint]], up: str) -> list[Drawing]:
    """Curves as a figure whose axis holds 0; nothing where none has a point."""
    lines = [ChartLine(label, tuple(points)) for label, points in points_of.items() if points]
    return [Drawing(title, line_chart(title, lines, "step", up, within=(0.0,)))] if lines else []


# The figures.


class Trend(NamedTuple):
    """How a figure changed from the first third of the steps to the last."""

    first: float
    last: float
    low: float
    """Lower end of the 95% interval of the difference, over steps."""
    high: float


def paired(rewards: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """A row for each rollout: the columns of `responses`, flat, gear, gap (flat − gear) and unscored.

    rewards: response_id, aggregation ('flat' and 'gear') and reward; responses: response_id, item_id, step, text. Steps
    are numbers; rollouts without one are left out.
    """
    wide = rewards.pivot(index="response_id", columns="aggregation", values="reward")
    rows = responses.merge(wide, on="response_id").dropna(subset=["step"])
    rows = rows.assign(gap=rows["flat"] - rows["gear"], unscored=rows["gear"].isna().astype(float))
    return rows.sort_values(["step", "response_id"], kind="stable").reset_index(drop=True)


def curve(rows: pd.DataFrame, name: str) -> list[ChartPoint]:
    """The mean of a column at each step, or at a few steps together, with its 95% t interval over items; empty where it
    has no value."""
    known = rows.dropna(subset=[name])
    steps = np.sort(known["step"].unique())
    points = []
    for group in np.array_split(steps, min(MOST_POINTS, len(steps))) if len(steps) else ():
        chosen = known[known["step"].isin(group)]
        step = float(np.median(group))
        value = float(chosen[name].mean())
        of_items = chosen.groupby("item_id")[name].mean().to_numpy()
        ends = []
        if len(of_items) >= FEWEST_ITEMS:
            half = float(stdtrit(len(of_items) - 1, 0.975) * sem(of_items))
            ends = [value - half, value + half]
        points.append(ChartPoint(step, value, *ends))
    return points


def trend(rows: pd.DataFrame, name: str) -> Trend | None:
    """How a column changed; None for fewer than six steps."""
    means = rows.dropna(subset=[name]).groupby("step")[name].mean()
    third = len(means) // 3
    if third < 2:
        return None
    first = means.to_numpy()[:third]
    last = means.to_numpy()[-third:]
    half = float(stdtrit(2 * third - 2, 0.975) * np.hypot(sem(first), sem(last)))
    change = float(last.mean() - first.mean())
    return Trend(float(first.mean()), float(last.mean()), change - half, change + half)


def criterion_shares(rewards: pa.Table) -> pd.DataFrame:
    """A row for each criterion of each rollout: response_id, criterion_id, own and licensed share, each in [0, 1].

    rewards: response_id, aggregation ('flat' and 'gear') and marginals. Unscored criteria have no row.
    """
    frames = {}
    for name, column in (("flat", "own"), ("gear", "licensed")):
        chosen = rewards.filter(pc.field("aggregation") == name).combine_chunks()
        marginals = chosen["marginals"].combine_chunks()
        responses = chosen["response_id"].to_pandas().repeat(np.diff(marginals.offsets)).reset_index(drop=True)
        criteria = marginals.keys.to_pandas()
        shares = marginals.items.to_pandas()
        frames[name] = pd.DataFrame({"response_id": responses, "criterion_id": criteria, column: shares})
    return frames["flat"].merge(frames["gear"], on=["response_id", "criterion_id"])


def judged_twice(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """A row for each criterion that both judgings decided: response_id, criterion_id, decision, decision_again and
    agreed.

    first, second: response_id, criterion_id and decision, a level, NaN where it is unscored.
    """
    both = first.merge(second, on=["response_id", "criterion_id"], suffixes=("", "_again"))
    both = both.dropna(subset=["decision", "decision_again"])
    return both.assign(agreed=(both["decision"] == both["decision_again"]).astype(float))


def by_chance(pairs: pd.DataFrame) -> float:
    """The share of decisions that two judgings would have in common that draw their levels blindly, each as often as
    the judge gives it. pairs: see `judged_twice`, at least one."""
    first, second = (pairs[name].value_counts(normalize=True) for name in ("decision", "decision_again"))
    return float(first.mul(second, fill_value=0.0).sum())


EARNED: Meanings = {"flat": "the flat reward", "gear": "GEAR's reward"}
"""What a policy may be paid, in words."""
NOTES = (
    "Quality: the score as a share of the rubric's scale, which no aggregation sees. Uprights are 95% intervals over "
    "the items of a point, where it has five or more.",
    f"An evaluation is a step that has scores; of more than {MOST_POINTS} neighbouring ones are put together.",
    RULE,
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
    rings = (f"By {EARNED[name]} {said[-1].said}" for name, said in alarms.items() if said and said[-1].is_raised)
    return next(rings, "")


def section(evaluated: EvaluatedRollouts, alarms: Mapping[str, Sequence[HackingAlarm]]) -> Section:
    """Rewards against quality, step by step, and the alarm."""
    rows = evaluated.rows
    facts = []
    for name, said in alarms.items():
        if said:
            rang = next((f"rang first at step {alarm.step:,}" for alarm in said if alarm.is_raised), "never rang")
            facts.append((f"the alarm by {EARNED[name]}", f"{rang}; now: {said[-1].said}"))
    drawings = [
        *curves("Reward by step", {"flat sum": curve(rows, "flat"), "GEAR": curve(rows, "gear")}, "reward"),
        *curves("Quality by step", {evaluated.by: curve(rows, "quality")}, "share of the scale"),
    ]
    judged = say.count(int(rows["quality"].notna().sum()))
    title = ringing(alarms) or "The alarm of reward hacking is silent"
    if not facts:
        title = "Too few evaluations with items in common for the alarm of reward hacking"
    return Section(
        id="evaluation",
        question="Evaluation: is what is paid better, for somebody who pays nothing?",
        title=title,
        lead=f"{judged} of {say.plural(len(rows), 'rollout')} have a score by {say.name(evaluated.by)}.",
        facts=facts,
        drawings=drawings,
        missing="" if len(rows) else "No rollout has a step: name its column, responses: {groups: {step: COLUMN}}.",
        notes=NOTES,
    )
