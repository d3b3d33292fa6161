"""A rehearsal: the same few labelled answers judged in several ways, and which way to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.display.table import Table, count, number
from rubricflow.tasks.core.llm.prices import money
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, agreement, gains, on_same_answers
from rubricflow.tasks.grading.evaluate.slices import ScaleBounds

KAPPA = "qwk_continuous"
"""QWK of scores that are on their scales' steps already."""
_SHARES = (0.0, 1.0, 1.0)
_NORMAL = 1.96


class RehearsedArm(NamedTuple):
    """One way of judging and what it took; None of what is not known."""

    name: str
    scores: pd.DataFrame
    """The score frame of all splits."""
    calls: int
    tokens: int | None
    """Of prompts and replies."""
    usd: float | None
    violations: int
    """Calls whose reply broke the contract, in more than its evidence."""
    quotes: int
    standing: int
    """Quotes that the verifier found."""


def on_shares(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> pd.DataFrame:
    """A score frame with target and raw score rounded to the steps of their item's scale, as shares of it: items of
    different scales can then be looked at together. `calibrated` is the raw score."""
    shares = scores.copy()
    for item, (low, high, step) in scales.items():
        for column in ("target", "raw"):
            mine = (shares["item_id"] == item) & shares[column].notna()
            shares.loc[mine, column] = to_levels(shares.loc[mine, column], low, high, step) * step / (high - low)
    return shares.assign(calibrated=shares["raw"])


def rehearsal(arms: Sequence[RehearsedArm], plan: BootstrapPlan) -> tuple[str, Table]:
    """(which way to take, in a sentence; the table). arms: the plain score first; frames as of `on_shares`."""
    shared = on_same_answers([arm.scores for arm in arms], "raw")
    kappas = [agreement(frame, "target", "raw", _SHARES, plan)[KAPPA] for frame in shared]
    rows = []
    for arm, frame, kappa in zip(arms, shared, kappas, strict=True):
        quotes = number(arm.standing / arm.quotes) if arm.quotes else "none asked for"
        tokens = "not known" if arm.tokens is None else count(arm.tokens)
        usd = "not known" if arm.usd is None else money(arm.usd)
        gain = "–" if arm is arms[0] else number(_gain(shared[0], frame, plan), ends="interval")
        unscored = int(arm.scores["raw"].isna().sum())
        took = (count(arm.violations), count(arm.calls), tokens, usd)
        agreed = (number(kappa, ends="interval"), count(len(frame)), count(unscored))
        rows.append((arm.name, *agreed, gain, quotes, *took))
    header = ("asked", "QWK", "n", "unscored", f"more than {arms[0].name}", "quotes that stand", "off contract")
    table = Table(
        "rehearsal",
        "Agreement of raw scores with people",
        (*header, "calls", "tokens", "cost"),
        rows,
        (
            "n: the answers that every way scores; intervals resample whole authors, or answers",
            "calls, tokens and cost are those of a judge that has answered nothing before",
        ),
    )
    return advice(arms, shared, kappas, plan), table


def advice(
    arms: Sequence[RehearsedArm], shared: Sequence[pd.DataFrame], kappas: Sequence[Estimate], plan: BootstrapPlan
) -> str:
    """Of what is within one standard error of the best the way that takes fewest tokens, with a checklist if any is."""
    known = [at for at, kappa in enumerate(kappas) if kappa.value is not None]
    if not known:
        return "These answers do not tell: no way of asking has an agreement with people on them"
    best = max(known, key=lambda at: kappas[at].value or 0)
    behind = {at: _gain(shared[at], shared[best], plan) for at in known if at != best}
    near = [best]
    for at, gap in behind.items():
        if gap.value is not None and gap.low is not None and gap.high is not None:
            near += [at] if gap.value <= (gap.high - gap.low) / (2 * _NORMAL) else []
    checked = [at for at in near if arms[at].quotes] or near
    chosen = min(checked, key=lambda at: (arms[at].tokens or 0, arms[at].calls, -(kappas[at].value or 0)))
    words = f"Use {arms[chosen].name}: QWK {kappas[chosen].value:.3f} on {len(shared[chosen])} answers"
    if kappas[chosen].value == kappas[best].value:
        return f"{words}, the best of {len(arms)} ways"
    return f"{words}, within one standard error of the best, {arms[best].name} ({kappas[best].value:.3f})"


def _gain(base: pd.DataFrame, better: pd.DataFrame, plan: BootstrapPlan) -> Estimate:
    """What the second frame has more of QWK than the first, paired."""
    found, _ = gains(base, better, _SHARES, plan)
    return found[KAPPA][0] if found else Estimate(None)
