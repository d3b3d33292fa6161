"""The package's face for notebooks and scripts: what `import rubricflow` promises, and the notebook of the docs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import cohen_kappa_score

import rubricflow
from rubricflow.tasks.core.contracts.errors import InputError

FIGURES = True
"""See conftest.py."""
ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Why does a boat of steel float?"
RUBRIC = {"It pushes away as much water as it weighs.": 2, "Steel is lighter than water.": -1}


def answers(**columns):
    texts = ["It shoves aside its own weight of water.", "No idea."]
    return pd.DataFrame({"question": QUESTION, "text": texts} | columns)


def test_the_face_is_small_and_every_name_is_there():
    assert dir(rubricflow) == sorted(rubricflow.__all__)
    assert all(getattr(rubricflow, name).__doc__ for name in rubricflow.__all__)
    with pytest.raises(AttributeError):
        _ = rubricflow.nothing


def test_a_table_is_graded_and_the_same_call_is_the_same_run(tmp_path):
    table = answers(teacher=[2, 0], author_id=["a", "b"])
    run, again = (
        rubricflow.grade(table, RUBRIC, raters=["teacher"], folder=tmp_path / "boat", release={"risk": 0.1})
        for _ in range(2)
    )
    assert run == again
    assert run.scores["human_mean"].tolist() == [2, 0]
    assert set(run.judgments["criterion_id"]) == {"C1", "C2"}
    assert run.sql("SELECT count(*) AS n FROM responses")["n"].item() == 2
    assert "boat" in run.report().read_text(encoding="utf-8")
    study = json.loads((tmp_path / "boat" / "study.yaml").read_text())
    assert study["release"] == {"risk": 0.1}


@pytest.mark.parametrize(
    ("source", "rubric", "more", "field"),
    [
        (answers().drop(columns="text"), RUBRIC, {}, "text"),
        (answers(), RUBRIC, {"raters": ["teacher"]}, "teacher"),
        (answers(), None, {}, "rubric"),
        (answers(), {"It floats.": "two"}, {}, "rubric"),
        ("study.yaml", RUBRIC, {}, "rubric"),
        ("study.yaml", None, {"release": {"risk": 0.1}}, "release"),
    ],
)
def test_what_is_missing_or_too_much_is_named_before_anything_is_written(tmp_path, source, rubric, more, field):
    with pytest.raises(InputError) as error:
        rubricflow.grade(source, rubric, folder=tmp_path / "study", **more)
    assert error.value.field == field
    assert not (tmp_path / "study").exists()


def test_agreement_is_that_of_a_library_with_an_interval_around_it():
    random = np.random.default_rng(1)
    human = random.integers(0, 5, 200)
    machine = np.clip(human + random.integers(-1, 2, 200), 0, 4)
    found = rubricflow.agreement(human, machine, (0, 4, 1), clusters=np.repeat(range(50), 4), draws=200)
    assert found.loc["qwk", "value"] == pytest.approx(cohen_kappa_score(human, machine, weights="quadratic"))
    assert found.loc["exact", "value"] == pytest.approx(np.mean(human == machine))
    assert ((found["low"] <= found["value"]) & (found["value"] <= found["high"])).all()
    assert (found["n"] == 200).all()


def test_a_quote_is_found_where_it_stands_and_nowhere_else():
    text = "It shoves aside a weight of water that equals its own weight."
    found = rubricflow.verify_quote("“SHOVES aside … its own weight”", text)
    assert [text[start:end] for start, end in found.pieces] == ["shoves aside", "its own weight"]
    assert found.spelling == "case"
    assert rubricflow.verify_quote("shoves aside a weight of air", text) is None


def test_the_notebook_of_the_docs_runs(tmp_path, monkeypatch):
    demo = tmp_path / "data" / "demo"
    shutil.copytree(ROOT / "data" / "demo", demo)
    study = yaml.safe_load((demo / "study.yaml").read_text())
    study["evaluation"] = {"target": "key", "draws": 50}
    (demo / "study.yaml").write_text(yaml.safe_dump(study))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logging.disable", lambda level: None)  # for all tests that follow
    names: dict[str, object] = {}
    for cell in json.loads((ROOT / "docs" / "python.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "docs/python.ipynb", "exec"), names)
    assert len(names["scores"]) == 80
