"""Where a judge stands: beside a baseline and people, and two answers that nobody picked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.report.grading.figures import Figures
from tasks.report.grading.standing import middle, sources, standing


def metric(name: str, rater_a: str, rater_b: str, stage: str, value: float) -> dict:
    return {
        "metric": name, "rater_a": rater_a, "rater_b": rater_b, "stage": stage, "slice": "all", "value_of": "all",
        "value": value, "low": value - 0.1, "high": value + 0.1, "n": 200, "unscored": 0, "resampled": "author",
        "clusters": 25, "undefined_draws": 0, "note": None,
    }  # fmt: skip


ROWS = [
    metric("qwk", "target", "openai:m", "calibrated", 0.6),
    metric("qwk_item_mean", "target", "openai:m", "calibrated", 0.5),
    metric("qwk", "key", "strict", "human", 0.9),
    metric("other_qwk", "target", "demo_baseline (embedded)", "calibrated", 0.4),
    metric("other_qwk_item_mean", "target", "demo_baseline (embedded)", "calibrated", 0.3),
    metric("other_qwk", "target", "demo (replay)", "calibrated", 0.55),
    metric("other_qwk_item_mean", "target", "demo (replay)", "calibrated", 0.45),
]


def test_judge_baselines_and_people_stand_in_this_order() -> None:
    rows = standing(Figures(ROWS))
    assert [row.name for row in rows] == [
        "the judge",
        "demo_baseline (embedded)",
        "demo (replay)",
        "people with each other",
    ]
    assert [(row.pooled.value, row.mean.value) for row in rows] == [(0.6, 0.5), (0.4, 0.3), (0.55, 0.45), (0.9, None)]


def test_without_human_scores_nothing_stands_anywhere() -> None:
    assert standing(Figures([])) == ()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["release", "review"]), st.floats(0, 1), st.integers(0, 9)), max_size=30))
def test_the_two_answers_are_of_middle_risk_whatever_the_order(rows: list[tuple[str, float, int]]) -> None:
    columns = {"route": [r[0] for r in rows], "risk": [r[1] for r in rows], "raw": [float(r[2]) for r in rows]}
    frame = pd.DataFrame({"response_id": [f"r{i:02d}" for i in range(len(rows))], "calibrated": 1.0, **columns})
    shown = middle(frame)
    assert shown == middle(frame.iloc[::-1])
    by_id = frame.set_index("response_id")
    assert [by_id["route"][name] for name in shown] == sorted(set(columns["route"]), key=["release", "review"].index)
    for name in shown:
        like = frame[(frame["route"] == by_id["route"][name])]
        like = like[like["raw"] >= like["raw"].median()]
        below = (like["risk"] < by_id["risk"][name]).sum()
        above = (like["risk"] > by_id["risk"][name]).sum()
        assert max(below, above) <= len(like) / 2


def test_an_answer_without_a_score_is_not_shown() -> None:
    frame = pd.DataFrame(
        {"response_id": ["a"], "route": ["review"], "risk": [np.nan], "calibrated": [np.nan], "raw": [1.0]}
    )
    assert middle(frame) == []


@pytest.mark.parametrize("manifest", [{}, {"identity": {}}])
def test_what_replays_nothing_names_no_source(manifest: dict) -> None:
    assert sources(manifest) == ""
    told = {"identity": {"recordings": {"r": "replies recorded on 2026-11-22 from m"}}}
    assert sources(told) == "replies recorded on 2026-11-22 from m"
