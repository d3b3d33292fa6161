"""Whether one run agrees better with the human scores than another: paired over the same held-out responses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tasks.contracts.errors import UserError
from tasks.evaluate.slices import ScaleBounds
from tasks.stats.bootstrap import Difference, paired_bootstrap


def compare(
    a: pd.DataFrame, b: pd.DataFrame, scale: ScaleBounds, draws: int, seed: int
) -> tuple[dict[str, Difference], int, str]:
    """(statistic → difference b − a of the calibrated scores' agreement with the target, responses compared, what was
    resampled), on the responses that both score frames hold out and score.

    UserError where the two share no such response or disagree on its target.
    """
    both = in_common(a, b)
    if both.empty:
        raise UserError("the two runs hold out no response in common that both score")
    if not np.allclose(both["target_a"], both["target_b"]):
        raise UserError("the two runs compare with different human scores; give both the same target")
    resampled = "author" if both["author_id_a"].notna().all() else "response"
    clusters = both["author_id_a"] if resampled == "author" else both["response_id"]
    found = paired_bootstrap(
        both["target_a"].to_numpy(),
        both["calibrated_a"].to_numpy(),
        both["calibrated_b"].to_numpy(),
        clusters.to_numpy(),
        scale,
        draws,
        seed,
    )
    return found, len(both), resampled


def in_common(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The responses with a target and a calibrated score in both frames; columns end in `_a` and `_b`."""
    columns = ["response_id", "item_id", "author_id", "target", "calibrated"]
    both = a[columns].merge(b[columns], on="response_id", suffixes=("_a", "_b"))
    return both.dropna(subset=["target_a", "target_b", "calibrated_a", "calibrated_b"])
