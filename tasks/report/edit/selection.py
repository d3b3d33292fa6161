"""From rollouts to a training pool: how many each phase lets through, which steps it chooses and what they rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.settings.edit import ARMS, TUNED, Arm
from tasks.contracts.tables.edit import FATES
from tasks.display import say
from tasks.display.lines import ChartLine, ChartPoint, line_chart
from tasks.display.section import Drawing
from tasks.display.table import Cell, Cells, Table, count
from tasks.report.edit.charts import Quantiles, boxes, funnel
from tasks.report.edit.figures import EditView

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


def phases(view: EditView) -> dict[str, int]:
    """Rollouts that each phase of Edit-SFT leaves, of all seeds; empty where none were sampled."""
    sampled = _sampled(view.rollouts)
    if not len(sampled):
        return {}
    steps = view.steps.filter(pc.equal(view.steps["arm"], "base")).select([*ROLLOUT, "fate"]).to_pandas()
    harmful, weak = steps[steps["fate"].isin(HARMFUL)], steps[steps["fate"] == "chosen"]
    revisions = _revisions(view.revisions, "edit_sft")
    accepted, used = revisions[revisions["sub_steps"].str.len() > 0], revisions[revisions["kept"]]
    return {
        "sampled": len(sampled),
        "wrong": int((sampled["mark"] != sampled["gold"]).sum()),
        "with a harmful step": _rollouts(harmful),
        "with a weak one": _rollouts(weak),
        "revision taken": _rollouts(accepted),
        "a continuation is right": _rollouts(used),
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
    rows: list[Cells] = [(FATES[fate], count(counts[fate])) for fate in FATES if counts[fate]]
    return Table("fates", "Steps of wrong rollouts", ("What selection did", "steps"), tuple(rows))


def revision_table(view: EditView) -> Table:
    """What became of the revisions of every arm that has its own."""
    rows: list[Cells] = []
    for arm in TUNED:
        revisions = _revisions(view.revisions, arm)
        if len(revisions):
            accepted, used = revisions[revisions["sub_steps"].str.len() > 0], revisions[revisions["kept"]]
            sizes = count(_rollouts(revisions)), count(len(revisions)), count(len(accepted)), count(len(used))
            used_share = Cell(len(used) / len(revisions), digits=2)
            rows.append((ARMS[arm], *sizes, used_share, count(_rollouts(used))))
    header = ("Arm", "rollouts", "revisions", "taken", "kept", "kept share", "rollouts mended")
    return Table("revisions", "Revisions, all seeds", header, tuple(rows))


def refusal_notes(view: EditView) -> Iterator[str]:
    """Why revisions were refused, the commonest reasons first, and one reply that was refused for the commonest."""
    for arm in TUNED:
        rows = _revisions(view.revisions, arm).dropna(subset=["refused"])
        reasons = Counter(rows["refused"]).most_common(REASONS)
        if reasons:
            named_reasons = ", ".join(
                f"{say.visible(say.worded(reason))} ({say.count(many)})" for reason, many in reasons
            )
            yield f"{ARMS[arm]}, refused: {named_reasons}{_reply(rows, reasons[0][0])}"


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
    rows: list[Cells] = []
    for arm in TUNED:
        pool = demonstrations[demonstrations["arm"] == arm]
        if len(pool):
            seeds = pool["seed"].nunique()
            origins = (Cell(float((pool["origin"] == origin).sum() / seeds), digits=1) for origin in ORIGINS)
            rows.append((ARMS[arm], count(seeds), *origins, Cell(len(pool) / seeds, digits=1)))
    return Table("pools", "Training pools, mean of the seeds", ("Arm", "seeds", *ORIGINS, "all"), tuple(rows))


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
    rows: list[Cells] = []
    for (signal, unit), tests in view.separations.to_pandas().groupby(["signal", "unit"], sort=True):
        seeds = len(tests)
        cells = (count(seeds), count(int(tests["grounding"].sum())), count(int(tests["synthesis"].sum())))
        values = tests["effect"]
        mean = float(values.mean()) if values.notna().any() else None
        rows.append((say.worded(signal), unit, *cells, Cell(mean), Cell(_most(tests["p"]))))
    head = ("Signal", "compared", "seeds", "judge the answer", "put together", "rank-biserial r", "largest p")
    yield Table("separations", "Does the audit tell kinds of steps apart?", head, tuple(rows))


def _most(values: pd.Series[float]) -> float | None:
    return float(values.max()) if values.notna().any() else None


def _quantiles(values: pd.Series[float]) -> tuple[float, float, float, float, float]:
    a, b, c, d, e = (float(value) for value in values.quantile(list(QUANTILES)))
    return a, b, c, d, e


def _sampled(rollouts: pa.Table) -> pd.DataFrame:
    is_base = pc.and_(pc.equal(rollouts["arm"], "base"), pc.equal(rollouts["part"], "train"))
    sampled: pd.DataFrame = rollouts.filter(is_base).select([*ROLLOUT, "mark", "gold"]).to_pandas()
    return sampled


def _revisions(revisions: pa.Table, arm: str) -> pd.DataFrame:
    names = [*ROLLOUT, "step", "steps", "sub_steps", "refused", "reply", "kept"]
    rows: pd.DataFrame = revisions.filter(pc.equal(revisions["arm"], arm)).select(names).to_pandas()
    return rows


def _rollouts(rows: pd.DataFrame) -> int:
    """Different rollouts."""
    return len(rows.drop_duplicates(ROLLOUT))
