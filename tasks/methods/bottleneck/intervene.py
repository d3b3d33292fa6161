"""What becomes of the grade when concepts are set by somebody else (REC-CBM, section 5.5 and appendix E.3).

A hard intervention puts a level's share in the place of s̃ and leaves the head as it is, as the paper does. A soft one
takes a person's answer as one more noisy observation of the latent concept, which the paper does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.tables.bottleneck import GradeMetric, Intervention, Order
from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums
from rubricflow.tasks.core.stats.pair_sums import statistics_of_totals
from rubricflow.tasks.methods.bottleneck.data import MISSING, LabelledData
from rubricflow.tasks.methods.bottleneck.measures import MEASURES
from rubricflow.tasks.methods.bottleneck.trace import Head

DRAWS = 2000
SUMMED: dict[GradeMetric, str] = {"task_accuracy": "exact", "task_macro_f1": "macro_f1", "task_qwk": "qwk"}
"""What `tasks.core.stats.pair_sums` calls the metrics."""


def intervention_rows(
    shares: Floats,
    head: Head,
    data: LabelledData,
    rows: Ints,
    order: Ints,
    *,
    first: Order,
    method: str,
    seed: int,
    draws: int = DRAWS,
) -> list[dict[str, Any]]:
    """Rows of table `interventions`: the grades after 0 … K concepts of each response were set, for every kind.

    shares: (rows, K) s̃ of `rows`; order: (rows, K) concepts, first asked first (`policies.order_of`), named by
    `first`. Responses without a grade leave. At `asked` = k the first k concepts are set, save that a concept without
    a label stays as it is under oracle and wrong. change is against no intervention, its interval a paired bootstrap
    over responses. seed: the grader's, and that of random levels and draws.
    """
    graded = data.grades[rows] != MISSING
    shares, order, rows = shares[graded], order[graded], rows[graded]
    tops = data.concepts.tops[: shares.shape[1]]
    levels, right = data.levels[rows][:, : shares.shape[1]], data.grades[rows]
    values: dict[Intervention, Floats] = {
        "oracle": oracle_values(levels, tops),
        "wrong": wrong_values(head, shares, order, levels, tops, right),
        "random": random_values(len(rows), tops, seed),
    }
    records = []
    for kind, set_to in values.items():
        grades = grades_after(head, shares, order, set_to)
        for measured in _measured(grades, right, len(data.scores), draws, seed):
            records.append({"method": method, "seed": seed, "kind": kind, "order": first} | measured)
    return records


def oracle_values(levels: Ints, tops: Ints) -> Floats:
    """(n, K) shares c/M of labels; NaN where there is none."""
    return np.where(levels == MISSING, np.nan, levels / tops)


def random_values(n: int, tops: Ints, seed: int) -> Floats:
    """(n, K) shares of levels drawn uniformly; a draw may hit the level that the grader gave."""
    drawn: Floats = np.random.default_rng([seed, 1]).integers(0, tops + 1, size=(n, len(tops))) / tops
    return drawn


def wrong_values(head: Head, shares: Floats, order: Ints, levels: Ints, tops: Ints, right: Ints) -> Floats:
    """(n, K) shares of the most damaging levels; NaN where a concept has no label.

    Each concept in its turn gets, of all levels but its label, the one after which the right grade is least probable,
    all those before it being set already. Found by trying every level; the lower one of equals. right: (n,) grades.
    """
    rows, grid = np.arange(len(shares)), np.arange(int(tops.max()) + 1)
    shares_so_far, chosen = shares.copy(), np.full(shares.shape, np.nan)
    for k in order.T:
        tried = np.repeat(shares_so_far[:, None], len(grid), axis=1)
        tried[rows, :, k] = grid / tops[k][:, None]
        likely = head.probabilities(tried)[rows, :, right]
        likely[(grid > tops[k][:, None]) | (grid == levels[rows, k][:, None])] = np.inf
        worst = likely.argmin(axis=1) / tops[k]
        labelled = levels[rows, k] != MISSING
        shares_so_far[rows, k] = np.where(labelled, worst, shares_so_far[rows, k])
        chosen[rows, k] = np.where(labelled, worst, np.nan)
    return chosen


def grades_after(head: Head, shares: Floats, order: Ints, values: Floats) -> Ints:
    """(K + 1, n) the most probable grade after the first 0 … K concepts of each response's order were set.

    shares, order, values: (n, K); a value is a share, NaN for a concept that stays as it is.
    """
    count = shares.shape[1]
    turn = np.argsort(order, axis=1)
    set_by_now = (turn < np.arange(count + 1)[:, None, None]) & ~np.isnan(values)
    grades: Ints = head.logits(np.where(set_by_now, values, shares)).argmax(axis=2)
    return grades


def _measured(grades: Ints, right: Ints, classes: int, draws: int, seed: int) -> list[dict[str, Any]]:
    """The metrics of each row of `grades`, and their change against its first row."""
    drawn = drawn_metrics(grades, right, classes, draws, seed)
    records = []
    for name, measure in MEASURES.items():
        metric = f"task_{name}"
        stats: list[Stat] = [measure(right, chosen, 0, classes - 1) for chosen in grades]
        start = stats[0].value
        for questions, stat in enumerate(stats):
            change = None if start is None or stat.value is None else stat.value - start
            low, high = interval(drawn[metric][questions] - drawn[metric][0], len(right))[:2]
            measured = {"asked": questions, "metric": metric, "value": stat.value, "change": change}
            records.append(measured | {"low": low, "high": high, "n": len(right)})
    return records


def drawn_metrics(grades: Ints, right: Ints, classes: int, draws: int, seed: int) -> dict[str, Floats]:
    """Metric → (ways, draws) its value when responses are resampled, the same ones for all ways.

    grades: (ways, n), right: (n,), classes: their number. NaN where undefined; macro-F1 is above 15 classes.
    """
    codes, size = cluster_codes(np.arange(len(right)))
    blocks = [pair_sums(right, chosen, codes, size, (0.0, classes - 1.0, 1.0)) for chosen in grades]
    drawn = [statistics_of_totals(totals) for totals in draw_totals(blocks, draws, seed)]
    undefined = np.full(draws, np.nan)
    metrics: dict[str, Floats] = {}
    for metric, name in SUMMED.items():
        metrics[metric] = np.stack([statistics.get(name, undefined) for statistics in drawn])
    return metrics
