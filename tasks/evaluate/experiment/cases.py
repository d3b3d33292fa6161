"""Table 11 of GradeAgentOps: responses that show what the full configuration changes, found by rule."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from tasks.display.table import Cells, Table, number
from tasks.evaluate.experiment.arm import ExperimentArm

SIGNALS = (
    "contract_fail",
    "covered_gold_evidence_invalid",
    "forced_completeness_from_gold",
    "banned_evidence_invalid_dropped",
    "semantic_exhausted_but_accepted",
)
"""Signals that an output is the cleaner without."""
PATTERNS = {
    "clear gain": "the full one errs by at most one step, and by two steps less than the baseline",
    "partial gain": "it errs by two steps less than the baseline, and still by more than one",
    "cleaner output": "the same score with fewer signals of the verifier",
    "baseline closer": "the baseline errs by two steps less",
}


def cases(baseline: ExperimentArm, full: ExperimentArm, reference: str, most: int) -> Table:
    """The clearest responses of each pattern, largest change first, ties by id."""
    responses = by_pattern(_beside(baseline, full))
    rows = list[Cells]()
    for pattern, examples in responses.items():
        rows += [_row(pattern, case) for case in examples.head(most).to_dict("records")]
    errors = (f"|{baseline.name} − {reference}|", f"|{full.name} − {reference}|")
    scores = (reference, baseline.name, full.name)
    rules = (f"{pattern}: {rule} ({len(responses[pattern])} responses)" for pattern, rule in PATTERNS.items())
    return Table(
        "gao_11",
        f"Table 11: cases, {full.name} beside {baseline.name}",
        ("pattern", "response", "item", "type", *scores, *errors, f"signals only in {baseline.name}"),
        tuple(rows),
        tuple(rules),
    )


def by_pattern(both: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Pattern → its responses, best example first.

    both: columns `base_error`, `full_error` and `gain` in steps of the scale, `base`, `full`, `lost` (signals that only
    the baseline has) and `new` (those that only the full one has), `response_id`.
    """
    gain = both["gain"]
    fewer = both["lost"].map(len) - both["new"].map(len)
    columns = both.assign(fewer=fewer, loss=-gain)
    near = both["full_error"] <= 1
    cleaner = (both["base"] == both["full"]) & (fewer > 0)
    return {
        "clear gain": _sorted(columns[(gain >= 2) & near], "gain"),
        "partial gain": _sorted(columns[(gain >= 2) & ~near], "gain"),
        "cleaner output": _sorted(columns[cleaner], "fewer"),
        "baseline closer": _sorted(columns[gain <= -2], "loss"),
    }


def _beside(baseline: ExperimentArm, full: ExperimentArm) -> pd.DataFrame:
    """The responses that both score and the reference too."""
    columns = ["response_id", "item_id", "type", "target"]
    both = baseline.scores[[*columns, "raw"]].rename(columns={"raw": "base"})
    both = both.merge(full.scores[["response_id", "raw"]].rename(columns={"raw": "full"}), on="response_id").dropna()
    step = baseline.scale[2]
    base_error = ((both["base"] - both["target"]).abs() / step).round(9)
    full_error = ((both["full"] - both["target"]).abs() / step).round(9)
    signals = list(zip(_signals(baseline, both), _signals(full, both), strict=True))
    lost = [sorted(base - full) for base, full in signals]
    new = [sorted(full - base) for base, full in signals]
    return both.assign(
        base_error=base_error,
        full_error=full_error,
        gain=(base_error - full_error).round(9),
        lost=pd.Series(lost, both.index, dtype=object),
        new=pd.Series(new, both.index, dtype=object),
        step=step,
    )


def _signals(arm: ExperimentArm, responses: pd.DataFrame) -> list[set[str]]:
    """The signals that each response carries in an arm, of those that an output is the cleaner without."""
    by_response = arm.gradings.set_index("response_id")["signals"].to_dict()
    signals = (by_response[response] for response in responses["response_id"])
    return [{name for name in SIGNALS if counts.get(name, 0) > 0} for counts in signals]


def _sorted(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return rows.sort_values([column, "response_id"], ascending=[False, True])


def _row(pattern: str, case: Mapping[Hashable, Any]) -> Cells:
    scores = (number(float(case[name]), 1) for name in ("target", "base", "full"))
    errors = (number(float(case[name]) * float(case["step"]), 1) for name in ("base_error", "full_error"))
    lost = ", ".join(name.replace("_", " ") for name in case["lost"])
    return (pattern, str(case["response_id"]), str(case["item_id"]), str(case["type"]), *scores, *errors, lost)
