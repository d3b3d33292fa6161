"""Table 11 of GradeAgentOps: responses that show what the full configuration changes, found by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import Orders, ordered
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Bar, Cells, Panel, Table, bar, count, number
from rubricflow.tasks.core.stats.arrays import defined
from rubricflow.tasks.grading.evaluate.experiment.arm import (
    ArmAgreement,
    BootstrapPlan,
    ExperimentArm,
    agreement,
    on_same_answers,
)

STATISTICS = {"mae": "MAE", "qwk": "QWK"}


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
    responses = by_pattern(_of_both(baseline, full))
    rows = list[Cells]()
    for pattern, examples in responses.items():
        for case in examples.head(most).to_dict("records"):
            scores = (number(float(case[name]), 1) for name in ("target", "base", "full"))
            errors = (number(float(case[name]) * float(case["step"]), 1) for name in ("base_error", "full_error"))
            ids = (str(case[name]) for name in ("response_id", "item_id", "type"))
            rows.append((pattern, *ids, *scores, *errors, ", ".join(map(say.worded, case["lost"]))))
    heads = (f"|{baseline.name} − {reference}|", f"|{full.name} − {reference}|", f"signals only in {baseline.name}")
    rules = (f"{pattern}: {rule} ({len(responses[pattern])} responses)" for pattern, rule in PATTERNS.items())
    return Table(
        "gao_11",
        f"Table 11: cases, {full.name} beside {baseline.name}",
        ("pattern", "response", "item", "type", reference, baseline.name, full.name, *heads),
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


def _of_both(baseline: ExperimentArm, full: ExperimentArm) -> pd.DataFrame:
    """The responses that both score and the reference too, as `by_pattern` takes them."""
    columns = ["response_id", "item_id", "type", "target"]
    both = baseline.scores[[*columns, "raw"]].rename(columns={"raw": "base"})
    both = both.merge(full.scores[["response_id", "raw"]].rename(columns={"raw": "full"}), on="response_id").dropna()
    step = baseline.scale[2]
    errors = {f"{name}_error": ((both[name] - both["target"]).abs() / step).round(9) for name in ("base", "full")}
    carried = []
    for arm in (baseline, full):
        signals = both["response_id"].map(arm.gradings.set_index("response_id")["signals"])
        carried.append([{name for name in SIGNALS if counts.get(name, 0) > 0} for counts in signals])
    lost, new = ([sorted(a - b) for a, b in zip(*pair, strict=True)] for pair in (carried, carried[::-1]))
    both = both.assign(**errors, step=step, gain=(errors["base_error"] - errors["full_error"]).round(9))
    return both.assign(lost=pd.Series(lost, both.index, dtype=object), new=pd.Series(new, both.index, dtype=object))


def _sorted(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    return rows.sort_values([column, "response_id"], ascending=[False, True])


# The order effect of consistency memory: what the published protocol leaves open. The same responses are judged in
# several orders; how far do agreement and single scores move, beside the sampling error of the agreement?


def tables(arms: Mapping[str, ExperimentArm], setting: Orders, plan: BootstrapPlan) -> Iterator[Table]:
    """Each order's agreement on the responses that all score, the order by id first; then the spread over orders next
    to the interval, and how far single scores move."""
    names = [
        (name, order) for name in setting.arms for order in (name, *(ordered(name, seed) for seed in setting.seeds))
    ]
    frames = on_same_answers([arms[order].scores for _, order in names], "raw")
    agreed: dict[str, dict[str, ArmAgreement]] = {name: {} for name in setting.arms}
    for (name, order), frame in zip(names, frames, strict=True):
        agreed[name][order] = agreement(frame, "target", "raw", arms[order].scale, plan)
    rows = list[Cells]()
    bars = list[Bar]()
    spreads = list[Cells]()
    for name, orders in agreed.items():
        for order, found in orders.items():
            words = "by id" if order == name else order.removeprefix(f"{name}, ")
            rows.append((name, words, count(found.n), *(number(found[key], ends="interval") for key in STATISTICS)))
            bars += bar(f"{name}, {words}", found["mae"])
        # How far single scores move: mean and largest SD, share that move at all, largest range.
        moved = spread_of_scores([arms[order] for order in orders])
        moves = (moved["sd"].mean(), moved["sd"].max(), (moved["range"] > 0).mean())
        movements = *(number(defined(value)) for value in moves), number(defined(moved["range"].max()), 1)
        for key, title in STATISTICS.items():
            of_orders = [found[key] for found in orders.values()]
            values = pd.Series([estimate.value for estimate in of_orders], dtype=float).dropna()
            width = defined(values.max() - values.min())
            sd = defined(values.std(ddof=1))
            se = of_orders[0].se
            shown = number(width), number(sd), number(se), number(sd / se if sd is not None and se else None, 2)
            spreads.append((name, title, count(len(values)), *shown, *movements))
    yield Table(
        "gao_orders",
        "Order effect: agreement by order of the responses",
        ("configuration", "order", "n", *STATISTICS.values()),
        tuple(rows),
        (f"raw scores of all responses; intervals from {plan.draws:,} draws of authors",),
        (Panel("MAE by order, with its interval over authors", tuple(bars)),),
    )
    yield Table(
        "gao_order_spread",
        "Order effect: spread over orders beside the sampling error",
        (
            "configuration",
            "statistic",
            "orders",
            "range over orders",
            "SD over orders",
            "bootstrap SE",
            "SD over SE",
            "mean SD of a score",
            "largest SD",
            "scores that move",
            "largest range",
        ),
        tuple(spreads),
        (
            "SD over orders: sample SD, the order by id included; SE: over authors, in the order by id",
            "a score's SD and range, in points, over the orders that score the response",
        ),
    )


def spread_of_scores(arms: Sequence[ExperimentArm]) -> pd.DataFrame:
    """`sd` (sample) and `range` of each response's raw score over the arms; responses with two scores at least."""
    columns = [arm.scores.set_index("response_id")["raw"].rename(str(position)) for position, arm in enumerate(arms)]
    scores = pd.concat(columns, axis=1).dropna(thresh=2)
    return pd.DataFrame({"sd": scores.std(axis=1, ddof=1), "range": scores.max(axis=1) - scores.min(axis=1)})
