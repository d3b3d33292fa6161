"""From rollouts to a training pool: wrong rollouts step by step with what the policy believed and what mended them, how
many rollouts each phase lets through, and what steps rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.methods import TUNED
from rubricflow.tasks.core.contracts.tables.edit import ARMS, FATES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, bar_chart, line_chart
from rubricflow.tasks.core.display.page import Drawing
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Row, Table, count, number
from rubricflow.tasks.methods.report.arm_figures import EditView, Key

ROLLOUT = ["seed", "response_id", "sample"]
HARMFUL = ("not_top_k", "grounded", "chosen")
SIGNALS = {"grounding_scheme": "scheme G^ρ", "grounding_answer": "answer G^a", "prefix_residual": "prefix G̃^p"}
ORIGINS = ("repaired", "intervention", "natural")
LOCALISED = ("edit_sft", "no_signals", "int_sft")
"""Arms that choose steps in ways of their own."""
BINS = 10
REASONS = 6
"""Reasons of refusal that are named at most."""
REPLY = 300
"""Characters of a refused reply that are shown at most."""
MENDED, LOST = 3, 1
"""Rollouts shown: of those that were mended, and of those whose revision came to nothing."""
STEPS, LENGTH = 40, 600
"""Steps of a rollout in a table at most, and characters of a step."""


class RevisedCase(NamedTuple):
    """A wrong rollout with its revision."""

    rollout: Row
    text: str
    steps: list[Row]
    """Boundaries 0…T."""
    revision: Row
    mended: list[Row]
    """Boundaries of the mended rollout; empty where there is none."""

    @property
    def title(self) -> str:
        """Which rollout it is, and how its revision fared."""
        gold = self.rollout["gold"]
        marks = self.revision["marks"]
        reached = sum(mark == gold for mark in marks)
        rollout = f"{say.name(self.rollout['response_id'])}, rollout {self.rollout['sample']}"
        outcome = f"{reached} of {say.plural(len(marks), 'continuation')} of the revision reach it"
        return f"{rollout}, seed {self.rollout['seed']}: {self.stated}, gold {gold}, {outcome}"

    @property
    def stated(self) -> str:
        """The mark that it states."""
        return "no mark" if self.rollout["mark"] is None else f"mark {self.rollout['mark']}"


def needs_texts(revisions: pa.Table) -> list[Key]:
    """The rollouts whose text the page shows: those of Edit-SFT that were mended, and one that was not, of those with a
    revision that was taken."""
    rows = revisions.filter(pc.field("arm") == "edit_sft").to_pandas()
    taken = rows[rows["sub_steps"].str.len() > 0].groupby(ROLLOUT)["kept"].any()
    return [*taken[taken].index[:MENDED], *taken[~taken].index[:LOST]]


def revised_cases(view: EditView) -> Iterator[RevisedCase]:
    """The rollouts shown, each with its best revision that was kept, else taken."""
    for key in needs_texts(view.revisions):
        seed, response, sample = key
        own = (pc.field("seed") == seed) & (pc.field("response_id") == response) & (pc.field("sample") == sample)
        base = pc.field("arm") == "base"
        edit_sft = pc.field("arm") == "edit_sft"
        rollouts = view.rollouts.filter(own & base & (pc.field("part") == "train")).to_pylist()
        steps = view.steps.filter(own & base).sort_by("step").to_pylist()
        if rollouts and steps and key in view.texts:
            revisions = view.revisions.filter(own & edit_sft).sort_by("rank").to_pylist()
            taken = [revision for revision in revisions if revision["sub_steps"]]
            best = next((revision for revision in taken if revision["kept"]), taken[0])
            mended = view.steps.filter(own & edit_sft).sort_by("step").to_pylist()
            yield RevisedCase(rollouts[0], view.texts[key], steps, best, mended)


def belief_chart(case: RevisedCase) -> Drawing:
    """The expected mark along a rollout and along what it was mended to, with the gold mark as a level line."""
    gold = float(case.rollout["gold"])
    top = float(case.rollout["top"])
    written, mended = (
        tuple(ChartPoint(float(step["step"]), step["expected"]) for step in steps)
        for steps in (case.steps, case.mended)
    )
    level = ChartPoint(0.0, gold), ChartPoint(max(len(written) - 1.0, 1.0), gold)
    lines = [ChartLine(f"as written: {case.stated}", written), ChartLine("gold", level)]
    if mended:
        lines.append(ChartLine("mended", mended))
    return Drawing(case.title, line_chart(case.title, lines, "steps read", "expected mark", within=(0.0, top)))


def step_table(case: RevisedCase) -> Table:
    """The steps of a rollout, and below the one that was revised what took its place."""
    columns = ("expected", "change", *SIGNALS)
    rows = list[Cells]()
    for step in case.steps[1 : STEPS + 1]:
        values = [Cell(step[name], digits=2) for name in columns]
        text = _shown(case.text[step["start"] : step["end"]])
        rows.append((f"{step['step']}. {text}", *values, FATES.get(step["fate"], "not looked at")))
        if step["step"] == case.revision["step"]:
            nothing = [Cell(None)] * len(columns)
            rows += [(f"→ {_shown(sub)}", *nothing, "in its place") for sub in case.revision["sub_steps"]]
    unshown = len(case.steps) - 1 - STEPS
    notes = (f"{say.plural(unshown, 'more step')} in the table `steps`.",) if unshown > 0 else ()
    header = ("Step", "expected mark", "Δε", *SIGNALS.values(), "selection")
    name = f"case-{case.rollout['seed']}-{case.rollout['response_id']}-{case.rollout['sample']}"
    return Table(name, case.title, header, rows, notes)


def _shown(text: str) -> str:
    return say.cut(say.visible(text), LENGTH)


def phases(view: EditView) -> dict[str, int]:
    """Rollouts that each phase of Edit-SFT leaves, of all seeds; empty where none were sampled."""
    of_base = pc.field("arm") == "base"
    sampled = view.rollouts.filter(of_base & (pc.field("part") == "train")).to_pandas()
    if sampled.empty:
        return {}
    steps = view.steps.filter(of_base).select([*ROLLOUT, "fate"]).to_pandas()
    revisions = view.revisions.filter(pc.field("arm") == "edit_sft").to_pandas()
    taken = revisions["sub_steps"].str.len() > 0
    left = {
        "wrong": sampled[sampled["mark"] != sampled["gold"]],
        "with a harmful step": steps[steps["fate"].isin(HARMFUL)],
        "with a weak one": steps[steps["fate"] == "chosen"],
        "revision taken": revisions[taken],
        "a continuation is right": revisions[revisions["kept"]],
    }
    return {"sampled": len(sampled), **{phase: _rollouts(rows) for phase, rows in left.items()}}


def takeaway(left: dict[str, int]) -> str:
    """How many wrong rollouts became demonstrations. left: see `phases`."""
    if not left.get("wrong"):
        return "No wrong rollouts"
    mended = left["a continuation is right"]
    share = say.share(mended / left["wrong"])
    return f"{say.count(mended)} of {say.plural(left['wrong'], 'wrong rollout')} were mended ({share})"


def selection_drawings(view: EditView, left: dict[str, int]) -> Iterator[Drawing]:
    """The phases as bars; and where in their rollouts the steps lie that are to be replaced, by internal signals and as
    the policy itself names them (Figure 4)."""
    if left:
        title = "Rollouts left after each phase, all seeds"
        bars = [Bar(phase, float(rollouts), shown=say.count(rollouts)) for phase, rollouts in left.items()]
        yield Drawing(title, bar_chart(Panel(title, bars)))
    series = []
    for arm, revisions in _by_arm(view.revisions, LOCALISED):
        replaced = revisions.dropna(subset=["step"]).drop_duplicates([*ROLLOUT, "step"])
        if len(replaced):
            # tenth i holds i/10 < k/T ≤ (i + 1)/10
            tenths = (replaced["step"].astype(int) * BINS - 1) // replaced["steps"]
            shares = np.bincount(tenths, minlength=BINS) / len(replaced)
            points = [ChartPoint(float(tenth), float(share)) for tenth, share in enumerate(shares)]
            series.append(ChartLine(arm, tuple(points)))
    if series:
        title = "Steps to be replaced, by place in the rollout"
        ticks = {float(tenth): f"{(tenth + 1) / BINS:g}" for tenth in range(BINS)}
        yield Drawing(title, line_chart(title, series, "k/T up to", "share of the steps", ticks, within=[0.0]))


def revision_table(revisions: pa.Table) -> Table:
    """What became of the revisions of every arm that has its own."""
    rows = list[Cells]()
    for arm, own in _by_arm(revisions, TUNED):
        kept = own[own["kept"]]
        taken = own["sub_steps"].str.len() > 0
        numbers = (_rollouts(own), len(own), int(taken.sum()), len(kept))
        rows.append((arm, *map(count, numbers), Cell(len(kept) / len(own), digits=2), count(_rollouts(kept))))
    header = ("Arm", "rollouts", "revisions", "taken", "kept", "kept share", "rollouts mended")
    return Table("revisions", "Revisions, all seeds", header, rows)


def refusal_notes(revisions: pa.Table) -> Iterator[str]:
    """Why revisions were refused, the commonest reasons first, and one reply that was refused for the commonest."""
    for arm, own in _by_arm(revisions, TUNED):
        reasons = own["refused"].value_counts()[:REASONS]
        if len(reasons):
            named = [f"{say.visible(say.worded(str(reason)))} ({say.count(many)})" for reason, many in reasons.items()]
            note = f"{arm}, refused: {', '.join(named)}"
            replies = own.loc[own["refused"] == reasons.index[0], "reply"].dropna()
            if len(replies):
                reply = say.cut(" ".join(say.visible(replies.iloc[0]).split()), REPLY)
                note += f". A reply that was refused for the first of these: “{reply}”"
            yield note


def pool_table(demonstrations: pa.Table) -> Table:
    """What each arm of supervised fine-tuning was trained on, a seed's mean."""
    rows = list[Cells]()
    for arm, pool in _by_arm(demonstrations, TUNED):
        seeds = pool["seed"].nunique()
        sizes = [(pool["origin"] == origin).sum() for origin in ORIGINS]
        rows.append((arm, count(seeds), *(Cell(float(size / seeds), digits=1) for size in (*sizes, len(pool)))))
    return Table("pools", "Training pools, mean of the seeds", ("Arm", "seeds", *ORIGINS, "all"), rows)


def separation_table(separations: pa.Table) -> Table:
    """Whether the grounding values tell steps that judge the answer from steps that put others together (Table 8)."""
    rows = []
    for (signal, unit), tests in separations.to_pandas().groupby(["signal", "unit"]):
        kinds = [count(int(tests[kind].sum())) for kind in ("grounding", "synthesis")]
        found = number(tests["effect"].mean()), number(tests["p"].max())
        rows.append((say.worded(signal), unit, count(len(tests)), *kinds, *found))
    head = ("Signal", "compared", "seeds", "judge the answer", "put together", "rank-biserial r", "largest p")
    return Table("separations", "Does the audit tell kinds of steps apart?", head, rows)


def _by_arm(table: pa.Table, arms: Iterable[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of these arms, in words."""
    frame = table.to_pandas()
    for arm in arms:
        own = frame[frame["arm"] == arm]
        if len(own):
            yield ARMS[arm], own


def _rollouts(rows: pd.DataFrame) -> int:
    """Different rollouts."""
    return len(rows.drop_duplicates(ROLLOUT))
