"""The commands about rubrics, typed: what is found, and where it is written."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from click.testing import Result
from tiny_study import make_study
from typer.testing import CliRunner

from rubricflow.flows import cli


def command(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words], catch_exceptions=False)


def test_a_check_says_what_can_be_seen_and_writes_it(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    before = (tmp_path / "study" / "rubrics.yaml").read_bytes()
    said = command("rubric", "check", study, "--warehouse", tmp_path / "house")
    assert said.exit_code == 0, said.output
    rows = list(csv.DictReader(io.StringIO(said.stdout)))
    assert [(row["rubric"], row["criteria"], row["what"]) for row in rows] == [
        ("a, b", "P1", "a middle level that nobody defined")
    ]
    assert "1 finding about 2 rubrics, all of them doubtful." in said.stderr
    (page,) = (tmp_path / "house").glob("*/rubric-check.html")
    assert "a middle level that nobody defined" in page.read_text()
    assert page.with_suffix(".csv").read_text() == said.stdout
    assert (tmp_path / "study" / "rubrics.yaml").read_bytes() == before


def test_the_commands_about_rubrics_are_a_group_of_their_own() -> None:
    assert "check" in command("rubric", "--help").output
    assert command("rubric", "nothing").exit_code == 2
    assert "rubric" in cli.Commands(name="rubricflow").list_commands(None)
    assert "rubric check" not in cli.Commands(name="rubricflow").list_commands(None)


def test_a_rubric_that_a_model_has_yet_to_make_is_not_checked(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    text = study.read_text().replace("{file: rubrics.yaml}", "{file: rubrics.yaml, induce: {criteria: 4}}")
    study.write_text(text)
    said = command("rubric", "check", study, "--warehouse", tmp_path / "house")
    assert said.exit_code == 2
    assert "a model has yet to make these rubrics" in said.output
