"""The order effect of consistency memory: what the published protocol leaves open. The same responses are judged in
several orders; how far do agreement and single scores move, beside the sampling error of the agreement?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from tasks.contracts.settings.experiment import Orders, ordered
from tasks.display.table import Bar, Cells, Panel, Table, bar, count, number
from tasks.evaluate.experiment.arm import ArmAgreement, BootstrapPlan, ExperimentArm, agreement

STATISTICS = {"mae": "MAE", "qwk": "QWK"}


def tables(arms: Mapping[str, ExperimentArm], wanted: Orders, plan: BootstrapPlan) -> Iterator[Table]:
    """Each order's agreement; then the spread over orders beside the interval, and how far single scores move."""
    found = {arm: [arms[arm], *(arms[ordered(arm, seed)] for seed in wanted.seeds)] for arm in wanted.arms}
    agreed = {arm: [agreement(one.scores, "target", "raw", one.scale, plan) for one in of] for arm, of in found.items()}
    yield _each(found, agreed, plan)
    yield _spread(found, agreed)


def _each(
    found: Mapping[str, Sequence[ExperimentArm]], agreed: Mapping[str, Sequence[ArmAgreement]], plan: BootstrapPlan
) -> Table:
    rows, bars = list[Cells](), list[Bar]()
    for arm, of in found.items():
        for at, (one, told) in enumerate(zip(of, agreed[arm], strict=True)):
            order = "by id" if at == 0 else one.name.removeprefix(f"{arm}, ")
            figures = (number(told[key], ends="interval") for key in STATISTICS)
            rows.append((arm, order, count(told.n), *figures))
            bars += bar(f"{arm}, {order}", told["mae"])
    return Table(
        "gao_orders",
        "Order effect: agreement by order of the responses",
        ("configuration", "order", "n", *STATISTICS.values()),
        tuple(rows),
        (f"raw scores of all responses; intervals from {plan.draws:,} draws of authors",),
        (Panel("MAE by order, with its interval over authors", tuple(bars)),),
    )


def _spread(found: Mapping[str, Sequence[ExperimentArm]], agreed: Mapping[str, Sequence[ArmAgreement]]) -> Table:
    rows = list[Cells]()
    for arm, of in found.items():
        moved = spread_of_scores(of)
        scores = (
            number(float(moved["sd"].mean()) if len(moved) else None),
            number(float(moved["sd"].max()) if len(moved) else None),
            number(float((moved["range"] > 0).mean()) if len(moved) else None),
            number(float(moved["range"].max()) if len(moved) else None, 1),
        )
        for key, name in STATISTICS.items():
            values = pd.Series([one[key].value for one in agreed[arm]], dtype=float).dropna()
            sd = float(values.std(ddof=1)) if len(values) > 1 else None
            se = agreed[arm][0][key].se
            share = sd / se if sd is not None and se else None
            ends = (number(float(values.max() - values.min()) if len(values) else None), number(sd))
            rows.append((arm, name, count(len(values)), *ends, number(se), number(share, 2), *scores))
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


def spread_of_scores(arms: Sequence[ExperimentArm]) -> pd.DataFrame:
    """`sd` (sample) and `range` of each response's raw score over the arms; responses with two scores at least."""
    columns = [arm.scores.set_index("response_id")["raw"].rename(str(at)) for at, arm in enumerate(arms)]
    scores = pd.concat(columns, axis=1).dropna(thresh=2)
    return pd.DataFrame({"sd": scores.std(axis=1, ddof=1), "range": scores.max(axis=1) - scores.min(axis=1)})
