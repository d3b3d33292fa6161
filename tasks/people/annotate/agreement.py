"""How far raters of concepts agree, with intervals: rows of table `agreements`.

All figures come from coincidences: how often two of the raters gave one response the levels c and d. Sums of them over
responses are all that a draw of the bootstrap needs, so that every draw is a row of counts times one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.stats.arrays import Floats, Ints, ratio
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, sums_by_code

Rater = tuple[str, Ints]
"""Name, and (n, K) levels of n responses and K concepts, MISSING where there is none."""
MISSING = -1
ALL = "all"
METRICS = ("krippendorff_alpha", "kappa_quadratic", "kappa", "exact")


def levels_of(judgments: pa.Table, response_ids: Sequence[str], criteria: Sequence[str]) -> Ints:
    """(n, K) levels of the first sample of a rater, MISSING where there is none.

    judgments: columns response_id, criterion_id, sample and decision of one rater; rows about other responses or
    criteria are passed over.
    """
    first = judgments.filter(pc.and_(pc.equal(judgments["sample"], 0), pc.is_valid(judgments["decision"])))
    places = []
    for name, known in (("response_id", response_ids), ("criterion_id", criteria)):
        place = pc.index_in(first[name], pa.array(known, pa.string()))
        places.append(pc.fill_null(place, MISSING).to_numpy())
    rows, columns = places
    levels = np.full((len(response_ids), len(criteria)), MISSING, np.int64)
    present = (rows >= 0) & (columns >= 0)
    levels[rows[present], columns[present]] = first["decision"].to_numpy()[present]
    return levels


def agreements(
    raters: Sequence[Rater],
    criteria: Mapping[str, int],
    phase: Literal["before", "after"],
    draws: int = 2000,
    seed: int = 0,
) -> list[Record]:
    """Rows of `agreements`: every two raters, and all of them where there are more, for each concept and for all.

    raters: at least two, with levels of the same responses; criteria: concept → its top level M, in the order of the
    levels' columns. Kappas and exact agreement are of two raters. 'all' pools the labels of all concepts, where these
    have the same number of levels. Intervals are of 95% over responses, all with the same draws.
    """
    size = max(criteria.values()) + 1
    all_raters = [tuple(raters)] if len(raters) > 2 else []
    codes, responses_n = cluster_codes(np.arange(len(raters[0][1])))
    rows = []
    for group in (*combinations(raters, 2), *all_raters):
        both = np.stack([levels for _, levels in group])
        tables = {name: _coincidences(both[:, :, k], size) for k, name in enumerate(criteria)}
        tables[ALL] = np.sum(list(tables.values()), axis=0)
        sums = [sums_by_code(table, codes, responses_n) for table in tables.values()]
        totals = [table.sum(axis=0, keepdims=True) for table in sums]
        drawn = draw_totals(sums, draws, seed) if draws else totals
        names = " and ".join(name for name, _ in group)
        for concept, total, resampled, table in zip(tables, totals, drawn, sums, strict=True):
            n = int(total[0, -1])
            responses = int(np.count_nonzero(table[:, -1]))
            mixed = concept == ALL and len(set(criteria.values())) > 1
            for metric in METRICS if len(group) == 2 else METRICS[:1]:
                row = {"phase": phase, "raters": names, "criterion_id": concept, "metric": metric, "n": n}
                rows.append(row | _figures(metric, total, resampled if draws else None, responses, mixed))
    return rows


def _coincidences(levels: Ints, size: int) -> Floats:
    """Sums of one concept's labels, (n, size² + 1): the (size, size) table of coincidences, row by row, then the number
    of labels compared. levels: (raters, n).

    Every two of a response's m labels count 1/(m − 1) (Krippendorff 2004). Of two raters the first one's level is the
    row, of more each order counts half."""
    one_hot = (levels[:, :, None] == np.arange(size)).astype(np.float64)
    count = one_hot.sum(axis=(0, 2))
    if len(levels) == 2:
        pairs = one_hot[0][:, :, None] * one_hot[1][:, None, :]
    else:
        each = one_hot.sum(axis=0)
        pairs = each[:, :, None] * each[:, None, :] - each[:, :, None] * np.eye(size)
        pairs /= 2 * np.maximum(count - 1, 1)[:, None, None]
    return np.column_stack([pairs.reshape(len(count), -1), count >= 2])


def _figures(metric: str, total: Floats, drawn: Floats | None, responses: int, mixed: bool) -> Record:
    """Value, interval and note; responses: with labels to compare; mixed: of concepts with unlike numbers of levels."""
    value = float(_statistic(metric, total)[0])
    note = None
    if mixed and metric != "exact":
        note = "undefined: the concepts have unlike numbers of levels"
    elif np.isnan(value):
        few = total[0, -1] < 2
        note = f"undefined: {'fewer than two responses have labels to compare' if few else 'all labels are one level'}"
    if note:
        return {"value": None, "low": None, "high": None, "note": note}
    low, high = (None, None) if drawn is None else interval(_statistic(metric, drawn), responses)[:2]
    return {"value": value, "low": low, "high": high, "note": None}


def _statistic(metric: str, totals: Floats) -> Floats:
    """A figure of each row of totals, NaN where it is undefined; columns as of `_coincidences`."""
    size = round(np.sqrt(totals.shape[1] - 1))
    table = totals[:, :-1].reshape(-1, size, size)
    count = table.sum(axis=(1, 2))
    same = np.trace(table, axis1=1, axis2=2)
    if metric == "exact":
        return ratio(same, count)
    if metric == "krippendorff_alpha":
        return _alpha(table)
    # Cohen (1968): disagreement seen over disagreement by chance, each pair of levels weighted by its distance.
    grid = np.arange(size)
    apart = grid[:, None] - grid
    distance = (apart != 0) if metric == "kappa" else apart**2
    observed = (table * distance).sum(axis=(1, 2))
    margins = table.sum(axis=2)[:, :, None] * table.sum(axis=1)[:, None, :]
    chance = (margins * distance).sum(axis=(1, 2))
    return np.where(count > 1, 1 - ratio(observed * count, chance), np.nan)


def _alpha(table: Floats) -> Floats:
    """Krippendorff's alpha for ordered levels, whose distance is the number of labels between them."""
    both = table + table.transpose(0, 2, 1)
    each = both.sum(axis=2)
    # Half of the labels on either level count: the distance of two levels is that of their mean ranks.
    rank = each.cumsum(axis=1) - each / 2
    distance = (rank[:, :, None] - rank[:, None, :]) ** 2
    observed = (both * distance).sum(axis=(1, 2))
    chance = (each[:, :, None] * each[:, None, :] * distance).sum(axis=(1, 2))
    return 1 - ratio(observed * (each.sum(axis=1) - 1), chance)
