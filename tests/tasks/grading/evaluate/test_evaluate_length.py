"""A score that is length and no more never passes, item by item, whatever the pool shows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.metrics import OVER_LENGTH
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.core.stats.verdict import verdict
from rubricflow.tasks.grading.evaluate.baselines import FEWEST, against_length, predicted
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.slices import Setting, slices

TOP = 4.0
EACH = 150


def item(
    name: str, rng: np.random.Generator, n: int = EACH, by_length: float = 0.7, judge: float = 0.0
) -> pd.DataFrame:
    """Answers whose human score goes with length, and with what a judge sees beside it. A machine of judge 0 is a
    rising function of length, as calibration makes one of that signal alone."""
    length, rest, noise = rng.normal(0, 1, (3, n))
    human = by_length * length + 0.6 * rest + 0.3 * noise
    machine = length + 2 * judge * rest if judge else np.exp(length)
    target, own = (np.digitize(x, np.quantile(x, [0.2, 0.4, 0.6, 0.8])).astype(float) for x in (human, machine))
    ids = {"response_id": [f"{name}{i}" for i in range(n)], "item_id": name, "type": "t", "author_id": None}
    scores = {"target": target, "human:one": target, "raw": own, "calibrated": own, "signal:length": 5 + length / 2}
    return pd.DataFrame(ids | scores)


def frame(*items: pd.DataFrame) -> pd.DataFrame:
    rows = pd.concat(items, ignore_index=True)
    none = dict.fromkeys(("low", "high", "risk"), np.nan)
    return rows.assign(**none, route="review", row=np.arange(len(rows)), cluster=np.arange(len(rows)))


def judged(scores: pd.DataFrame, draws: int = 400) -> tuple[pd.DataFrame, dict[str, str]]:
    """(rows of metrics, item or mean → outcome of the gate on length)."""
    scales = dict.fromkeys(scores["item_id"].unique(), (0.0, TOP, 1.0))
    found = figures(ScoreFrame(scores, [], ["one"], []), scales, "m", Evaluation(draws=draws), Release())
    metrics, verdicts = (conform(row, rows).to_pandas() for row, rows in zip((Metrics, Verdicts), found, strict=True))
    asked = verdicts[verdicts["gate"] == "length"]
    return metrics, dict(zip(asked["value_of"], asked["outcome"], strict=True))


@pytest.mark.parametrize(("judge", "outcome"), [(0.0, "fail"), (1.0, "pass")])
def test_a_machine_of_length_alone_fails_and_one_that_sees_more_passes(judge: float, outcome: str) -> None:
    rng = np.random.default_rng(2)
    _, outcomes = judged(frame(item("a", rng, judge=judge), item("b", rng, judge=judge)))
    assert outcomes == dict.fromkeys(("a", "b", "mean over items"), outcome)


def test_one_item_of_length_alone_is_named_among_good_ones() -> None:
    rng = np.random.default_rng(1)
    good = [item(name, rng, by_length=0.2, judge=1.0) for name in "bcd"]
    metrics, outcomes = judged(frame(item("a", rng), *good))
    pooled = metrics[(metrics["metric"] == "length_share") & (metrics["slice"] == "all")]["value"].iloc[0]
    assert pooled < 0.5  # what the gate asked before, and passed
    assert outcomes.pop("a") == "fail"
    assert set(outcomes.values()) == {"pass"}


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.floats(0.0, 1.5), st.sampled_from(["log", "rank", "square", "steps", "falling"]))
def test_no_function_of_length_passes(seed: int, by_length: float, kind: str) -> None:
    rng = np.random.default_rng(seed)
    scores = frame(item("a", rng, by_length=by_length), item("b", rng, by_length=by_length))
    x = scores["signal:length"]
    way = {"log": x, "rank": x.rank(), "square": (x - 5) ** 2, "steps": (x * 2).round(), "falling": -x}[kind]
    own = np.digitize(way, np.quantile(way, [0.1, 0.4, 0.7, 0.9])).astype(float)
    scales = dict.fromkeys("ab", (0.0, TOP, 1.0))
    whole = next(slices(scores.assign(calibrated=own), scales))
    rows = [row for row in against_length(whole, Setting(scales, "m", draws=200)) if row["metric"] == "over_length_qwk"]
    assert len(rows) == 2
    assert "pass" not in {verdict(row["value"], row["low"], row["high"], OVER_LENGTH) for row in rows}


def test_beside_it_stand_both_agreements_paired() -> None:
    rng = np.random.default_rng(3)
    scores = frame(item("a", rng, judge=1.0), item("b", rng))
    metrics, _ = judged(scores)
    alone = predicted(scores, dict.fromkeys("ab", (0.0, TOP, 1.0)), 0)
    for name in "ab":
        rows = (scores["item_id"] == name).to_numpy()
        here = metrics[(metrics["slice"] == "item") & (metrics["value_of"] == name)].set_index("metric")
        length = qwk(scores["target"][rows], alone[rows], 0, TOP).value
        machine = qwk(scores["target"][rows], scores["calibrated"][rows], 0, TOP).value
        assert here.loc["length_qwk", "value"] == pytest.approx(length)
        gap = here.loc["over_length_qwk"]
        assert gap["value"] == pytest.approx(machine - length)
        assert gap["low"] < gap["value"] < gap["high"]
    means = metrics[metrics["metric"] == "over_length_qwk_item_mean"]["value"].item()
    items = metrics[(metrics["metric"] == "over_length_qwk")]["value"]
    assert means == pytest.approx(items.mean())


def test_a_response_has_no_part_in_what_its_own_length_predicts() -> None:
    rng = np.random.default_rng(4)
    scores, scales = frame(item("a", rng)), {"a": (0.0, TOP, 1.0)}
    before = predicted(scores, scales, 0)
    scores.loc[7, "target"] = TOP - scores.loc[7, "target"]
    assert predicted(scores, scales, 0)[7] == before[7]


def test_small_items_are_fitted_together_and_judged_over_all() -> None:
    rng = np.random.default_rng(5)
    scores = frame(*(item(f"i{n}", rng, n=8) for n in range(20)))
    metrics, outcomes = judged(scores)
    assert list(outcomes) == ["mean over items"]
    assert metrics[metrics["metric"] == "length_qwk_item_mean"]["value"].item() > 0.5


def test_too_few_responses_say_nothing() -> None:
    rng = np.random.default_rng(6)
    scores = frame(item("a", rng, n=FEWEST - 1))
    whole = next(slices(scores, {"a": (0.0, TOP, 1.0)}))
    assert list(against_length(whole, Setting({"a": (0.0, TOP, 1.0)}, "m", draws=50))) == []


@pytest.mark.parametrize("column", ["target", "signal:length", "calibrated"])
def test_a_constant_says_what_it_can(column: str) -> None:
    rng = np.random.default_rng(7)
    scores = frame(item("a", rng), item("b", rng))
    scores.loc[scores["item_id"] == "a", column] = 2.0
    _, outcomes = judged(scores, draws=100)
    assert outcomes["a"] == {"target": "unknown", "signal:length": "pass", "calibrated": "fail"}[column]
