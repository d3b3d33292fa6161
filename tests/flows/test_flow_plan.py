"""What names a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricflow.flows.plan import inputs, plan
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.study import load_study

STUDY = """
name: local
data: {sources: [{file: none.csv}]}
rubrics: {derive: {origin: reference_answer, scale: {min: 0, max: 5}}}
judge: {backend: vllm, engine: {model: weights}}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    (tmp_path / "weights" / "model.bin").write_text("one")
    return path


def test_other_weights_in_the_same_folder_are_another_run(study: Path, tmp_path: Path) -> None:
    before = plan(study, tmp_path / "house").run.run_id
    assert plan(study, tmp_path / "house").run.run_id == before
    (tmp_path / "weights" / "model.bin").write_text("two")
    assert plan(study, tmp_path / "house").run.run_id != before


def test_a_model_that_a_hub_names_is_no_file(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("model: weights", "model: somebody/model"))
    assert inputs(load_study(study), tmp_path) == {}


def test_a_folder_without_a_model_is_refused(study: Path, tmp_path: Path) -> None:
    (tmp_path / "weights" / "config.json").unlink()
    with pytest.raises(BackendError, match="holds no model"):
        inputs(load_study(study), tmp_path)


def test_the_weights_that_graders_are_compared_with_name_the_run(study: Path, tmp_path: Path) -> None:
    (tmp_path / "weights").rename(tmp_path / "prompted")
    prompted = "bottleneck: {prompted: {backend: vllm, engine: {model: prompted}}}"
    study.write_text(STUDY.replace("judge: {backend: vllm, engine: {model: weights}}", prompted))
    before = inputs(load_study(study), tmp_path)
    (tmp_path / "prompted" / "model.bin").write_text("two")
    assert before.keys() == {"prompted"}
    assert before != inputs(load_study(study), tmp_path)
