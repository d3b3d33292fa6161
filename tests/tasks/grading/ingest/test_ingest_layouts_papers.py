"""Layouts and studies of the papers' data sets, on a handful of made-up rows in the columns of the public files."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import yaml

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.foreign import foreign_rows
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.prepared import mocha as prepare
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.lock.task import lock

STUDIES = Path(__file__).parents[4] / "data" / "studies"


class Found(NamedTuple):
    """What ingest and lock make of a data set."""

    items: list[dict[str, Any]]
    responses: dict[str, dict[str, Any]]
    gradings: dict[tuple[str, str], dict[str, Any]]
    bundles: dict[str, Bundle]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)


def found(folder: Path, name: str, files: Mapping[str, Sequence[Mapping[str, Any]]]) -> Found:
    """The study of data/studies, over files of the test, through ingest and lock."""
    for file, rows in files.items():
        write(folder / name / file, rows)
    study = load_study(STUDIES / f"{name}.yaml")
    if study.rubrics.file:
        (folder / study.rubrics.file).write_text((STUDIES / study.rubrics.file).read_text())
    run = Warehouse.open(folder / "house").run("one")
    data = ingest.fn(run, study, folder)
    locked = lock.fn(run, study, folder, data.items, data.responses, data.gradings, data.judgments)
    read = [run.read(ref).to_pylist() for ref in (data.items, data.responses, data.gradings, locked.bundles)]
    bundles = {row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]) for row in read[3]}
    provable(read[0], bundles)
    return Found(
        sorted(read[0], key=lambda row: row["item_id"]),
        {row["response_id"]: row | {"groups": dict(row["groups"])} for row in read[1]},
        {(r["response_id"], r["rater_id"]): r | {"trait_scores": dict(r["trait_scores"])} for r in read[2]},
        bundles,
    )


def provable(items: Sequence[Mapping[str, Any]], bundles: Mapping[str, Bundle]) -> None:
    """Every bundle can be asked about; where the proof knows the protocol, it holds."""
    for item in items:
        bundle = bundles[item["rubric_id"]]
        case = Case("r", "i", "Some text.", tuple(units("Some text.")), item["question"], item["context"], bundle, "b")
        assert first_requests(case, Rater("nobody", "llm", Scripted([])))
        if bundle.protocol.name == "rulers":
            assert prove_bundle(bundle, item["question"], item["context"], item["reference_answer"]) == []


def asap2_row(**changes: Any) -> dict[str, Any]:
    row = {"essay_id": "AAA1", "score": 4, "full_text": "Cars should drive themselves.\n\nThey are safer."}
    row |= {"assignment": "Argue for or against driverless cars.", "prompt_name": "Driverless cars"}
    row |= {"economically_disadvantaged": "Economically disadvantaged", "student_disability_status": ""}
    row |= {"ell_status": "No", "race_ethnicity": "Asian/Pacific Islander", "gender": "F"}
    return (
        row
        | {"source_text_1": "A passage.", "source_text_2": "", "source_text_3": "Another.", "source_text_4": ""}
        | changes
    )


def test_asap2(tmp_path: Path) -> None:
    blank = dict.fromkeys(asap2_row(), "")
    rows = [
        asap2_row(),
        blank,
        asap2_row(essay_id="AAA2", score=6),
        asap2_row(essay_id="B", prompt_name="Venus", assignment="Why?"),
    ]
    made = found(tmp_path, "asap2", {"ASAP2_train_sourcetexts.csv": rows})
    assert [(item["item_id"], item["rubric_id"]) for item in made.items] == [
        ("Driverless cars", "holistic"),
        ("Venus", "holistic"),
    ]
    assert made.items[0]["context"] == "A passage.\n\nAnother."
    assert made.gradings["AAA2", "human"]["score"] == 6
    assert made.responses["AAA1"]["groups"] == {
        "economically_disadvantaged": "Economically disadvantaged",
        "ell_status": "No",
        "race_ethnicity": "Asian/Pacific Islander",
        "gender": "F",
    }
    assert made.bundles["holistic"].scale.bounds == (1, 6, 1)
    assert len(made.bundles["holistic"].traits) == 4


def test_asap2_without_source_texts(tmp_path: Path) -> None:
    row = {name: cell for name, cell in asap2_row().items() if not name.startswith("source_text")}
    assert found(tmp_path, "asap2", {"ASAP2_train_sourcetexts.csv": [row]}).items[0]["context"] is None


def test_asap2_score_off_the_scale_is_located(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gave response 'AAA1' 7, off the scale 1 to 6"):
        found(tmp_path, "asap2", {"ASAP2_train_sourcetexts.csv": [asap2_row(score=7)]})


def rating(**summary: Any) -> dict[str, Any]:
    axes = {"overall": 5, "accuracy": 7, "coverage": 4, "coherence": None}
    info = {"id": "t3_1", "post": "My car broke down.", "title": "What now?", "subreddit": "cars"}
    told = {"text": " The car broke down.", "policy": "ref", "note": None, "axes": axes} | summary
    return {"info": info, "split": "valid2", "summary": told, "worker": "w1", "batch": "b"}


def test_summhf(tmp_path: Path) -> None:
    article = rating() | {"info": {"id": "c", "site": "dailymail", "title": "T", "article": "News."}}
    again = rating(axes={"overall": 1, "accuracy": 1, "coverage": 1, "coherence": 1}) | {"worker": "w2"}
    made = found(tmp_path, "summhf", {"axis_evals.jsonl": [rating(), article, again]})
    assert [item["context"] for item in made.items] == ["What now?\n\nMy car broke down."]
    assert list(made.responses) == ["t3_1:1", "t3_1:3"]
    first = made.gradings["t3_1:1", "worker"]
    assert (first["score"], first["trait_scores"]) == (5, {"accuracy": 7, "coverage": 4})
    assert made.responses["t3_1:1"]["groups"] == {"policy": "ref", "subreddit": "cars"}
    assert made.bundles["summary"].scale.bounds == (1, 7, 1)


def dress_row(key: int, *scores: Any, prompt: str = "Should cars be banned?") -> dict[str, Any]:
    names = ("content", "organization", "language", "total")
    return {"id": key, "prompt": prompt, "essay": 'Yes, "they" should.\nI think so.'} | dict(
        zip(names, scores, strict=True)
    )


def test_dress_sums_three_traits_in_halves(tmp_path: Path) -> None:
    rows = [
        dress_row(1, 3.5, 4, 2.5, 10),
        dress_row(2, 1, 1, 1, 3),
        dress_row(3, 2, "", 2, ""),
        dress_row(4, 5, 5, 5, 15, prompt="Why?"),
    ]
    made = found(tmp_path, "dress", {"DREsS_New.tsv": rows})
    assert {key[0]: row["score"] for key, row in made.gradings.items()} == {"1": 10, "2": 3, "3": None, "4": 15}
    assert made.gradings["1", "teacher"]["trait_scores"] == {"content": 3.5, "organization": 4, "language": 2.5}
    assert {made.responses[key]["item_id"] for key in "123"} != {made.responses["4"]["item_id"]}
    bundle = made.bundles["dress"]
    assert bundle.scale.bounds == (3, 15, 0.5)
    assert bundle.protocol.final_score == "trait_sum"


def webnlg_row(key: int, team: str, *scores: Any, mr: str = "A | b | C<br>D | e | F") -> dict[str, Any]:
    row = {"id": key, "mr": mr, "team": team, "text": "a has the b c.", "category": "City", "type": "unseen"}
    row |= {"bleu": 0.1, "meteor": 0.2, "ter": 50, "systemtype": "neural", "triplesize": "2triple"}
    return row | dict(zip(("fluency", "grammar", "semantics"), scores, strict=True))


def test_webnlg_sums_three_traits(tmp_path: Path) -> None:
    rows = [
        webnlg_row(1, "adapt", 1.5, 2, 3),
        webnlg_row(2, "webnlg", 3, 3, 3),
        webnlg_row(3, "adapt", 1, 1, 1, mr="G | h | I"),
    ]
    rows[2]["text"] = ""
    made = found(tmp_path, "webnlg", {"all_data_final_averaged.csv": rows})
    assert {key[0]: row["score"] for key, row in made.gradings.items()} == {"1": 6.5, "2": 9, "3": 3}
    assert made.gradings["1", "judges"]["trait_scores"] == {"semantics": 3, "grammar": 2, "fluency": 1.5}
    assert sorted(item["context"] for item in made.items) == ["A | b | C\nD | e | F", "G | h | I"]
    assert made.responses["1"]["groups"] == {"system": "adapt", "kind": "neural", "seen": "unseen", "size": "2triple"}
    assert made.bundles["webnlg"].scale.bounds == (3, 9, 1)


def exam_answer(question: str, student: str, **changes: Any) -> dict[str, Any]:
    points = [{"text": "It compares with the middle.", "weight": 6}, {"text": "It halves the list.", "weight": 4}]
    row = {"answer_id": f"{question}-{student}", "student_id": student, "question_id": question, "rubric": "technical"}
    row |= {"Question_text": f"What is {question}?", "answer": "It looks at the middle.", "Gold_answer": "It halves."}
    return (
        row
        | {"Gold_type": "points", "Gold_points": points, "Banned_misconceptions": ["Order does not matter."]}
        | changes
    )


def graded(*scores: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [{"question_id": q, "student_id": s, "human_final_score": score} for q, s, score in scores]


ANSWERS = [
    exam_answer("Q1", "S1"),
    exam_answer("Q1", "S2"),
    exam_answer("Q6", "S1", rubric="argumentative", Banned_misconceptions=[]),
    exam_answer("Q6", "S2", rubric="argumentative", Banned_misconceptions=[]),
]
E1 = graded(("Q1", "S1", 4), ("Q1", "S2", 10), ("Q6", "S1", 0), ("Q6", "S2", 5))
E2 = graded(("Q6", "S1", 1), ("Q1", "S1", 6), ("Q1", "S2", 9))


def test_gradeagentops(tmp_path: Path) -> None:
    made = found(tmp_path, "gradeagentops", {"answers.json": ANSWERS, "E1.csv": E1, "E2.csv": E2})
    assert {key: row["score"] for key, row in made.gradings.items()} == {
        ("Q1:S1", "E1"): 4,
        ("Q1:S2", "E1"): 10,
        ("Q6:S1", "E1"): 0,
        ("Q6:S2", "E1"): 5,
        ("Q1:S1", "E2"): 6,
        ("Q1:S2", "E2"): 9,
        ("Q6:S1", "E2"): 1,
    }
    assert {key: row["item_id"] for key, row in made.gradings.items() if key[1] == "E2"} == {
        ("Q6:S1", "E2"): "Q6",
        ("Q1:S1", "E2"): "Q1",
        ("Q1:S2", "E2"): "Q1",
    }
    assert {row["author_id"] for row in made.responses.values()} == {"S1", "S2"}
    technical, argumentative = made.bundles["Q1"], made.bundles["Q6"]
    assert [(c.id, c.kind, c.weight, c.text) for c in technical.criteria] == [
        ("P1", "gold_point", 6, "It compares with the middle."),
        ("P2", "gold_point", 4, "It halves the list."),
        ("M1", "misconception", -1, "Order does not matter."),
    ]
    assert [c.id for c in argumentative.criteria] == ["P1", "P2"]
    assert [t.id for t in technical.traits if t.source == "judged"] == [
        "accuracy",
        "clarity",
        "completeness",
        "terminology",
    ]
    assert [t.id for t in argumentative.traits if t.source == "judged"] == [
        "clarity",
        "coherence",
        "originality",
        "dialecticality",
    ]
    assert technical.protocol.echo == "allowed"


@pytest.mark.parametrize(
    ("scores", "rule"),
    [
        (graded(("Q1", "S9", 5)), r"E2.csv, line 2 .row 1., column 'answered': response 'Q1:S9' is unknown"),
        (
            graded(("Q1", "S1", 5), ("Q1", "S1", 5)),
            r"E2.csv, line 3 .*rater 'E2' scores response 'Q1:S1' twice",
        ),
        (graded(("Q1", "S1", 11)), "rater 'E2' gave response 'Q1:S1' 11, off the scale 0 to 10"),
    ],
)
def test_a_file_of_scores_is_held_against_the_answers(tmp_path: Path, scores: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        found(tmp_path, "gradeagentops", {"answers.json": ANSWERS, "E1.csv": E1, "E2.csv": scores})


def test_scores_in_a_file_of_their_own_count_as_labels(tmp_path: Path) -> None:
    """Half of the labelled responses calibrate, and only labelled ones: without E2's file there would be none."""
    made = found(tmp_path, "gradeagentops", {"answers.json": ANSWERS, "E1.csv": E1, "E2.csv": E2})
    sides = {key: row["split"] for key, row in made.responses.items()}
    assert "calibration" in sides.values()
    authors: dict[str, set[str]] = {}
    for row in made.responses.values():
        authors.setdefault(row["author_id"], set()).add(row["split"])
    assert all(len(found) == 1 for found in authors.values())


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_study_and_rubric_is_read(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    if "rubrics" in content and isinstance(content["rubrics"], list):
        assert any(path.name in other.read_text() for other in STUDIES.glob("*.yaml"))
    else:
        assert (STUDIES / (load_study(path).rubrics.file or "asap_sas.yaml")).is_file()


def test_foreign_ids_of_several_columns_and_replies_of_several(tmp_path: Path) -> None:
    rows = [{"doc": "d", "system": 1, "a": 40, "b": 80.0}, {"doc": "d", "system": 2, "a": 40, "b": None}]
    write(tmp_path / "f.jsonl", rows)
    study = yaml.safe_load((STUDIES / "enem_essays_replay.yaml").read_text())
    changes = {"file": "f.jsonl", "response_id": ["doc", "system"], "reply": ["a", "b"], "where": {}}
    study["judge"]["foreign"] |= changes
    foreign = Study.model_validate(study).judge.foreign
    assert foreign is not None
    read = foreign_rows(foreign, tmp_path)
    assert [row["response_id"] for row in read] == ["d:1", "d:2"]
    assert json.loads(read[0]["reply"]) == {"a": 40, "b": 80.0}
    assert read[1]["reply"] is None


# The layout of MOCHA, on small files in the form of the public ones.


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
