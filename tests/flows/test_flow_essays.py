"""Folders of essays from `init` to grades: what can be read is graded, what cannot waits for a person and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders.command import done, last_run

from rubricflow.flows.init import init
from rubricflow.flows.plan import plan
from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.data import UNREAD, InputWarnings, Responses
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.warehouse import Run
from tests.builders import exports
from tests.builders.documents import archive
from tests.builders.exports import BROKEN, ESSAYS

RUBRIC = """
rubrics:
  - rubric_id: Q1
    text: One end of soap holds on to fat and the other one to water.
    scale: {min: 0, max: 4, step: 1}
    traits: [{id: content, name: Content, min: 0, max: 4}]
    criteria:
      - {id: P1, trait: content, kind: gold_point, text: Soap holds on to fat., levels: [absent, present]}
      - {id: P2, trait: content, kind: gold_point, text: Soap holds on to water., levels: [absent, present]}
"""


def guess(question: str, default: str) -> str:
    return "Why does soap help?" if "What was the question?" in question else default


def drafted(export: Path, folder: Path) -> Path:
    study = folder / "week" / "study.yaml"
    init([export], study, guess)
    study.with_name("rubrics.yaml").write_text(RUBRIC)
    return study


@pytest.mark.parametrize(
    ("export", "students"),
    [
        (exports.moodle_submissions, [f"Participant {n}" for n in (*ESSAYS, *BROKEN)]),
        (exports.canvas_submissions, [*ESSAYS, *BROKEN]),
        (exports.blackboard_submissions, ["aberg", "can_oz", "elind"]),
        (exports.essay_folder, [*(name for name, _ in ESSAYS.values()), *BROKEN.values()]),
    ],
)
def test_a_folder_of_essays_becomes_a_study_that_holds(
    export: Callable[[Path], Path], students: list[str], tmp_path: Path
) -> None:
    study = drafted(export(tmp_path), tmp_path)
    found = list(prove(study))
    assert [message for kind, _, message in found if kind == "wrong"] == []
    assert ("ok", "data", f"1 items, {len(students)} responses") in found
    warned = " ".join(message for kind, what, message in found if (kind, what) == ("warning", "answers"))
    assert all(student in warned for student in students[3:])


def invoke(*words: object) -> str:
    result = done(*map(str, words))
    return result.output


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Moodle's submissions, graded by the sentence encoder."""
    folder = tmp_path_factory.mktemp("essays")
    study = drafted(exports.moodle_submissions(folder), folder)
    invoke("grade", study, "--warehouse", folder / "house")
    return last_run(folder / "house")


READABLE = {f"Participant {number}" for number in ESSAYS}
REASONS = {"Participant 4714": "file_without_text", "Participant 4715": "file_damaged", "Participant 4716": "file_type"}


def test_what_could_not_be_read_is_there_without_a_score(graded: Run) -> None:
    responses = graded.read(graded.ref(Responses, "ingest")).to_pylist()
    assert {row["response_id"]: row["made_from"] for row in responses} == dict.fromkeys(READABLE, "file") | REASONS
    gradings = {row["response_id"]: row for row in graded.read(graded.ref(Gradings, "judge")).to_pylist()}
    assert {name for name, row in gradings.items() if row["score"] is not None} == READABLE
    unread = {name: (row["status"], row["unscored_reason"]) for name, row in gradings.items() if name in REASONS}
    assert unread == {name: ("unscored", reason) for name, reason in REASONS.items()}
    judgments = graded.read(graded.ref(Judgments, "judge")).to_pylist()
    assert {row["decision"] for row in judgments if row["response_id"] in REASONS} == {None}


def test_no_judge_is_asked_about_it(graded: Run) -> None:
    attempts = graded.read(graded.ref(Attempts, "judge")).to_pylist()
    assert {row["response_id"] for row in attempts} == READABLE


def test_it_waits_for_a_person_and_says_why(graded: Run) -> None:
    with catalogue(graded) as tables:
        query = "SELECT response_id, decided_by, final_score, machine_score, route, unscored_reason FROM final_scores"
        rows = {row[0]: row[1:] for row in tables.sql(query).fetchall()}
    assert {name: rows[name] for name in REASONS} == {
        name: ("waits", None, None, "review", reason) for name, reason in REASONS.items()
    }
    study = graded.warehouse.root.parent / "week" / "study.yaml"
    target = study.with_name("grades.csv")
    invoke("grades", study, "--to", target, "--warehouse", graded.warehouse.root)
    sheet = target.read_text(encoding="utf-8-sig")
    assert all(UNREAD[reason] in sheet for reason in REASONS.values())


def test_quotes_of_documents_stand_in_the_text_that_is_kept(graded: Run) -> None:
    texts = {row["response_id"]: row["text"] for row in graded.read(graded.ref(Responses, "ingest")).to_pylist()}
    quotes = [
        (row["response_id"], quote)
        for row in graded.read(graded.ref(Judgments, "judge")).to_pylist()
        for quote in row["evidence"]
        if quote["status"] == "verified"
    ]
    assert quotes
    assert all(texts[name][quote["start"] : quote["end"]].split() == quote["quote"].split() for name, quote in quotes)


def test_ingest_says_which_files_were_joined(graded: Run) -> None:
    rows = {row["kind"]: row for row in graded.read(graded.ref(InputWarnings, "ingest")).to_pylist()}
    assert rows["unread"]["responses"] == 3
    assert any("rest.pdf" in example for example in rows["joined"]["examples"])


@pytest.mark.parametrize("export", [exports.moodle_submissions, exports.essay_folder])
def test_a_changed_file_makes_another_run_and_the_same_files_the_same(
    export: Callable[[Path], Path], tmp_path: Path
) -> None:
    source = export(tmp_path)
    study = drafted(source, tmp_path)
    before = plan(study, tmp_path / "house")
    assert plan(study, tmp_path / "house").run.run_id == before.run.run_id
    if source.is_dir():
        (source / "Ada Berg.docx").write_bytes((source / "Can Öz.docx").read_bytes())
        assert any("Ada Berg.docx" in name for name in before.identity["inputs"])
    else:
        source.write_bytes(archive({"Ada_1_assignsubmission_file_/a.txt": "Soap."}))
    assert plan(study, tmp_path / "house").run.run_id != before.run.run_id


def test_a_mark_of_a_person_counts_for_what_could_not_be_read(tmp_path: Path) -> None:
    study = drafted(exports.essay_folder(tmp_path), tmp_path)
    (study.parent / "marks.csv").write_text("student,mark\nFinn Frey,3\nAda Berg,4\n")
    text = study.read_text().replace(
        "rubrics:\n", "    - {file: marks.csv, scored: student, scores: [{rater: me, score: mark}]}\n\nrubrics:\n", 1
    )
    study.write_text(text)
    assert len(load_study(study).data.sources) == 3
    assert [message for kind, _, message in prove(study) if kind == "wrong"] == []


def test_a_study_is_not_written_among_the_essays(tmp_path: Path) -> None:
    folder = exports.essay_folder(tmp_path)
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match="would be one of them"):
        init([folder], folder / "study.yaml", guess)
    assert sorted(folder.iterdir()) == before
