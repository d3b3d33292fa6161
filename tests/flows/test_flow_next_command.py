"""What a graded run says to type next does not refuse, whatever the run was asked with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from next_scene import run_next
from tiny_study import make_study

from rubricflow.flows.grade import grade


@pytest.mark.parametrize(
    ("options", "without_scores", "commands"),
    [
        ({}, False, ["review", "grades"]),
        ({"limit": 25}, False, ["grades"]),  # all of them are marked
        ({"limit": 3}, True, ["review", "grades"]),
        ({"beside": "other.yaml"}, False, []),
    ],
)
def test_next_names_commands_that_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    without_scores: bool,
    commands: list[str],
) -> None:
    study = make_study(tmp_path / "my study")
    if without_scores:
        lines = study.read_text().splitlines()
        study.write_text("\n".join(line for line in lines if "scores:" not in line).replace("{target: one, ", "{"))
    if name := options.get("beside"):
        other = study.with_name(name)
        other.write_text(study.read_text().replace("name: tiny", "name: other"))
        options = {"beside": str(other)}
    grade(str(study), str(tmp_path / "house"), **options)
    assert run_next(capsys.readouterr().out, tmp_path) == commands
