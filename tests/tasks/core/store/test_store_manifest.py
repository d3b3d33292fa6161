"""The manifest says what a run was made from; its grade_digest covers exactly what can change a released score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store import manifest
from rubricflow.tasks.core.store.files import digest_of, file_digest
from rubricflow.tasks.core.store.manifest import code_digest, git_state, graded_by, versions, write_manifest
from rubricflow.tasks.core.store.warehouse import Run

Make = Callable[..., Run]
SETTINGS = {"calibration": {"alpha": 2.5}, "protocol_version": 1}


def digest(run: Run, target: str = "mean", settings: dict[str, Any] = SETTINGS) -> str:
    return digest_of(graded_by(run, target, settings))


def put(table: str, at: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda records: records[table][at].update(values)


def add_response(records: dict[str, Any]) -> None:
    records["responses"].append(records["responses"][2] | {"response_id": "r4"})


MATTERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a text": put("responses", 1, text="Heat r2"),
    "another response": add_response,
    "a response that calibrates": put("responses", 1, split="calibration"),
    "a response that calibrates no more": put("responses", 0, split="test"),
    "a bundle": put("bundles", 0, bundle_id="0" * 64),
    "a request": put("attempts", 1, request_digest="other"),
    "a reply": put("attempts", 1, reply="[]"),
    "a missing reply": put("attempts", 1, reply=None, error="timeout"),
    "another attempt": lambda rows: rows["attempts"].append(rows["attempts"][2] | {"attempt": 1}),
    "a calibration label": put("gradings", 0, score=2.0),
    "a calibration label less": put("gradings", 0, score=None),
    "a second rater's calibration label": put("gradings", 6, score=1.0),
}
MATTERS_NOT: list[Callable[[dict[str, Any]], object]] = [
    put("responses", 0, author_id="other", groups={}),
    put("responses", 1, split="train"),
    put("gradings", 1, score=0.0),  # a label that measures
    put("gradings", 6, rater_id="k"),  # who gave it, to a mean
    put("attempts", 0, latency_s=9.0, stored=True),
    put("rubrics", 0, lint=[]),
    put("items", 0, type="u"),
    put("predictions", 0, score=0.0),
    put("metrics", 0, value=0.9),
    lambda rows: rows["judgments"].clear(),
    lambda rows: [rows[name].reverse() for name in rows],
]


@pytest.fixture(scope="module")
def unchanged(finished: Run) -> str:
    return digest(finished)


@pytest.mark.parametrize("name", MATTERS)
def test_grade_digest_changes_with(filled_run: Make, unchanged: str, name: str) -> None:
    assert digest(filled_run(MATTERS[name])) != unchanged


def test_grade_digest_does_not_change_with_the_rest(filled_run: Make, unchanged: str) -> None:
    run = filled_run(lambda records: [change(records) for change in MATTERS_NOT])
    assert digest(run) == unchanged


def test_grade_digest_changes_with_the_calibration_settings(finished: Run, unchanged: str) -> None:
    assert unchanged != digest(finished, settings=SETTINGS | {"calibration": {"alpha": 1.0}})


def test_grade_digest_sees_only_the_targets_labels(filled_run: Make, finished: Run) -> None:
    other = filled_run(put("gradings", 6, score=0.0))
    assert digest(finished, "h") == digest(other, "h")
    assert digest(finished, "g") != digest(other, "g")


def test_an_empty_run_has_a_digest_of_nothing(filled_run: Make) -> None:
    empty = filled_run(lambda rows: [rows[name].clear() for name in rows])
    nothing = dict.fromkeys(("texts", "bundles", "requests", "labels"))
    assert graded_by(empty, "mean", {}) == nothing | {"target": "mean"}


def test_the_target_is_a_value_and_no_sql(finished: Run) -> None:
    assert graded_by(finished, "' OR 1=1 --", {})["labels"] is None


def written(run: Run, target: str = "mean", settings: dict[str, Any] = SETTINGS) -> dict[str, Any]:
    """What the scores rest on, after a manifest of all tables was written."""
    refs = [run.ref(row, stage) for row in TABLES for stage in run.stages(row)]
    graded = graded_by(run, target, settings)
    write_manifest(run, {}, graded, refs, run.folder)
    return graded


def test_a_broken_manifest_is_written_anew(filled_run: Make, unchanged: str) -> None:
    run = filled_run()
    written(run)
    for broken in ("", "{", "\x00" * 9):
        (run.folder / "manifest.json").write_text(broken)
        assert digest(run) == unchanged


def test_a_table_that_is_broken_inside_is_a_store_error(filled_run: Make) -> None:
    run = filled_run()
    file = run.folder / "responses" / "some" / "responses.parquet"
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)  # the columns' own pages; the footer stays
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"responses\.parquet was changed since stage 'some' wrote it as done; "):
        graded_by(run, "mean", SETTINGS)


def test_the_manifest_tells_what_was_made_from_what(filled_run: Make) -> None:
    run = filled_run()
    ref = run.ref(Items, "some")
    graded = graded_by(run, "mean", SETTINGS)
    path = write_manifest(run, {"study": {"name": "s"}, "inputs": {"a.csv": "0"}}, graded, [ref], run.folder)
    content = json.loads(path.read_bytes())
    assert path == run.folder / "manifest.json"
    assert content["grade_digest"] == digest_of(graded)
    assert (content["run_id"], content["tables"]) == (run.run_id, [ref.model_dump()])
    assert content["identity"]["inputs"] == {"a.csv": "0"}
    assert run.warehouse.runs() == [run.run_id]
    assert {"python", "duckdb", "pyarrow"} <= set(content["versions"])


def test_digest_of_does_not_see_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": [1, 2]}) == digest_of({"b": [1, 2], "a": 1}) != digest_of({"a": 1, "b": [2, 1]})


def test_file_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_code_digest_changes_with_code_prompts_and_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    (tmp_path / "tasks" / "room").mkdir(parents=True)
    digests = []
    for name in ("note.md", "a.py", "room/a.txt", "room/a.yaml"):
        (tmp_path / "tasks" / name).write_text("x")
        digests.append(code_digest.__wrapped__())
    assert len(set(digests)) == 4


def test_a_package_outside_a_checkout_has_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    assert git_state() == {}


def test_a_machine_without_git_has_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert git_state() == {}


def test_a_library_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "LIBRARIES", ("pyarrow", "no-such-library"))
    assert set(versions()) == {"python", "pyarrow"}
