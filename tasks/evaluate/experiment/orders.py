"""The order effect of consistency memory: what the published protocol leaves open. The same responses are judged in
several orders; how far do agreement and single scores move, beside the sampling error of the agreement?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from tasks.contracts.settings.experiment import Orders, ordered
from tasks.display.table import Bar, Cell, Cells, Panel, Table, bar, count, number
from tasks.evaluate.experiment.arm import ArmAgreement, BootstrapPlan, ExperimentArm, agreement, on_same_answers
from tasks.stats.estimate import Estimate

STATISTICS = {"mae": "MAE", "qwk": "QWK"}


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


class OrderOfArm(NamedTuple):
    """One arm judged in one order, and how well it agrees with people."""

    arm: ExperimentArm
    agreed: ArmAgreement


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
