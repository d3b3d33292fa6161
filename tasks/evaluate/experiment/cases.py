"""Table 11 of GradeAgentOps: responses that show what the full configuration changes, found by rule."""

from __future__ import annotations

from collections.abc import Mapping

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
    both = _beside(baseline, full)
    found = found_by(both)
    rows = [_row(pattern, case) for pattern, of in found.items() for case in _first(of, most)]
    return Table(
        "gao_11",
        f"Table 11: cases, {full.name} beside {baseline.name}",
        (
            *("pattern", "response", "item", "type", reference, baseline.name, full.name),
            *(f"|{baseline.name} − {reference}|", f"|{full.name} − {reference}|", f"signals only in {baseline.name}"),
        ),
        tuple(rows),
        tuple(f"{pattern}: {rule} ({len(found[pattern])} responses)" for pattern, rule in PATTERNS.items()),
    )


def found_by(both: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Pattern → its responses, best example first.

    both: columns `base_error`, `full_error` and `gain` in steps of the scale, `base`, `full`, `lost` (signals that only
    the baseline has) and `new` (those that only the full one has), `response_id`.
    """
    gain, near = both["gain"], both["full_error"] <= 1
    fewer = both["lost"].map(len) - both["new"].map(len)
    return {
        "clear gain": _sorted(both[(gain >= 2) & near], ["gain"]),
        "partial gain": _sorted(both[(gain >= 2) & ~near], ["gain"]),
        "cleaner output": _sorted(both.assign(fewer=fewer)[(both["base"] == both["full"]) & (fewer > 0)], ["fewer"]),
        "baseline closer": _sorted(both.assign(loss=-gain)[gain <= -2], ["loss"]),
    }


def _beside(baseline: ExperimentArm, full: ExperimentArm) -> pd.DataFrame:
    """The responses that both score and the reference too."""
    columns = ["response_id", "item_id", "type", "target"]
    both = baseline.scores[[*columns, "raw"]].rename(columns={"raw": "base"})
    both = both.merge(full.scores[["response_id", "raw"]].rename(columns={"raw": "full"}), on="response_id").dropna()
    signals = [arm.gradings.set_index("response_id")["signals"].to_dict() for arm in (baseline, full)]
    had = [[_signals(of[name]) for name in both["response_id"]] for of in signals]
    step = baseline.scale[2]
    errors = {name: ((both[name] - both["target"]).abs() / step).round(9) for name in ("base", "full")}
    return both.assign(
        base_error=errors["base"],
        full_error=errors["full"],
        gain=(errors["base"] - errors["full"]).round(9),
        lost=pd.Series([sorted(a - b) for a, b in zip(*had, strict=True)], both.index, dtype=object),
        new=pd.Series([sorted(b - a) for a, b in zip(*had, strict=True)], both.index, dtype=object),
        step=step,
    )


def _signals(signals: Mapping[str, float]) -> set[str]:
    return {name for name in SIGNALS if signals.get(name, 0) > 0}


def _sorted(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    return rows.sort_values([*by, "response_id"], ascending=[False] * len(by) + [True])


def _first(rows: pd.DataFrame, most: int) -> list[dict[str, object]]:
    return [{str(key): value for key, value in row.items()} for row in rows.head(most).to_dict("records")]


def _row(pattern: str, case: Mapping[str, object]) -> Cells:
    scores = (number(float(str(case[name])), 1) for name in ("target", "base", "full"))
    errors = (number(float(str(case[name])) * float(str(case["step"])), 1) for name in ("base_error", "full_error"))
    lost = ", ".join(name.replace("_", " ") for name in case["lost"]) if isinstance(case["lost"], list) else ""
    return (pattern, str(case["response_id"]), str(case["item_id"]), str(case["type"]), *scores, *errors, lost)
