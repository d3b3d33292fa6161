"""An arm: what one run of an experiment gave, as its tables need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.tables.data import MEASURED
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums, statistics_of_totals
from rubricflow.tasks.core.stats.scores import resampled
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.compare import compare, in_common
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
    """The bootstrap: draws and seed."""

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
    shared, has_part = pd.Index([]), list[bool]()
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
    human, machine = rows[a].to_numpy(float), rows[b].to_numpy(float)
    clusters = rows[f"{resampled(frame)}_id"].to_numpy(dtype=str)
    codes, size = cluster_codes(clusters)
    sums = pair_sums(human, machine, codes, size, scale)
    estimates = statistics_of_totals(sums.sum(axis=0, keepdims=True))
    (totals,) = draw_totals([sums], plan.draws, plan.seed)
    statistics = {}
    for name, drawn in statistics_of_totals(totals).items():
        value, ends, defined = float(estimates[name][0]), interval(drawn, size), drawn[~np.isnan(drawn)]
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
