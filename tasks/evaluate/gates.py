"""The gates: figures held against thresholds, as flags for a person to look at."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tasks.contracts.settings.study import Release
from tasks.evaluate.groups import HIDDEN
from tasks.evaluate.slices import TARGET, Record, ScaleBounds
from tasks.stats.agreement import level_count
from tasks.stats.verdict import labels_needed, verdict

FEWEST_OF_A_GROUP = 100
"""Responses below which a group's difference stays undecided."""
HUMAN_EXACT = {2: 0.85, 3: 0.80, 4: 0.75, 5: 0.75, 6: 0.60}
"""Levels of the scale -> exact agreement that two people should reach (NAEP)."""


@dataclass(frozen=True)
class Gate:
    """A threshold for one metric."""

    gate: str
    metric: str
    stage: str
    least: float | None
    most: float | None
    source: str
    if_missed: str
    slices: tuple[str, ...] = ("all",)
    """Slices that it is asked of; 'group' for every group variable."""


PEOPLE = "mend the rubric and train the raters first"
CALIBRATE = "calibrate anew; if it stays, people score this"
REPEAT = "ask a sample again; average, and route what changes"
AGAIN = Gate("same_answer_again", "same_again", "raw", 0.95, None, "Ofqual", REPEAT)
GATES = (
    Gate("human_qwk", "qwk", "human", 0.70, None, "RSMTool", PEOPLE, ("all", "item")),
    Gate("human_r", "pearson", "human", 0.70, None, "RSMTool", PEOPLE),
    Gate("machine_qwk", "qwk", "calibrated", 0.70, None, "Williamson et al. 2012", CALIBRATE, ("all", "item")),
    Gate("machine_r", "pearson", "calibrated", 0.70, None, "Williamson et al. 2012", CALIBRATE),
    Gate(
        "degradation_qwk",
        "degradation_qwk",
        "calibrated",
        -0.10,
        None,
        "Williamson et al. 2012",
        "use the machine only as a check of a person",
        ("all", "item"),
    ),
    Gate(
        "degradation_exact",
        "degradation_exact",
        "calibrated",
        -0.05,
        None,
        "Smarter Balanced",
        "use the machine only as a check of a person",
    ),
    Gate("mean_shift", "smd", "calibrated", -0.15, 0.15, "Williamson et al. 2012", "recalibrate", ("all", "item")),
    Gate(
        "level_shares",
        "level_share_gap",
        "calibrated",
        -0.05,
        0.05,
        "RSMTool",
        "choose a mapping that keeps the spread",
        ("level",),
    ),
    Gate(
        "prmse",
        "prmse",
        "calibrated",
        0.80,
        None,
        "this project",
        "see which loss dominates: only spread and bias can be repaired",
    ),
    Gate(
        "r_true",
        "r_true",
        "calibrated",
        0.90,
        None,
        "RSMTool",
        "no calibration mends a low correlation: a better judge",
    ),
    Gate(
        "group_difference",
        "dsm",
        "calibrated",
        -0.10,
        0.10,
        "Williamson et al. 2012",
        "people score this group blind; hold its scores until then",
        ("group",),
    ),
    AGAIN,
    Gate("length", "length_share", "calibrated", None, 0.50, "this project", "revise criteria that reward length"),
)
DOUBLY_SCORED = Gate("doubly_scored", "doubles", "human", 100, None, "this project", "have a second person score more")
UNTESTED = (
    Gate("new_items", "", "", None, None, "Williamson et al. 2012", "use it for these items only"),
    Gate("outside_measures", "", "", None, None, "Williamson et al. 2012", "restrict the use"),
)
"""What a single run cannot answer."""
NOTHING: dict[Hashable, Any] = {
    **dict.fromkeys(("value", "low", "high", "clusters")),
    **{"n": 0, "slice": "all", "value_of": "all"},
}
"""The figure of a gate that nothing was measured for."""


def gates(
    metrics: pd.DataFrame, groups: list[str], scales: Mapping[str, ScaleBounds], plan: Release, doubles: int
) -> Iterator[Record]:
    """Rows of `verdicts`.

    metrics: rows of `metrics` as a frame; doubles: held-out responses that two people scored.
    """
    yield _row(DOUBLY_SCORED, NOTHING | dict.fromkeys(("value", "low", "high"), float(doubles)) | {"n": doubles})
    for gate in (*GATES, *_human_exact(scales), *_promises(plan)):
        for kind in [name for part in gate.slices for name in (groups if part == "group" else [part])]:
            for _, rows in _asked(metrics, gate, kind).groupby("value_of", sort=True):
                # Of several pairs of people the one that agrees least speaks.
                worst = rows.sort_values("value").iloc[0].to_dict()
                if kind not in groups:
                    yield _row(gate, worst)
                elif worst["n"] >= HIDDEN:
                    yield _row(gate, worst, doubtful=worst["n"] < FEWEST_OF_A_GROUP)
    asked_once = _asked(metrics, AGAIN, "all").empty
    for gate in (*((AGAIN,) if asked_once else ()), *UNTESTED):
        yield _row(gate, NOTHING)


def _asked(metrics: pd.DataFrame, gate: Gate, kind: str) -> pd.DataFrame:
    """The rows of `metrics` that a gate looks at; over the whole set the mean over items, where items have different
    scales and nothing can be pooled."""
    of_stage = metrics[(metrics["stage"] == gate.stage) & (metrics["slice"] == kind)]
    if gate.stage != "human":
        with_itself = of_stage["rater_a"] == of_stage["rater_b"]
        of_stage = of_stage[of_stage["rater_a"].isin([TARGET, "people"]) | with_itself]
    rows, over_items = (of_stage[of_stage["metric"] == name] for name in (gate.metric, f"{gate.metric}_item_mean"))
    return over_items if kind == "all" and rows["value"].isna().all() and len(over_items) else rows


def _human_exact(scales: Mapping[str, ScaleBounds]) -> Iterator[Gate]:
    """Exact agreement of people on scales of a single number of levels, up to six."""
    levels = {level_count(*scale) for scale in scales.values()}
    if len(levels) == 1 and (least := HUMAN_EXACT.get(levels.pop())):
        yield Gate("human_exact", "exact", "human", least, None, "NAEP", PEOPLE, ("all", "item"))


def _promises(plan: Release) -> Iterator[Gate]:
    yield Gate(
        "released_errors",
        "beyond_tolerance",
        "released",
        None,
        plan.risk,
        "this study",
        "release fewer",
        ("all", "item"),
    )
    yield Gate(
        "interval_coverage",
        "interval_coverage",
        "calibrated",
        plan.coverage,
        None,
        "this study",
        "distrust the intervals",
    )


def _row(gate: Gate, figure: Mapping[Hashable, Any], doubtful: bool = False) -> Record:
    estimate, low, high = (_number(figure[name]) for name in ("value", "low", "high"))
    outcome = verdict(estimate, low, high, gate.least, gate.most)
    if doubtful and outcome != "unknown":
        outcome = "undecided"
    more = labels_needed(estimate, low, high, int(figure["n"]), gate.least, gate.most)
    if doubtful:
        more = max(more or 0, FEWEST_OF_A_GROUP - int(figure["n"]))
    return {
        "gate": gate.gate,
        "slice": figure["slice"],
        "value_of": figure["value_of"],
        "metric": gate.metric,
        "estimate": estimate,
        "low": low,
        "high": high,
        "clusters": None if pd.isna(figure["clusters"]) else int(figure["clusters"]),
        "n": int(figure["n"]),
        "least": gate.least,
        "most": gate.most,
        "outcome": outcome,
        "labels_needed": more,
        "source": gate.source,
        "if_missed": gate.if_missed,
    }


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
