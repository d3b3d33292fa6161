"""The demo keeps what its README promises."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import yaml

from tasks.contracts.bundle import Rubric
from tasks.judge.score import round_half_up, share_of_points

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


def test_every_score_follows_from_its_marks() -> None:
    content = yaml.safe_load((DEMO / "rubrics.yaml").read_text(encoding="utf-8"))["rubrics"]
    rubrics = {rubric["rubric_id"]: Rubric.model_validate(rubric) for rubric in content}
    responses = pd.read_csv(DEMO / "responses.csv", keep_default_na=False).set_index("response_id")
    marks = pd.read_csv(DEMO / "marks.csv")
    for (response_id, rater), given in marks.groupby(["response_id", "rater_id"]):
        row = responses.loc[response_id]
        rubric = rubrics[row["item_id"]]
        levels = dict(zip(given["criterion_id"], given["level"], strict=True))
        shares = {c.id: levels[c.id] / c.top for c in rubric.criteria}
        total = rubric.scale.min + share_of_points(rubric.criteria, shares) * (rubric.scale.max - rubric.scale.min)
        assert row[f"score_{rater}"] == round_half_up(total, rubric.scale), response_id


def test_the_class_has_the_promised_variety() -> None:
    responses = pd.read_csv(DEMO / "responses.csv", keep_default_na=False)
    assert len(responses) >= 120
    assert responses["item_id"].nunique() == 8
    assert responses["first_language"].nunique() == 2
    assert (responses["text"] == "").sum() >= 3
