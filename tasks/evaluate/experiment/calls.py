"""The calls of an arm, response by response."""

from __future__ import annotations

import pandas as pd

REPAIRS = ("contract_repair", "semantic_repair")


def per_response(attempts: pd.DataFrame) -> pd.DataFrame:
    """Calls by response: `calls`, `repairs`, `clean` (no first call's reply broke a rule), `prompt_tokens`,
    `completion_tokens` and `seconds`, NaN where a call does not tell."""
    is_repair = attempts["role"].isin(REPAIRS)
    first_broke = (attempts["attempt"] == 0) & attempts["violations"].map(len).gt(0)
    by_response = attempts.assign(repair=is_repair, broke=first_broke).groupby("response_id")
    columns = {
        "calls": by_response.size(),
        "repairs": by_response["repair"].sum(),
        "clean": ~by_response["broke"].any(),
        "prompt_tokens": by_response["prompt_tokens"].agg(_strict_sum),
        "completion_tokens": by_response["completion_tokens"].agg(_strict_sum),
        "seconds": by_response["latency_s"].agg(_strict_sum),
    }
    return pd.DataFrame(columns)


def _strict_sum(values: pd.Series) -> float:
    """The sum, NaN where a part is not known."""
    return float(values.astype(float).sum(skipna=False))
