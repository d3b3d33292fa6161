"""What each judgment says of its criterion: the share of the levels, from 0 to 1."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.errors import ContractError
from tasks.stats.arrays import Bools, Floats, Ints
from tasks.stats.ordinal import ROUNDING


class Shares(NamedTuple):
    """What each judgment says, (rows,) each."""

    share: Floats
    """In [0, 1]; 0 where unscored."""
    decided: Floats
    """The same without probabilities: the share of the level that was decided."""
    scored: Bools
    likely: Bools
    """Whether the share is made of probabilities."""
    variance: Floats
    """Of the share, by its probabilities; 0 where the verifier decided, NaN where the judge says nothing of its
    doubts."""


class Worth(NamedTuple):
    """The levels that the levels of criteria count as, see `levels_counted`."""

    counted: Ints
    """Those of all criteria, one criterion after the other."""
    start: Ints
    """(rows,) where those of each judgment's criterion begin."""
    top: Ints
    """(rows,) M of each judgment's criterion."""


def shares(judgments: pa.Table, worth: Worth, local: str) -> Shares:
    """The share of each judgment.

    judgments: rows of the table `judgments`; local: as in `local_scores`, which says the rule. ContractError for a
    level off its criterion's, or probabilities that are none.
    """
    top = worth.top
    scored = np.asarray(judgments["decision"].is_valid())
    level = np.asarray(judgments["decision"].fill_null(0), dtype=np.int64)
    refuse(judgments, (level < 0) | (level > top), "decided at a level that it does not have")
    decided = worth.counted[worth.start + level] / np.maximum(top, 1)
    share, variance = decided.copy(), np.full(len(judgments), np.nan)
    likely = np.zeros(len(judgments), dtype=bool)
    if local == "probability":
        stands = np.asarray(pc.is_in(judgments["action"], value_set=pa.array(["none", "counted"])))
        likely = scored & stands & np.asarray(judgments["level_probabilities"].is_valid())
        share[likely], variance[likely] = _expected(judgments, np.flatnonzero(likely), worth)
        variance[scored & ~stands] = 0.0
    return Shares(share, decided, scored, likely, variance)


def _expected(judgments: pa.Table, rows: Ints, worth: Worth) -> tuple[Floats, Floats]:
    """Σ level·p / M of these rows, over the levels that count, and the variance of level / M."""
    lists = judgments["level_probabilities"].take(pa.array(rows)).combine_chunks()
    sizes, top = np.asarray(pc.list_value_length(lists), dtype=np.int64), worth.top[rows]
    refuse(judgments, sizes != top + 1, "another number of level probabilities than levels", rows)
    start = starts(sizes)
    p = lists.flatten().to_numpy(zero_copy_only=False)
    if not len(p):
        return np.empty(0), np.empty(0)
    inside = np.logical_and.reduceat((p >= 0) & (p <= 1), start[:-1])  # false for NaN, too
    refuse(judgments, ~inside, "a level probability that is NaN or outside [0, 1]", rows)
    sums_to_one = np.abs(np.add.reduceat(p, start[:-1]) - 1) <= ROUNDING
    refuse(judgments, ~sums_to_one, "level probabilities that do not sum to 1", rows)
    level = worth.counted[np.arange(len(p)) - np.repeat(start[:-1] - worth.start[rows], sizes)]
    most = np.maximum(top, 1)
    share = np.minimum(np.add.reduceat(p * level, start[:-1]) / most, 1.0)
    squares = np.add.reduceat(p * level**2, start[:-1]) / most**2
    return share, np.clip(squares - share**2, 0.0, share * (1.0 - share))


def starts(sizes: Ints) -> Ints:
    """Where each of these many begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def refuse(judgments: pa.Table, bad: Bools, rule: str, rows: Ints | None = None) -> None:
    """ContractError for the first bad one of the judgments, or of these rows of them."""
    if bad.any():
        first = int(np.argmax(bad))
        raise ContractError(f"{where(judgments, first if rows is None else int(rows[first]))}: {rule}")


def where(judgments: pa.Table, row: int) -> str:
    """Whose judgment of what it is, for an error."""

    def of(name: str) -> Any:
        return judgments[name][row].as_py()

    return (
        f"response '{of('response_id')}', criterion '{of('criterion_id')}' by rater '{of('rater_id')}', "
        f"sample {of('sample')}"
    )
