"""The layout of MOCHA, on small files in the form of the public ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.prepared import mocha as prepare
from rubricflow.tasks.grading.ingest.task import ingest

STUDY = Path(__file__).parents[4] / "data" / "studies" / "mocha_concepts.yaml"
ASKED = {"context": "Kim missed the bus and walked.", "question": "Why did Kim walk?", "reference": "The bus had gone."}


def record(candidate: str = "She missed the bus.", score: float | None = 4.5, **changes: Any) -> dict[str, Any]:
    return ASKED | {"candidate": candidate, "score": score, "metadata": {"scores": [4, 5], "source": "mhpg"}} | changes


def row(**datasets: Any) -> pd.DataFrame:
    """The one row that a file with one object is read as."""
    return pd.DataFrame({name: [found] for name, found in datasets.items()}, dtype=object)


def test_a_candidate_is_a_row_and_what_it_answers_an_item() -> None:
    other = record("It rained.", 1, question="Was Kim wet?")
    frame = prepare("train.json", row(mcscript={"a": record(), "b": record("Kim walked.", 2)}, drop={"a": other}))
    assert frame["response_id"].tolist() == ["mcscript:a", "mcscript:b", "drop:a"]
    assert frame["candidate"].tolist() == ["She missed the bus.", "Kim walked.", "It rained."]
    assert frame["score"].tolist() == [4.5, 2, 1]
    first, second, third = frame["item_id"]
    assert first == second != third
    assert frame["source"].tolist() == ["mhpg"] * 3
    assert frame.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize("key", ["context", "question", "reference"])
def test_another_passage_question_or_reference_is_another_item(key: str) -> None:
    frame = prepare("train.json", row(x={"a": record(), "b": record(**{key: "Something else."})}))
    assert frame["item_id"].nunique() == 2


def test_a_minimal_pair_is_two_candidates_of_one_item() -> None:
    pair = ASKED | {"candidate1": "yes", "candidate2": "no", "score1": 5, "score2": 1}
    frame = prepare("train.json", row(quoref={"p": pair}))
    assert frame["response_id"].tolist() == ["quoref:p:1", "quoref:p:2"]
    assert (frame["score"].tolist(), frame["item_id"].nunique()) == ([5, 1], 1)


@pytest.mark.parametrize(
    ("found", "field"),
    [
        ([record()], "x"),
        ({"a": "text"}, "x"),
        (None, "x"),
        ({"a": record(question=None)}, "x.a"),
        ({"a": record(candidate=3)}, "x.a"),
        ({"a": ASKED}, "x.a"),
    ],
)
def test_another_form_is_refused_by_its_place(found: Any, field: str) -> None:
    with pytest.raises(InputError) as stop:
        prepare("train.json", row(x=found))
    assert (stop.value.file, stop.value.field) == ("train.json", field)


def test_the_study_reads_the_public_file(tmp_path: Path) -> None:
    records = {f"id{n}": record(f"Kim was late {n}.", 1 + n / 3, question=f"Why {n // 2}?") for n in range(10)}
    (tmp_path / "mocha").mkdir()
    (tmp_path / "mocha" / "train.json").write_text(json.dumps({"mcscript": records}, indent=1))
    study: Study = load_study(STUDY)
    run = Warehouse.open(tmp_path / "house").run("one")
    data = ingest.fn(run, study, tmp_path)
    items, responses, gradings = (run.read(ref).to_pylist() for ref in (data.items, data.responses, data.gradings))
    assert {(one["rubric_id"], one["type"], one["context"], one["reference_answer"]) for one in items} == {
        ("mocha", "mcscript", ASKED["context"], ASKED["reference"])
    }
    assert (len(items), len(responses)) == (5, 10)
    assert dict(responses[0]["groups"]) == {"dataset": "mcscript", "source": "mhpg"}
    scores = {one["response_id"]: one["score"] for one in gradings}
    assert scores["mcscript:id4"] == pytest.approx(1 + 4 / 3)
    assert {one["split"] for one in responses} == {"train", "calibration", "test"}
