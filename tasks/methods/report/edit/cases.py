"""Wrong rollouts, step by step: what the policy believed, what selection did with each step, and what mended it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.edit import TUNED
from rubricflow.tasks.core.contracts.tables.edit import ARMS, FATES, Arm
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint, line_chart
from rubricflow.tasks.core.display.section import Drawing
from rubricflow.tasks.core.display.table import Cell, Cells, Row, Table, count, number
from rubricflow.tasks.methods.report.edit.charts import Belief, Quantiles, beliefs, boxes, funnel
from rubricflow.tasks.methods.report.edit.figures import EditView, Key

ROLLOUT = ["seed", "response_id", "sample"]
HARMFUL = ("not_top_k", "grounded", "chosen")
SIGNALS = {"grounding_scheme": "Scheme: G^ρ", "grounding_answer": "Answer: G^a", "prefix_residual": "Prefix: G̃^p"}
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
ORIGINS = ("repaired", "intervention", "natural")
LOCALISED: tuple[Arm, ...] = ("edit_sft", "no_signals", "int_sft")
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
    steps: list[Row]
    """Boundaries 0…T."""
    revision: Row
    mended: list[Row]
    """Boundaries of the mended rollout; empty where there is none."""


def needs_texts(revisions: pa.Table) -> list[Key]:
    """The rollouts whose text the page shows: those of Edit-SFT's first seed that were mended, and one that was not,
    each by its best revision that was kept, else taken."""
    order = [(name, "ascending") for name in ("seed", "response_id", "sample", "rank")]
    rows = revisions.filter(pc.equal(revisions["arm"], "edit_sft")).sort_by(order).to_pylist()
    keys = dict.fromkeys(_key(row) for row in rows if row["sub_steps"])
    mended_keys = {_key(row) for row in rows if row["kept"]}
    mended = [key for key in keys if key in mended_keys]
    lost = [key for key in keys if key not in mended_keys]
    return [*mended[:MENDED], *lost[:LOST]]


def drawings(view: EditView) -> Iterator[Drawing]:
    """The belief along each rollout shown, and along what it was mended to."""
    for case in _cases(view):
        row = case.rollout
        stated = "no mark" if row["mark"] is None else f"mark {row['mark']}"
        label = f"as written: {stated}"
        mended = Belief("mended", tuple(step["expected"] for step in case.mended)) if case.mended else None
        written = Belief(label, tuple(step["expected"] for step in case.steps))
        chosen = [step["step"] for step in case.steps if step["fate"] == "chosen"]
        title = f"{_rollout_title(row)}: {stated}, gold {row['gold']}, {_outcome(case)}"
        yield Drawing(title, beliefs(title, written, mended, row["gold"], row["top"], chosen))


def tables(view: EditView) -> Iterator[Table]:
    """The steps of each rollout shown."""
    header = ("Step", "expected mark", "Δε", "scheme G", "answer G", "prefix G̃", "selection")
    for index, case in enumerate(_cases(view)):
        text = view.texts[_key(case.rollout)]
        rows = list[Cells]()
        for step in case.steps[1 : STEPS + 1]:
            rows += _rows(step, text, case.revision)
        unshown = len(case.steps) - 1 - STEPS
        notes = (f"{say.plural(unshown, 'more step')} in the table `steps`.",) if unshown > 0 else ()
        yield Table(f"case-{index}", f"{_rollout_title(case.rollout)}, {_outcome(case)}", header, rows, notes)


def _cases(view: EditView) -> Iterator[RevisedCase]:
    keys = needs_texts(view.revisions)
    names = pa.array([key[1] for key in keys], pa.string())

    def of_shown(table: pa.Table) -> list[Row]:
        return [row for row in table.filter(pc.is_in(table["response_id"], names)).to_pylist() if _key(row) in keys]

    steps = sorted(of_shown(view.steps), key=lambda row: row["step"])
    revisions = [row for row in of_shown(view.revisions) if row["arm"] == "edit_sft" and row["sub_steps"]]
    rollouts = {_key(row): row for row in of_shown(view.rollouts) if (row["arm"], row["part"]) == ("base", "train")}
    for key in keys:
        boundaries = [row for row in steps if (_key(row), row["arm"]) == (key, "base")]
        mended = [row for row in steps if (_key(row), row["arm"]) == (key, "edit_sft")]
        if key in rollouts and key in view.texts and boundaries:
            of_rollout = [row for row in revisions if _key(row) == key]
            best = min(of_rollout, key=lambda row: (not row["kept"], row["rank"]))
            yield RevisedCase(rollouts[key], boundaries, best, mended)


def _rows(step: Row, text: str, revision: Row) -> Iterator[Cells]:
    """A step, and below it what replaced it."""
    values = ("expected", "change", "grounding_scheme", "grounding_answer", "prefix_residual")
    fate = FATES.get(step["fate"], "not looked at")
    words = _shown(text[step["start"] : step["end"]])
    yield f"{step['step']}. {words}", *(Cell(step[name], digits=2) for name in values), fate
    if step["step"] == revision["step"]:
        for sub in revision["sub_steps"]:
            yield f"→ {_shown(sub)}", *(Cell(None) for _ in values), "in its place"


def _outcome(case: RevisedCase) -> str:
    reached = sum(mark == case.rollout["gold"] for mark in case.revision["marks"])
    return f"{reached} of {say.plural(len(case.revision['marks']), 'continuation')} of the revision reach it"


def _rollout_title(row: Row) -> str:
    return f"{say.name(row['response_id'])}, rollout {row['sample']}, seed {row['seed']}"


def _shown(text: str) -> str:
    return say.cut(say.visible(text), LENGTH)


def _key(row: Row) -> Key:
    return row["seed"], row["response_id"], row["sample"]


# From rollouts to a training pool: how many each phase lets through, which steps it chooses and what they rest on.


def phases(view: EditView) -> dict[str, int]:
    """Rollouts that each phase of Edit-SFT leaves, of all seeds; empty where none were sampled."""
    sampled = _sampled(view.rollouts)
    if not len(sampled):
        return {}
    steps = view.steps.filter(pc.equal(view.steps["arm"], "base")).select([*ROLLOUT, "fate"]).to_pandas()
    revisions = _revisions(view.revisions, "edit_sft")
    return {
        "sampled": len(sampled),
        "wrong": int((sampled["mark"] != sampled["gold"]).sum()),
        "with a harmful step": _rollouts(steps[steps["fate"].isin(HARMFUL)]),
        "with a weak one": _rollouts(steps[steps["fate"] == "chosen"]),
        "revision taken": _rollouts(revisions[revisions["sub_steps"].str.len() > 0]),
        "a continuation is right": _rollouts(revisions[revisions["kept"]]),
    }


def takeaway(view: EditView) -> str:
    """How many wrong rollouts became demonstrations."""
    rollouts = phases(view)
    if not rollouts.get("wrong"):
        return "No wrong rollouts"
    mended = rollouts["a continuation is right"]
    share = say.share(mended / rollouts["wrong"])
    return f"{say.count(mended)} of {say.plural(rollouts['wrong'], 'wrong rollout')} were mended ({share})"


def phase_drawings(view: EditView) -> Iterator[Drawing]:
    """The phases as bars."""
    if rollouts := phases(view):
        yield Drawing("Rollouts left after each phase, all seeds", funnel("Rollouts left after each phase", rollouts))


def fate_table(view: EditView) -> Table:
    """What selection did with the steps of wrong rollouts."""
    counts = Counter(fate for fate in view.steps["fate"].to_pylist() if fate)
    rows = [(words, count(counts[fate])) for fate, words in FATES.items() if counts[fate]]
    return Table("fates", "Steps of wrong rollouts", ("What selection did", "steps"), rows)


def revision_table(view: EditView) -> Table:
    """What became of the revisions of every arm that has its own."""
    rows = []
    for arm in TUNED:
        revisions = _revisions(view.revisions, arm)
        if len(revisions):
            accepted, used = revisions[revisions["sub_steps"].str.len() > 0], revisions[revisions["kept"]]
            sizes = count(_rollouts(revisions)), count(len(revisions)), count(len(accepted)), count(len(used))
            used_share = Cell(len(used) / len(revisions), digits=2)
            rows.append((ARMS[arm], *sizes, used_share, count(_rollouts(used))))
    header = ("Arm", "rollouts", "revisions", "taken", "kept", "kept share", "rollouts mended")
    return Table("revisions", "Revisions, all seeds", header, rows)


def refusal_notes(view: EditView) -> Iterator[str]:
    """Why revisions were refused, the commonest reasons first, and one reply that was refused for the commonest."""
    for arm in TUNED:
        rows = _revisions(view.revisions, arm).dropna(subset=["refused"])
        if reasons := Counter(rows["refused"]).most_common(REASONS):
            named = ", ".join(f"{say.visible(say.worded(reason))} ({say.count(many)})" for reason, many in reasons)
            yield f"{ARMS[arm]}, refused: {named}{_reply(rows, reasons[0][0])}"


def _reply(rows: pd.DataFrame, reason: str) -> str:
    """The first reply that was refused for a reason, as the end of a sentence; nothing where none was kept."""
    replies = rows.loc[rows["refused"] == reason, "reply"].dropna()
    if not len(replies):
        return ""
    line = " ".join(say.visible(str(replies.iloc[0])).split())
    return f". A reply that was refused for the first of these: “{say.cut(line, REPLY)}”"


def pool_table(view: EditView) -> Table:
    """What each arm of supervised fine-tuning was trained on, a seed's mean."""
    demonstrations = view.demonstrations.select(["arm", "seed", "origin"]).to_pandas()
    rows = list[Cells]()
    for arm in TUNED:
        pool = demonstrations[demonstrations["arm"] == arm]
        if len(pool):
            seeds = pool["seed"].nunique()
            origins = (Cell(float((pool["origin"] == origin).sum() / seeds), digits=1) for origin in ORIGINS)
            rows.append((ARMS[arm], count(seeds), *origins, Cell(len(pool) / seeds, digits=1)))
    return Table("pools", "Training pools, mean of the seeds", ("Arm", "seeds", *ORIGINS, "all"), rows)


def position_drawings(view: EditView) -> Iterator[Drawing]:
    """Where in their rollouts the steps lie that are to be replaced, by internal signals and as the policy itself
    names them (Figure 4)."""
    series = []
    for arm in LOCALISED:
        replaced = _revisions(view.revisions, arm).dropna(subset=["step"]).drop_duplicates([*ROLLOUT, "step"])
        if len(replaced):
            tenth = (replaced["step"].astype(int) * BINS - 1) // replaced[
                "steps"
            ]  # tenth i holds i/10 < k/T ≤ (i + 1)/10
            shares = np.bincount(tenth, minlength=BINS) / len(replaced)
            points = [ChartPoint(float(index), float(share)) for index, share in enumerate(shares)]
            series.append(ChartLine(ARMS[arm], tuple(points)))
    if series:
        title = "Steps to be replaced, by place in the rollout"
        ticks = {float(index): f"{(index + 1) / BINS:g}" for index in range(BINS)}
        yield Drawing(title, line_chart(title, series, "k/T up to", "share of the steps", ticks, within=[0.0]))


def grounding_drawings(view: EditView) -> Iterator[Drawing]:
    """Each grounding value of the steps of wrong and of right rollouts, with the limit under which it is weak."""
    steps = view.steps.filter(pc.equal(view.steps["arm"], "base"))
    values = steps.select(["seed", "step", "fate", *SIGNALS]).to_pandas()
    values = values[values["step"] > 0]
    kinds = {
        "chosen": values["fate"] == "chosen",
        "harmful, left": values["fate"].isin(HARMFUL[:2]),
        "other of wrong ones": values["fate"].isin(("helped", "near_tie")),
        "of right rollouts": values["fate"].isna(),
    }
    for signal, words in SIGNALS.items():
        drawn = [Quantiles(kind, _quantiles(values.loc[mask, signal])) for kind, mask in kinds.items() if mask.any()]
        if drawn and values[signal].notna().any():
            limit = values.groupby("seed")[signal].quantile(view.settings.revising.weak_below).mean()
            yield Drawing(f"{words}, nats", boxes(words, drawn, float(limit)))


def separation_tables(view: EditView) -> Iterator[Table]:
    """Whether the grounding values tell steps that judge the answer from steps that put others together (Table 8)."""
    if not view.separations.num_rows:
        return
    rows = []
    for (signal, unit), tests in view.separations.to_pandas().groupby(["signal", "unit"], sort=True):
        sums = (count(int(tests[kind].sum())) for kind in ("grounding", "synthesis"))
        found = number(tests["effect"].mean()), number(tests["p"].max())
        rows.append((say.worded(signal), unit, count(len(tests)), *sums, *found))
    head = ("Signal", "compared", "seeds", "judge the answer", "put together", "rank-biserial r", "largest p")
    yield Table("separations", "Does the audit tell kinds of steps apart?", head, rows)


def _quantiles(values: pd.Series[float]) -> tuple[float, float, float, float, float]:
    a, b, c, d, e = (float(value) for value in values.quantile(list(QUANTILES)))
    return a, b, c, d, e


def _sampled(rollouts: pa.Table) -> pd.DataFrame:
    is_base = (pc.field("arm") == "base") & (pc.field("part") == "train")
    sampled: pd.DataFrame = rollouts.filter(is_base).select([*ROLLOUT, "mark", "gold"]).to_pandas()
    return sampled


def _revisions(revisions: pa.Table, arm: str) -> pd.DataFrame:
    names = [*ROLLOUT, "step", "steps", "sub_steps", "refused", "reply", "kept"]
    rows: pd.DataFrame = revisions.filter(pc.equal(revisions["arm"], arm)).select(names).to_pandas()
    return rows


def _rollouts(rows: pd.DataFrame) -> int:
    """Different rollouts."""
    return len(rows.drop_duplicates(ROLLOUT))
