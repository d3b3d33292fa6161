"""Where a judge stands: beside a baseline and people, and two answers that nobody picked."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.report.answers import middle
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.raters import rater_ranking


def metric(name: str, rater_a: str, rater_b: str, stage: str, value: float) -> dict:
    return {
        "metric": name, "rater_a": rater_a, "rater_b": rater_b, "stage": stage, "slice": "all", "value_of": "all",
        "value": value, "low": value - 0.1, "high": value + 0.1, "n": 200, "unscored": 0, "resampled": "author",
        "clusters": 25, "undefined_draws": 0, "note": None,
    }  # fmt: skip


OF_ITEMS = "standing_qwk_item_mean"
ROWS = [
    metric("standing_qwk", "target", "openai:m", "calibrated", 0.6),
    metric(OF_ITEMS, "target", "openai:m", "calibrated", 0.5),
    metric("standing_qwk", "target", "openai:m", "raw", 0.3),
    metric(OF_ITEMS, "target", "openai:m", "raw", 0.2),
    metric(OF_ITEMS, "people", "people", "human", 0.9),
    metric(OF_ITEMS, "target", "text_only", "calibrated", 0.35),
    metric(OF_ITEMS, "target", "length", "calibrated", 0.1),
    metric(OF_ITEMS, "target", "other:text_only", "calibrated", 0.45),
]
BLOCKS = {"judge": "judge", "characters": "words", "length": "words", "item": "question"}


def calibration(names: list[str], text: list[str]) -> dict[str, str]:
    stacks = [{"blocks": [{"name": name} for name in part]} for part in (names, text)]
    return {"content": json.dumps(dict(zip(("mapping", "text_only"), stacks, strict=True)))}


def test_the_judge_alone_stands_next_to_what_is_made_of_it_then_people_runs_text_and_length() -> None:
    rows = rater_ranking(Figures(ROWS), [calibration([*BLOCKS], ["characters", "length", "item"])])
    assert [(row.name, row.mean.value) for row in rows] == [
        ("judge + words + question", 0.5),
        ("judge alone (raw)", 0.2),
        ("people with each other", 0.9),
        ("text_only", 0.45),
        ("words + question, no judge", 0.35),
        ("length alone", 0.1),
    ]
    assert [row.pooled.value for row in rows[:2]] == [0.6, 0.3]


@given(st.lists(st.sets(st.sampled_from([*BLOCKS]), min_size=1), min_size=1, max_size=4))
def test_the_calibrated_score_is_called_by_all_that_any_mapping_takes(parts: list[set[str]]) -> None:
    name = rater_ranking(Figures(ROWS), [calibration(sorted(part), []) for part in parts])[0].name
    assert set(name.removesuffix(", calibrated").split(" + ")) == {BLOCKS[block] for part in parts for block in part}


@pytest.mark.parametrize(
    ("mapping", "name"),
    [
        (None, "judge, calibrated"),
        ({"offsets": {}}, "judge, calibrated"),
        ({"offsets": {"p": 1.0}}, "judge + question"),
    ],
)
def test_a_map_of_the_judge_alone_is_called_so(mapping: dict | None, name: str) -> None:
    content = json.dumps({"mapping": mapping, "text_only": None})
    assert rater_ranking(Figures(ROWS), [{"content": content}])[0].name == name


def test_without_human_scores_nothing_stands_anywhere() -> None:
    assert rater_ranking(Figures([]), []) == ()


def test_another_run_without_a_shared_answer_is_shown_without_a_figure() -> None:
    row = metric(OF_ITEMS, "target", "other:late", "calibrated", 0) | {"value": None, "n": 0, "note": "none"}
    assert [rater.name for rater in rater_ranking(Figures([*ROWS, row]), [])][4] == "late"


@given(st.lists(st.tuples(st.sampled_from(["release", "review"]), st.floats(0, 1), st.integers(0, 9)), max_size=30))
def test_the_two_answers_are_of_middle_risk_whatever_the_order(rows: list[tuple[str, float, int]]) -> None:
    columns = {"route": [r[0] for r in rows], "risk": [r[1] for r in rows], "raw": [float(r[2]) for r in rows]}
    frame = pd.DataFrame({"response_id": [f"r{i:02d}" for i in range(len(rows))], "calibrated": 1.0, **columns})
    frame["route_reason"] = None
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


@pytest.mark.parametrize(("calibrated", "reason"), [(np.nan, None), (1.0, "precheck")])
def test_an_answer_without_a_score_or_settled_by_a_rule_is_not_shown(calibrated: float, reason: str | None) -> None:
    row = {"response_id": "a", "route": "review", "route_reason": reason, "risk": np.nan, "raw": 1.0}
    assert middle(pd.DataFrame([row | {"calibrated": calibrated}])) == []
