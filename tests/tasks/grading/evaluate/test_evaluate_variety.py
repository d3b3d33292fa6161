"""An item on which everyone is given one grade is named, unless chance or people themselves would do the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Verdicts
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.core.stats.verdict import verdict
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.people import variety
from rubricflow.tasks.grading.evaluate.slices import Setting, slices

SCALE = (0.0, 4.0, 1.0)


def frame(**items: tuple[np.ndarray, np.ndarray]) -> pd.DataFrame:
    """A score frame. items: people's and the machine's grades, on 0 to 4."""
    parts = [
        pd.DataFrame({"item_id": name, "target": human, "human:one": human, "raw": human, "calibrated": own})
        for name, (human, own) in items.items()
    ]
    rows = pd.concat(parts, ignore_index=True).astype({"target": float, "calibrated": float})
    ids = [f"r{i}" for i in range(len(rows))]
    none = dict.fromkeys(("low", "high", "risk"), np.nan)
    number = np.arange(len(rows))
    return rows.assign(response_id=ids, type="t", author_id=ids, route="review", row=number, cluster=number, **none)


def outcomes(**items: tuple[np.ndarray, np.ndarray]) -> dict[str, str]:
    """Item → outcome of the gate."""
    parts = slices(frame(**items), dict.fromkeys(items, SCALE))
    rows = [row for part in parts for row in variety(part, Setting({}, "m"))]
    return {row["value_of"]: verdict(row["value"], row["low"], row["high"], 2) for row in rows}


VARIED = np.arange(60) % 5


def test_the_gate_is_asked_of_every_item() -> None:
    scores = frame(a=(VARIED, VARIED), b=(VARIED, np.full(60, 2)))
    _, verdicts = figures(
        ScoreFrame(scores, [], ["one"], []), dict.fromkeys("ab", SCALE), "m", Evaluation(draws=0), Release()
    )
    rows = conform(Verdicts, verdicts).to_pandas().query("gate == 'scores_vary'")
    assert dict(zip(rows["value_of"], rows["outcome"], strict=True)) == {"a": "pass", "b": "fail"}


def test_a_constant_item_is_named_among_varied_ones() -> None:
    assert outcomes(a=(VARIED, VARIED), b=(VARIED, np.full(60, 2)), c=(VARIED, VARIED[::-1])) == {
        "a": "pass",
        "b": "fail",
        "c": "pass",
    }


def test_all_but_a_few_on_one_level_are_as_good_as_constant() -> None:
    assert outcomes(a=(VARIED, np.where(np.arange(60) < 3, 4, 2))) == {"a": "fail"}
    assert outcomes(a=(VARIED, np.where(np.arange(60) < 4, 4, 2))) == {"a": "pass"}


@pytest.mark.parametrize("human", [np.full(60, 4), np.where(np.arange(60) < 2, 3, 4)])
def test_a_constant_is_no_fault_where_people_hardly_differ(human: np.ndarray) -> None:
    assert outcomes(a=(human, np.full(60, 4))) == {}


def test_a_few_responses_on_one_level_may_be_chance() -> None:
    human = np.array([4, 4, 4, 2, 3])
    assert outcomes(a=(human, np.full(5, 4))) == {}


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(40, 200), st.integers(0, 4), st.floats(0.05, 0.8))
def test_a_constant_never_passes_and_is_named_where_people_differ(
    seed: int, n: int, level: int, commonest: float
) -> None:
    rng = np.random.default_rng(seed)
    human = np.where(rng.random(n) < commonest, level, rng.integers(0, 5, n))
    found = outcomes(a=(human, np.full(n, level)))
    mode = np.bincount(human).max() / n
    assert found == ({"a": "fail"} if mode**n <= 0.05 else {})


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_a_machine_that_is_as_people_are_is_hardly_ever_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(5, 0.5))
    human, own = (rng.choice(5, 80, p=shares) for _ in range(2))
    found = outcomes(a=(human, own))
    if np.bincount(own, minlength=5).max() < 0.95 * 80:
        assert found == {"a": "pass"}
