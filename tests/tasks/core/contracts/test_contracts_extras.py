"""What a study needs beside the package itself, and what is said where it is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rubricflow.flows.checks import check_extras
from rubricflow.tasks.core.contracts import backends as extras
from rubricflow.tasks.core.contracts.backends import BACKENDS, LIBRARIES, install, needs, require
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.study import Study

ROOT = Path(__file__).parents[4]
PLAIN = """
name: plain
data: {sources: [{file: a.csv, responses: {response_id: id, item_id: item, text: text}}]}
rubrics: {file: rubrics.yaml}
judge: {backend: replay, model: m}
calibration: {features: [judge, characters]}
"""


def study(**changed: Any) -> Study:
    plain = {
        "name": "plain",
        "data": {"sources": [{"file": "a.csv", "responses": {"response_id": "id", "item_id": "item", "text": "text"}}]},
        "rubrics": {"file": "rubrics.yaml"},
        "judge": {"backend": "replay", "model": "m"},
        "calibration": {"features": ["judge", "characters"]},
    }
    return Study.model_validate(plain | changed)


@pytest.mark.parametrize(
    ("changed", "extra"),
    [
        ({}, set()),
        ({"judge": {"backend": "embedded"}}, {"embedded"}),
        ({"judge": {"backend": "vllm", "engine": {"model": "m"}}}, {"vllm"}),
        ({"judge": {"backend": "openai", "engine": {"model": "m", "urls": ["http://h:1/v1"]}}}, set()),
        ({"judge": {"backend": "replay", "model": "m", "evidence_match": "semantic"}}, {"embedded"}),
        ({"calibration": {}}, {"embedded"}),
        ({"run": {"engine": "dask"}}, {"dask"}),
        ({"run": {"engine": "ray"}, "judge": {"backend": "embedded"}}, {"ray", "embedded"}),
    ],
)
def test_a_study_needs_what_its_settings_ask_for(changed: dict[str, Any], extra: set[str]) -> None:
    assert {name for name, _ in needs(study(**changed), "grade")} == extra


def test_every_extra_of_a_backend_is_one_of_the_project() -> None:
    written = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().split("optional-dependencies]")[1], re.M)
    assert set(LIBRARIES) <= set(written)
    assert {backend.extra for backend in BACKENDS.values()} - {None} <= set(LIBRARIES)


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    asked = [("embedded", "judge.backend: embedded"), ("ray", "engine: ray"), ("embedded", "calibration.features")]
    with pytest.raises(BackendError) as said:
        require(asked)
    assert "'embedded' (judge.backend: embedded, calibration.features); 'ray' (engine: ray)" in str(said.value)
    assert install("embedded", "ray") in str(said.value)
    monkeypatch.setattr(extras, "find_spec", lambda name: object())
    require(asked)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"engine": "ray"}, "'ray' (--engine ray)"),
        ({"model": "m"}, "'vllm' (--model without --url)"),
        ({"beside": Path("other.yaml")}, "'embedded' (judge.backend: embedded"),
        ({"model": "m", "url": "http://h:1/v1"}, None),
        ({"engine": "local"}, None),
    ],
)
def test_options_stand_in_place_of_the_study(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any], named: str | None
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    (tmp_path / "study.yaml").write_text(PLAIN)
    (tmp_path / "other.yaml").write_text(PLAIN.replace("{backend: replay, model: m}", "{backend: embedded}"))
    given = {name: tmp_path / value if isinstance(value, Path) else value for name, value in options.items()}
    if named is None:
        return check_extras("grade", tmp_path / "study.yaml", **given)
    with pytest.raises(BackendError, match=re.escape(named)):
        check_extras("grade", tmp_path / "study.yaml", **given)


def test_replies_in_a_database_need_its_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setenv("RUBRICFLOW_REPLIES", "postgresql://me@host/replies")
    (tmp_path / "study.yaml").write_text(PLAIN)
    with pytest.raises(BackendError, match="'postgres'"):
        check_extras("grade", tmp_path / "study.yaml")


def test_nobody_is_told_to_install_what_no_index_has() -> None:
    suffixes = {".py", ".md", ".yaml", ".toml", ".j2"}
    files = [file for folder in ("flows", "tasks", "docs", "deploy") for file in (ROOT / folder).rglob("*")]
    files += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "rubricflow/client.py"]
    told = [f for f in files if f.suffix in suffixes and re.search(r"install '?\"?rubricflow", f.read_text("utf-8"))]
    assert told == []
