"""Raters by one measure on the same answers: against scikit-learn, and equal scores have equal rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.grading.evaluate.baselines import rank_raters
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALE = (0.0, 4.0, 1.0)
RATERS = {("calibrated", "m"): "calibrated", ("raw", "m"): "raw", ("calibrated", "text_only"): "text_only"}
RATERS |= {("calibrated", "length"): "length", ("calibrated", "other:b"): "other:b", ("human", "people"): "human:b"}


def study(seed: int, items: int, each: int, lost: float) -> pd.DataFrame:
    """Answers whose questions differ in difficulty, with raters of different error, some scores lost."""
    rng = np.random.default_rng(seed)
    n = items * each
    item = np.repeat(np.arange(items), each)
    target = np.clip(np.round(rng.normal(2, 1.2, items)[item] + rng.normal(0, 1, n)), 0, 4)
    frame = pd.DataFrame({"item_id": [f"q{i}" for i in item], "cluster": np.arange(n), "target": target})
    for name in ("calibrated", "raw", "text_only", "other:b", "human:b"):
        scores = np.clip(np.round(target + rng.normal(0, rng.uniform(0.3, 3), n)), 0, 4)
        frame[name] = np.where(rng.random(n) < lost, np.nan, scores)
    return frame.assign(**{"human:a": target, "signal:length": rng.normal(5, 1, n)})


def figures(frame: pd.DataFrame, draws: int = 0) -> dict[tuple[str, str, str], dict]:
    whole = ScoreSlice("all", "all", frame, SCALE, "response")
    scales = dict.fromkeys(frame["item_id"], SCALE)
    rows = rank_raters(whole, Setting(scales, "m", ["a", "b"], draws=draws))
    return {(row["metric"], row["stage"], row["rater_b"]): row for row in rows}


def kappa(human: pd.Series, machine: pd.Series) -> float:
    return float(cohen_kappa_score(human.astype(int), machine.astype(int), labels=range(5), weights="quadratic"))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 40), st.sampled_from([0.0, 0.1, 0.5]))
def test_every_row_is_scikit_learns_on_the_answers_that_all_score(
    seed: int, items: int, each: int, lost: float
) -> None:
    frame = study(seed, items, each, lost)
    found = figures(frame)
    shared = frame
    for name in ("calibrated", "raw", "text_only", "other:b"):
        shared = shared[shared[name].notna()] if shared[name].notna().any() else shared
    telling = shared.groupby("item_id").filter(lambda part: part["target"].nunique() > 1)
    for (stage, rater), column in RATERS.items():
        row = found.get(("standing_qwk_item_mean", stage, rater))
        if row is None or row["value"] is None or column == "length":
            continue
        both = telling[telling[column].notna()].groupby("item_id").filter(lambda part: part["target"].nunique() > 1)
        assert row["n"] == len(both)
        kappas = [kappa(part["target"], part[column]) for _, part in both.groupby("item_id")]
        assert row["value"] == pytest.approx(np.nanmean(kappas), abs=1e-9)
        pooled = shared[shared[column].notna()]
        assert found["standing_qwk", stage, rater]["value"] == pytest.approx(
            kappa(pooled["target"], pooled[column]), abs=1e-9
        )
    for metric in {metric for metric, stage, _ in found if stage == "human"}:
        people, machine = (found[metric, "human", name] for name in ("people", "m"))
        assert people["n"] == machine["n"]
    sizes = {row["n"] for (metric, stage, _), row in found.items() if stage != "human" and metric.endswith("item_mean")}
    assert len(sizes - {0}) <= 1


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.permutations(["calibrated", "raw", "text_only", "other:b", "human:b"]))
def test_two_raters_with_the_same_scores_have_the_same_rows(seed: int, names: list[str]) -> None:
    frame = study(seed, 4, 20, 0.0)
    frame[names[0]] = frame[names[1]]
    found = figures(frame, draws=100)
    keys = {column: key for key, column in RATERS.items()}
    for metric in ("standing_qwk", "standing_qwk_item_mean"):
        first, second = (found[metric, *keys[name]] for name in names[:2])
        for what in ("value", "low", "high", "n", "clusters"):
            assert first[what] == second[what]


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.floats(0.1, 0.9))
def test_the_machine_stands_next_to_people_on_the_answers_that_two_of_them_scored(seed: int, lost: float) -> None:
    frame = study(seed, 3, 30, 0.0)
    chance = np.random.default_rng(seed).random((2, len(frame)))
    frame["human:a"] = frame["target"].where(chance[0] > lost)
    frame["human:b"] = frame["calibrated"].where(chance[1] > lost)
    found = figures(frame)
    for metric in {metric for metric, stage, _ in found if stage == "human"}:
        people, machine = (found[metric, "human", name] for name in ("people", "m"))
        assert (people["value"], people["n"]) == (machine["value"], machine["n"])


def test_a_run_that_scored_other_answers_has_a_row_and_no_figure() -> None:
    frame = study(1, 3, 40, 0.0)
    late = np.arange(len(frame)) % 2 == 0
    frame["other:b"] = frame["other:b"].where(late)
    frame["other:late"] = frame["target"].where(~late)
    found = figures(frame)
    row = found["standing_qwk_item_mean", "calibrated", "other:late"]
    assert (row["value"], row["n"]) == (None, 0)
    assert found["standing_qwk_item_mean", "calibrated", "m"]["n"] == len(frame) // 2


def test_an_item_on_which_people_do_not_differ_counts_for_nobody() -> None:
    frame = study(2, 3, 40, 0.0)
    flat = frame["item_id"] == "q0"
    same = frame.assign(target=frame["target"].where(~flat, 2.0), calibrated=frame["calibrated"].where(~flat, 2.0))
    found = figures(same)["standing_qwk_item_mean", "calibrated", "m"]
    rest = figures(frame[~flat])["standing_qwk_item_mean", "calibrated", "m"]
    assert (found["value"], found["n"]) == (rest["value"], rest["n"])
    assert figures(same.assign(target=2.0))["standing_qwk_item_mean", "calibrated", "m"]["value"] is None
