"""The layout and the study of SAS-Bench, on small files in the form that its authors' code reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.ingest.prepared import sas_bench as prepare
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.task import lock

STUDY = Path(__file__).parents[4] / "data" / "studies" / "sas_bench.yaml"
FILES = {
    "Physics": "0_Physics_ShortAns.jsonl",
    "History": "1_History_ShortAns.jsonl",
    "Geography": "3_Geography_ShortAns.jsonl",
}
STEPS = [
    {"response": "因为缺水。", "label": "2", "errors": ["步骤正确"]},
    {"response": "所以\n不生长。", "label": 0, "errors": ["论述不全"]},
]


def row(name: str, question: str = "为什么？", total: Any = 12, label: Any = "2", **changes: Any) -> dict[str, Any]:
    told = {"reference": "没有水，\n植物不生长；土壤变干。", "analysis": "看材料二。"}
    return {"id": name, "question": question, **told, "total": total, "manual_label": label, "steps": STEPS} | changes


def written(folder: Path, **rows: Sequence[dict[str, Any]]) -> Path:
    """The three files, each with a plain answer where the test gives no rows."""
    (folder / "sas_bench").mkdir()
    for subject, file in FILES.items():
        lines = [json.dumps(one, ensure_ascii=False) for one in rows.get(subject, [row("a")])]
        (folder / "sas_bench" / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def ingested(folder: Path) -> tuple[Run, Study, Any]:
    run, study = Warehouse.open(folder / "house").run("one"), load_study(STUDY)
    return run, study, ingest.fn(run, study, folder)


def locked(folder: Path) -> dict[str, Bundle]:
    """Question → its bundle."""
    run, study, data = ingested(folder)
    made = lock.fn(run, study, folder, data.items, data.responses, data.gradings, data.judgments)
    rows = run.read(made.bundles, list(Bundles.model_fields)).to_pylist()
    question = {item["rubric_id"]: item["question"] for item in run.read(data.items).to_pylist()}
    return {question[one["rubric_id"]]: Bundle.unlock(one["bundle_id"], one["content"]) for one in rows}


def refused(folder: Path, **rows: Sequence[dict[str, Any]]) -> str:
    """What is said of the files, and that nothing is left of them."""
    with pytest.raises(InputError) as raised:
        ingested(written(folder, **rows))
    assert not list((folder / "house").rglob("*.parquet"))
    return str(raised.value)


def test_answers_and_questions_become_rows(tmp_path: Path) -> None:
    run, _, data = ingested(written(tmp_path, Physics=[row("a"), row("b", label=7.0), row("c", question="怎样？")]))
    responses = {one["response_id"]: one for one in run.read(data.responses).to_pylist()}
    assert set(responses) == {"Physics:a", "Physics:b", "Physics:c", "History:a", "Geography:a"}
    assert responses["Physics:a"]["text"] == "因为缺水。\n所以\n不生长。"
    assert dict(responses["Physics:a"]["groups"]) == {"subject": "Physics"}
    of = {name: one["item_id"] for name, one in responses.items()}
    assert of["Physics:a"] == of["Physics:b"] != of["Physics:c"]
    assert len(set(of.values())) == 4  # the same words in another subject are another question
    item = next(one for one in run.read(data.items).to_pylist() if one["item_id"] == of["Physics:a"])
    assert (item["question"], item["reference_answer"], item["type"]) == (
        "为什么？",
        "没有水，\n植物不生长；土壤变干。",
        "Physics",
    )
    marks = {one["response_id"]: one["score"] for one in run.read(data.gradings).to_pylist()}
    assert (marks["Physics:a"], marks["Physics:b"]) == (2, 7)


@pytest.mark.parametrize(
    "change", [{"reference": "别的。"}, {"analysis": "别的。"}, {"total": 13}, {"question": "何时？"}]
)
def test_what_is_asked_otherwise_is_another_item(tmp_path: Path, change: dict[str, Any]) -> None:
    _, _, data = ingested(written(tmp_path, Physics=[row("a"), row("b", **change)]))
    assert data.items.rows == 4


def test_every_question_has_the_scale_of_its_own_marks(tmp_path: Path) -> None:
    seven = "".join(f"第{n}点；" for n in range(7))
    rows = [row("a", "甲？", 26, "26"), row("b", "乙？", "5", 0, reference=seven)]
    bundles = locked(written(tmp_path, History=rows))
    assert bundles["甲？"].scale.bounds == (0, 26, 1)
    assert bundles["乙？"].scale.bounds == (0, 5, 1)
    points = [(one.text, one.weight) for one in bundles["甲？"].criteria]
    assert points == [("没有水，\n植物不生长；", 13), ("土壤变干。", 13)]
    assert [one.weight for one in bundles["乙？"].criteria] == [5 / 7] * 7


@pytest.mark.parametrize(
    ("reference", "points"),
    [
        ("措施：移走土\n壤。理由：土薄；雨多．", ["措施：移走土\n壤。", "理由：土薄；", "雨多．"]),
        ("(i) $v=3．5\\;m/s$;\n\n(ii) 12．", ["(i) $v=3．5\\;m/s$;", "(ii) 12．"]),
        ("BCE", ["BCE"]),
        (" \n；。", []),
        (None, []),
    ],
)
def test_a_reference_is_cut_into_points(reference: str | None, points: list[str]) -> None:
    frame = pd.DataFrame([row("a", reference=reference)], dtype=object)
    assert prepare(FILES["Physics"], frame)["points"].tolist() == [points]


def test_an_answer_that_nobody_marked_has_no_grading(tmp_path: Path) -> None:
    run, _, data = ingested(written(tmp_path, Physics=[row("a"), row("b", label="")]))
    assert {one["response_id"] for one in run.read(data.gradings).to_pylist()} == {
        "Physics:a",
        "History:a",
        "Geography:a",
    }


def test_no_question_is_on_two_sides_and_four_in_five_train(tmp_path: Path) -> None:
    rows = [row(f"{question}-{n}", f"第{question}题？") for question in range(40) for n in range(5)]
    run, _, data = ingested(written(tmp_path, History=rows))
    sides: dict[str, set[str]] = {}
    for one in run.read(data.responses).to_pylist():
        sides.setdefault(one["item_id"], set()).add(one["split"])
    assert {len(of) for of in sides.values()} == {1}
    trained = sum(of == {"train"} for of in sides.values())
    assert sum(of == {"test"} for of in sides.values()) == 42 - trained
    assert abs(trained - 0.8 * 42) <= 1


def test_the_study_trains_by_the_paper_s_recipe() -> None:
    edit = load_study(STUDY).edit
    assert edit is not None
    assert (edit.policy, edit.fine_tuning.batch_size, edit.fine_tuning.epochs) == ("Qwen/Qwen3-8B", 8, 2)
    assert edit.reinforcement.group * edit.reinforcement.responses == 8


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"total": None}, "column 'total': is empty"),
        ({"total": " "}, "column 'total': is empty"),
        ({"total": "ten"}, "column 'total': 'ten' is not a finite number"),
        ({"total": 12.5}, "column 'total': '12.5' is no whole number of marks from 1"),
        ({"total": 0}, "column 'total': '0' is no whole number"),
        ({"label": "13"}, "column 'manual_label': 13 is off the scale 0 to 12"),
        ({"label": -1}, "column 'manual_label': -1 is off the scale 0 to 12"),
        ({"label": "good"}, "column 'manual_label': 'good' is not a finite number"),
        ({"steps": "缺水。"}, "column 'steps': is not a list of objects"),
        ({"steps": None}, "column 'steps': is not a list of objects"),
        ({"steps": ["缺水。"]}, "column 'steps': is not a list of objects"),
        ({"steps": [STEPS[0], {"label": 1}]}, "column 'steps': step 2 has no response"),
        ({"steps": [{"response": ["缺水。"]}]}, "column 'steps.response': is a list, not text"),
        ({"question": ["为什么？"]}, "column 'question': is a list, not text"),
        ({"question": " "}, "column 'question': is empty"),
        ({"id": None}, "column 'id': is empty"),
    ],
)
def test_a_row_that_cannot_be_read_is_located(tmp_path: Path, bad: dict[str, Any], said: str) -> None:
    given = dict({"question": "为什么？"} | bad)
    name = given.pop("id", "b")
    found = refused(tmp_path, Geography=[row("a"), row(name, **given)])
    assert f"3_Geography_ShortAns.jsonl, line 2, {said}" in found


def test_a_question_without_reference_has_no_rubric(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no key elements to make a rubric of"):
        locked(written(tmp_path, Physics=[row("a", reference="")]))
