"""An arm: what one run of an experiment gave, as its tables need it.

A rehearsal has the same few labelled answers judged in several ways, and says which way to take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.tables.data import MEASURED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Table, count, number
from rubricflow.tasks.core.llm.prices import money
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums, statistics_of_totals
from rubricflow.tasks.core.stats.scores import resampled
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.agree import compare, in_common
from rubricflow.tasks.grading.evaluate.slices import ScaleBounds

REPAIRS = ("contract_repair", "semantic_repair")


class ExperimentArm(NamedTuple):
    """One run.

    scores: the score frame of all splits; gradings: one row per response with `response_id`, `status` and `signals`
    (name → number); attempts: one row per call with `response_id`, `role`, `attempt`, `violations`, `prompt_tokens`,
    `completion_tokens`, `latency_s`; scale: that of all its items; simulated: whether its rater is made up; resized:
    number of labels → score frame calibrated on so many, None where there are not so many; metrics: rows of the run's
    table `metrics` about the whole set.
    """

    name: str
    scores: pd.DataFrame
    gradings: pd.DataFrame
    attempts: pd.DataFrame
    scale: ScaleBounds
    simulated: bool
    resized: Mapping[int, pd.DataFrame | None]
    metrics: pd.DataFrame

    @property
    def held_out(self) -> pd.DataFrame:
        """Scores of the responses that their own fit has not seen."""
        return self.scores[self.scores["split"].isin(MEASURED)]


class BootstrapPlan(NamedTuple):
    draws: int
    seed: int


@dataclass(frozen=True)
class ArmAgreement:
    """Agreement of two columns of scores: statistic → estimate, responses compared, and both means."""

    statistics: Mapping[str, Estimate]
    n: int
    mean_a: float | None
    mean_b: float | None

    def __getitem__(self, statistic: str) -> Estimate:
        return self.statistics.get(statistic, Estimate(None))


def on_same_answers(frames: Sequence[pd.DataFrame], column: str) -> list[pd.DataFrame]:
    """Of score frames the rows of the responses with a target and a score in all of them, so that they compare.

    column: of the scores. A frame that shares no such response with those before it has no row, and costs them none.
    """
    scored = [frame.dropna(subset=["target", column]) for frame in frames]
    shared = pd.Index([])
    has_part = list[bool]()
    for rows in scored:
        names = pd.Index(rows["response_id"])
        common = shared.intersection(names) if any(has_part) else names
        has_part.append(len(common) > 0)
        shared = common if len(common) else shared
    return [rows[rows["response_id"].isin(shared) & part] for rows, part in zip(scored, has_part, strict=True)]


def agreement(frame: pd.DataFrame, a: str, b: str, scale: ScaleBounds, plan: BootstrapPlan) -> ArmAgreement:
    """Agreement of column b with column a over the responses that have both; errors are b − a.

    Whole authors are resampled where every response has one, else responses. Statistics as in
    `tasks.core.stats.bootstrap.bootstrap`; none without a response.
    """
    rows = frame[frame[a].notna() & frame[b].notna()]
    if rows.empty:
        return ArmAgreement({}, 0, None, None)
    human = rows[a].to_numpy(float)
    machine = rows[b].to_numpy(float)
    clusters = rows[f"{resampled(frame)}_id"].to_numpy(dtype=str)
    codes, size = cluster_codes(clusters)
    sums = pair_sums(human, machine, codes, size, scale)
    estimates = statistics_of_totals(sums.sum(axis=0, keepdims=True))
    (totals,) = draw_totals([sums], plan.draws, plan.seed)
    statistics = {}
    for name, drawn in statistics_of_totals(totals).items():
        value = float(estimates[name][0])
        ends = interval(drawn, size)
        defined = drawn[~np.isnan(drawn)]
        se = float(defined.std(ddof=1)) if len(defined) > 1 else None
        statistics[name] = Estimate(None) if np.isnan(value) else Estimate(value, ends.low, ends.high, se, size)
    return ArmAgreement(statistics, len(rows), float(human.mean()), float(machine.mean()))


Gains = dict[str, tuple[Estimate, float | None]]
"""Statistic → (what one score frame has more of it than another, p)."""


def gains(a: pd.DataFrame, b: pd.DataFrame, scale: ScaleBounds, plan: BootstrapPlan) -> tuple[Gains, int]:
    """Of agreement with the target what b has more than a, on the responses that both score, and how many these are."""
    if in_common(a, b).empty:
        return {}, 0
    differences, n, _ = compare(a, b, scale, plan.draws, plan.seed)
    return {name: (Estimate(*gap[:3], clusters=gap.clusters), gap.p) for name, gap in differences.items()}, n


# The calls of an arm, response by response.


def per_response(attempts: pd.DataFrame) -> pd.DataFrame:
    """Calls by response: `calls`, `repairs`, `clean` (no first call's reply broke a rule), `prompt_tokens`,
    `completion_tokens` and `seconds`, NaN where a call does not tell."""
    is_repair = attempts["role"].isin(REPAIRS)
    first_broke = (attempts["attempt"] == 0) & attempts["violations"].map(len).gt(0)
    by_response = attempts.assign(repair=is_repair, broke=first_broke).groupby("response_id")
    columns = {
        "calls": by_response.size(),
        "repairs": by_response["repair"].sum(),
        "clean": ~by_response["broke"].any(),
        "prompt_tokens": by_response["prompt_tokens"].agg(_strict_sum),
        "completion_tokens": by_response["completion_tokens"].agg(_strict_sum),
        "seconds": by_response["latency_s"].agg(_strict_sum),
    }
    return pd.DataFrame(columns)


def _strict_sum(values: pd.Series) -> float:
    """The sum, NaN where a part is not known."""
    return float(values.astype(float).sum(skipna=False))


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
    """Of what is within one standard error of the best the way that takes fewest tokens, with a checklist if any is;
    and whether any way is worse than the best beyond chance."""
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
    low, high = (say.NOT_KNOWN if end is None else f"{end:.3f}" for end in (kappas[chosen].low, kappas[chosen].high))
    words = f"Use {arms[chosen].name}: QWK {kappas[chosen].value:.3f} [{low}, {high}] on {len(shared[chosen])} answers"
    if kappas[chosen].value == kappas[best].value:
        words += f", the best of {len(arms)} ways"
    else:
        words += f", within one standard error of the best, {arms[best].name} ({kappas[best].value:.3f})"
    if any(gap.low is not None and gap.low > 0 for gap in behind.values()):
        return words
    return f"{words}. So few answers tell none of the ways apart: --answers asks about more"


def _gain(base: pd.DataFrame, better: pd.DataFrame, plan: BootstrapPlan) -> Estimate:
    """What the second frame has more of QWK than the first, paired."""
    found, _ = gains(base, better, _SHARES, plan)
    return found[KAPPA][0] if found else Estimate(None)
