"""The calls of an arm, response by response."""

from __future__ import annotations

import pandas as pd

REPAIRS = ("contract_repair", "semantic_repair")


def per_response(attempts: pd.DataFrame) -> pd.DataFrame:
    """Calls by response: `calls`, `repairs`, `clean` (no first call's reply broke a rule), `prompt_tokens`,
    `completion_tokens` and `seconds`, NaN where a call does not tell."""
    made = attempts.assign(
        repair=attempts["role"].isin(REPAIRS), broke=(attempts["attempt"] == 0) & attempts["violations"].map(len).gt(0)
    )
    grouped = made.groupby("response_id")
    told = {"prompt_tokens": "prompt_tokens", "completion_tokens": "completion_tokens", "seconds": "latency_s"}
    return pd.DataFrame(
        {
            "calls": grouped.size(),
            "repairs": grouped["repair"].sum(),
            "clean": ~grouped["broke"].any(),
            **{name: grouped[column].agg(_whole) for name, column in told.items()},
        }
    )


def _whole(told: pd.Series) -> float:
    """The sum, NaN where a part is not known."""
    return float(told.astype(float).sum(skipna=False))
