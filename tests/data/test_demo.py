"""The demo keeps what its README promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.composite import share_of_points
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.grading.judge.score import round_half_up

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


def read(name: str) -> pd.DataFrame:
    """The rows of both classes."""
    parts = (pd.read_csv(DEMO / f"{name}{of}.csv", keep_default_na=False) for of in ("", "_b"))
    return pd.concat(parts, ignore_index=True)


def rubrics_of(name: str) -> Any:
    return yaml.safe_load((DEMO / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_score_follows_from_its_marks() -> None:
    content = rubrics_of("rubrics")["rubrics"]
    rubrics = {rubric["rubric_id"]: Rubric.model_validate(rubric) for rubric in content}
    responses, marks = read("responses").set_index("response_id"), read("marks")
    assert set(marks["response_id"]) == set(responses.index)
    for (response_id, rater), given in marks.groupby(["response_id", "rater_id"]):
        row = responses.loc[response_id]
        rubric = rubrics[row["item_id"]]
        levels = dict(zip(given["criterion_id"], given["level"], strict=True))
        shares = {c.id: levels[c.id] / c.top for c in rubric.criteria}
        total = rubric.scale.min + share_of_points(rubric.criteria, shares) * (rubric.scale.max - rubric.scale.min)
        assert row[f"score_{rater}"] == round_half_up(total, rubric.scale), response_id


def test_the_class_has_the_promised_variety() -> None:
    responses = read("responses")
    assert len(responses) == 400
    assert responses["text"][responses["text"].str.len() > 60].is_unique
    assert responses["item_id"].nunique() == 8
    assert responses["first_language"].nunique() == 2
    assert (responses["text"] == "").sum() >= 3


def test_the_studies_differ_in_nothing_but_the_judge() -> None:
    names = "study", "weak", "baseline", "checked"
    study, weak, baseline, checked = (load_study(DEMO / f"{name}.yaml").model_dump() for name in names)
    assert study["evaluation"].pop("beside") == ("weak.yaml", "baseline.yaml")
    assert [of["evaluation"].pop("beside") for of in (weak, baseline, checked)] == [(), (), ()]
    for of in (study, weak, baseline, checked):
        del of["name"], of["judge"]["backend"], of["judge"]["replies"]
    assert weak["rubrics"].pop("file") == "rubrics_weak.yaml"  # the words it was asked by
    assert study == baseline == weak | {"rubrics": {"file": "rubrics.yaml", **weak["rubrics"]}}
    del study["judge"], checked["judge"]
    assert study == checked


def test_the_older_rubrics_differ_in_the_words_of_levels_alone() -> None:
    today, older = (rubrics_of(name)["rubrics"] for name in ("rubrics", "rubrics_weak"))
    levels = [[criterion.pop("levels") for rubric in of for criterion in rubric["criteria"]] for of in (today, older)]
    assert today == older
    assert list(map(len, levels[0])) == list(map(len, levels[1]))


@pytest.mark.parametrize("name", ["study", "weak", "checked"])
def test_the_recorded_replies_are_to_the_prompts_of_today(name: str) -> None:
    assert sum(path.stat().st_size for path in DEMO.glob("*.parquet")) < 2**20
    told = [found for found in prove(DEMO / f"{name}.yaml") if found[1] == "recorded replies"]
    assert [kind for kind, *_ in told] == ["ok"], told
