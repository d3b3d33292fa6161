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
from tasks.report.edit.inputs import EditView

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
    revisions = _revisions(view.revisions, "edit_sft")
    return {
        "sampled": len(sampled),
        "wrong": int((sampled["mark"] != sampled["gold"]).sum()),
        "with a harmful step": _many(steps[steps["fate"].isin(HARMFUL)]),
        "with a weak one": _many(steps[steps["fate"] == "chosen"]),
        "revision taken": _many(revisions[revisions["sub_steps"].str.len() > 0]),
        "a continuation is right": _many(revisions[revisions["kept"]]),
    }


def takeaway(view: EditView) -> str:
    """How many wrong rollouts became demonstrations."""
    found = phases(view)
    if not found.get("wrong"):
        return "No wrong rollouts"
    kept = found["a continuation is right"]
    share = say.share(kept / found["wrong"])
    return f"{say.count(kept)} of {say.plural(found['wrong'], 'wrong rollout')} were mended ({share})"


def picture(view: EditView) -> Iterator[Drawing]:
    """The phases as bars."""
    if found := phases(view):
        yield Drawing("Rollouts left after each phase, all seeds", funnel("Rollouts left after each phase", found))


def fates(view: EditView) -> Table:
    """What selection did with the steps of wrong rollouts."""
    found = Counter(fate for fate in view.steps["fate"].to_pylist() if fate)
    rows: list[Cells] = [(FATES[fate], count(found[fate])) for fate in FATES if found[fate]]
    return Table("fates", "Steps of wrong rollouts", ("What selection did", "steps"), tuple(rows))


def revised(view: EditView) -> Table:
    """What became of the revisions of every arm that has its own."""
    rows: list[Cells] = []
    for arm in TUNED:
        found = _revisions(view.revisions, arm)
        if len(found):
            taken, kept = found[found["sub_steps"].str.len() > 0], found[found["kept"]]
            sizes = count(_many(found)), count(len(found)), count(len(taken)), count(len(kept))
            rows.append((ARMS[arm], *sizes, Cell(len(kept) / len(found), digits=2), count(_many(kept))))
    header = ("Arm", "rollouts", "revisions", "taken", "kept", "kept share", "rollouts mended")
    return Table("revisions", "Revisions, all seeds", header, tuple(rows))


def refused(view: EditView) -> Iterator[str]:
    """Why revisions were refused, the commonest reasons first, and one reply that was refused for the commonest."""
    for arm in TUNED:
        rows = _revisions(view.revisions, arm).dropna(subset=["refused"])
        reasons = Counter(rows["refused"]).most_common(REASONS)
        if reasons:
            told = ", ".join(f"{say.visible(say.worded(reason))} ({say.count(many)})" for reason, many in reasons)
            yield f"{ARMS[arm]}, refused: {told}{_reply(rows, reasons[0][0])}"


def _reply(rows: pd.DataFrame, reason: str) -> str:
    """The first reply that was refused for a reason, as the end of a sentence; nothing where none was kept."""
    replies = rows.loc[rows["refused"] == reason, "reply"].dropna()
    if not len(replies):
        return ""
    line = " ".join(say.visible(str(replies.iloc[0])).split())
    return f". A reply that was refused for the first of these: “{say.cut(line, REPLY)}”"


def pools(view: EditView) -> Table:
    """What each arm of supervised fine-tuning was trained on, a seed's mean."""
    found = view.demonstrations.select(["arm", "seed", "origin"]).to_pandas()
    rows: list[Cells] = []
    for arm in TUNED:
        of = found[found["arm"] == arm]
        if len(of):
            seeds = of["seed"].nunique()
            origins = (Cell(float((of["origin"] == origin).sum() / seeds), digits=1) for origin in ORIGINS)
            rows.append((ARMS[arm], count(seeds), *origins, Cell(len(of) / seeds, digits=1)))
    return Table("pools", "Training pools, mean of the seeds", ("Arm", "seeds", *ORIGINS, "all"), tuple(rows))


def positions(view: EditView) -> Iterator[Drawing]:
    """Where in their rollouts the steps lie that are to be replaced, by internal signals and as the policy itself
    names them (Figure 4)."""
    series = []
    for arm in LOCALISED:
        found = _revisions(view.revisions, arm).dropna(subset=["step"]).drop_duplicates([*ROLLOUT, "step"])
        if len(found):
            tenth = (found["step"].astype(int) * BINS - 1) // found["steps"]  # tenth i holds i/10 < k/T ≤ (i + 1)/10
            shares = np.bincount(tenth, minlength=BINS) / len(found)
            series.append(
                ChartLine(ARMS[arm], tuple(ChartPoint(float(at), float(share)) for at, share in enumerate(shares)))
            )
    if series:
        title = "Steps to be replaced, by place in the rollout"
        ticks = {float(at): f"{(at + 1) / BINS:g}" for at in range(BINS)}
        yield Drawing(title, line_chart(title, series, "k/T up to", "share of the steps", ticks, within=[0.0]))


def grounding(view: EditView) -> Iterator[Drawing]:
    """Each grounding value of the steps of wrong and of right rollouts, with the limit under which it is weak."""
    steps = view.steps.filter(pc.equal(view.steps["arm"], "base"))
    found = steps.select(["seed", "step", "fate", *SIGNALS]).to_pandas()
    found = found[found["step"] > 0]
    kinds = {
        "chosen": found["fate"] == "chosen",
        "harmful, left": found["fate"].isin(HARMFUL[:2]),
        "other of wrong ones": found["fate"].isin(("helped", "near_tie")),
        "of right rollouts": found["fate"].isna(),
    }
    for signal, words in SIGNALS.items():
        drawn = [Quantiles(kind, _quantiles(found.loc[mask, signal])) for kind, mask in kinds.items() if mask.any()]
        if drawn and found[signal].notna().any():
            limit = found.groupby("seed")[signal].quantile(view.settings.revising.weak_below).mean()
            yield Drawing(f"{words}, nats", boxes(words, drawn, float(limit)))


def separated(view: EditView) -> Iterator[Table]:
    """Whether the grounding values tell steps that judge the answer from steps that put others together (Table 8)."""
    if not view.separations.num_rows:
        return
    rows: list[Cells] = []
    for (signal, unit), of in view.separations.to_pandas().groupby(["signal", "unit"], sort=True):
        seeds = len(of)
        cells = (count(seeds), count(int(of["grounding"].sum())), count(int(of["synthesis"].sum())))
        rows.append((say.worded(signal), unit, *cells, Cell(_mean(of["effect"])), Cell(_most(of["p"]))))
    head = ("Signal", "compared", "seeds", "judge the answer", "put together", "rank-biserial r", "largest p")
    yield Table("separations", "Does the audit tell kinds of steps apart?", head, tuple(rows))


def _mean(values: pd.Series[float]) -> float | None:
    return float(values.mean()) if values.notna().any() else None


def _most(values: pd.Series[float]) -> float | None:
    return float(values.max()) if values.notna().any() else None


def _quantiles(values: pd.Series[float]) -> tuple[float, float, float, float, float]:
    a, b, c, d, e = (float(one) for one in values.quantile(list(QUANTILES)))
    return a, b, c, d, e


def _sampled(rollouts: pa.Table) -> pd.DataFrame:
    is_base = pc.and_(pc.equal(rollouts["arm"], "base"), pc.equal(rollouts["part"], "train"))
    found: pd.DataFrame = rollouts.filter(is_base).select([*ROLLOUT, "mark", "gold"]).to_pandas()
    return found


def _revisions(revisions: pa.Table, arm: str) -> pd.DataFrame:
    names = [*ROLLOUT, "step", "steps", "sub_steps", "refused", "reply", "kept"]
    found: pd.DataFrame = revisions.filter(pc.equal(revisions["arm"], arm)).select(names).to_pandas()
    return found


def _many(rows: pd.DataFrame) -> int:
    """Different rollouts."""
    return len(rows.drop_duplicates(ROLLOUT))
