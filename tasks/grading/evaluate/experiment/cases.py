"""Table 11 of GradeAgentOps: responses that show what the full configuration changes, found by rule."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import Orders, ordered
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Table, bar, count, number
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.experiment.arm import (
    ArmAgreement,
    BootstrapPlan,
    ExperimentArm,
    agreement,
    on_same_answers,
)

STATISTICS = {"mae": "MAE", "qwk": "QWK"}


class OrderOfArm(NamedTuple):
    """One arm judged in one order, and how well it agrees with people."""

    arm: ExperimentArm
    agreed: ArmAgreement


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


# The order effect of consistency memory: what the published protocol leaves open. The same responses are judged in
# several orders; how far do agreement and single scores move, beside the sampling error of the agreement?


def tables(arms: Mapping[str, ExperimentArm], setting: Orders, plan: BootstrapPlan) -> Iterator[Table]:
    """Each order's agreement on the responses that all score, the order by id first; then the spread over orders next
    to the interval, and how far single scores move."""
    names = {name: [name, *(ordered(name, seed) for seed in setting.seeds)] for name in setting.arms}
    every = [arms[name] for of_arm in names.values() for name in of_arm]
    shared = {
        arm.name: OrderOfArm(arm, agreement(rows, "target", "raw", arm.scale, plan))
        for arm, rows in zip(every, on_same_answers([arm.scores for arm in every], "raw"), strict=True)
    }
    by_arm = {name: [shared[arms[one].name] for one in of_arm] for name, of_arm in names.items()}
    yield _each(by_arm, plan)
    yield _spread(by_arm)


def _each(by_arm: Mapping[str, Sequence[OrderOfArm]], plan: BootstrapPlan) -> Table:
    rows, bars = list[Cells](), list[Bar]()
    for name, orders in by_arm.items():
        for position, (arm, agreed) in enumerate(orders):
            order = "by id" if position == 0 else arm.name.removeprefix(f"{name}, ")
            figures = (number(agreed[key], ends="interval") for key in STATISTICS)
            rows.append((name, order, count(agreed.n), *figures))
            bars += bar(f"{name}, {order}", agreed["mae"])
    return Table(
        "gao_orders",
        "Order effect: agreement by order of the responses",
        ("configuration", "order", "n", *STATISTICS.values()),
        tuple(rows),
        (f"raw scores of all responses; intervals from {plan.draws:,} draws of authors",),
        (Panel("MAE by order, with its interval over authors", tuple(bars)),),
    )


def _spread(by_arm: Mapping[str, Sequence[OrderOfArm]]) -> Table:
    rows = list[Cells]()
    for name, orders in by_arm.items():
        movements = _movements(spread_of_scores([order.arm for order in orders]))
        for key, title in STATISTICS.items():
            statistics = [order.agreed[key] for order in orders]
            rows.append((name, title, *_spread_over_orders(statistics), *movements))
    return Table(
        "gao_order_spread",
        "Order effect: spread over orders beside the sampling error",
        (
            *("configuration", "statistic", "orders", "range over orders", "SD over orders", "bootstrap SE"),
            *("SD over SE", "mean SD of a score", "largest SD", "scores that move", "largest range"),
        ),
        tuple(rows),
        (
            "SD over orders: sample SD, the order by id included; SE: over authors, in the order by id",
            "a score's SD and range, in points, over the orders that score the response",
        ),
    )


def _spread_over_orders(statistics: Sequence[Estimate]) -> tuple[Cell, ...]:
    """Orders that have the statistic, its range and SD over them, the bootstrap SE of the first, SD over SE."""
    values = pd.Series([estimate.value for estimate in statistics], dtype=float).dropna()
    width = float(values.max() - values.min()) if len(values) else None
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    se = statistics[0].se
    share = sd / se if sd is not None and se else None
    return count(len(values)), number(width), number(sd), number(se), number(share, 2)


def _movements(spread: pd.DataFrame) -> tuple[Cell, ...]:
    """How far single scores move: mean and largest SD, share that move at all, largest range."""
    if spread.empty:
        return (*[Cell(None)] * 3, Cell(None, digits=1))
    moves = float((spread["range"] > 0).mean())
    mean_sd, largest_sd = float(spread["sd"].mean()), float(spread["sd"].max())
    return number(mean_sd), number(largest_sd), number(moves), number(float(spread["range"].max()), 1)


def spread_of_scores(arms: Sequence[ExperimentArm]) -> pd.DataFrame:
    """`sd` (sample) and `range` of each response's raw score over the arms; responses with two scores at least."""
    columns = [arm.scores.set_index("response_id")["raw"].rename(str(position)) for position, arm in enumerate(arms)]
    scores = pd.concat(columns, axis=1).dropna(thresh=2)
    return pd.DataFrame({"sd": scores.std(axis=1, ddof=1), "range": scores.max(axis=1) - scores.min(axis=1)})
