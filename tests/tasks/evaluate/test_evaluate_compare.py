"""Two runs side by side: what is compared and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tasks.contracts.errors import UserError
from tasks.evaluate.compare import compare

SCALE = (0.0, 4.0, 1.0)


def scores(spread: float, seed: int = 0, n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    target = np.random.default_rng(9).integers(0, 5, n)
    return pd.DataFrame(
        {
            "response_id": [f"r{i}" for i in range(n)],
            "item_id": "i",
            "author_id": [f"s{i % 40}" for i in range(n)],
            "target": target.astype(float),
            "calibrated": np.clip(np.round(target + rng.normal(0, spread, n)), 0, 4),
        }
    )


def test_the_better_run_wins() -> None:
    found, n, resampled = compare(scores(2.0), scores(0.5, 1), SCALE, 500, 0)
    assert found["qwk"].low is not None
    assert found["qwk"].low > 0
    assert found["mae"].high is not None
    assert found["mae"].high < 0
    assert (n, resampled) == (200, "author")


def test_only_common_scored_responses_count() -> None:
    a, b = scores(1.0), scores(1.0, 1)
    a.loc[:9, "calibrated"] = np.nan
    assert compare(a, b.iloc[:150], SCALE, 50, 0)[1] == 140


def test_different_targets_are_refused() -> None:
    b = scores(1.0, 1)
    b["target"] = 4 - b["target"]
    with pytest.raises(UserError, match="different human scores"):
        compare(scores(1.0), b, SCALE, 50, 0)


def test_runs_without_common_responses_are_refused() -> None:
    b = scores(1.0, 1).assign(response_id=lambda f: f["response_id"] + "x")
    with pytest.raises(UserError, match="no response in common"):
        compare(scores(1.0), b, SCALE, 50, 0)
