"""The commands about rubrics, typed: what is found, and where it is written."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import loopback
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


RUBRICS = """
rubrics:
  - rubric_id: '%s'
    scale: {min: 0, max: 4}
    text: "Score 4: two reasons. Other acceptable responses earn credit."
    criteria:
      - {id: P1, text: Heat is the motion of particles., levels: [not said, hinted at, said], weight: 2}
      - {id: P2, text: Cold is its absence., levels: [not said, hinted at, said], weight: 2}
    traits: [{id: content, name: Content, min: 0, max: 4}]
""".replace("{id: P", "{trait: content, id: P")


def decide(prompt: str) -> str:
    """P1 goes with the quality of the answer, which people score, and P2 against it."""
    quality = len(re.findall("word ", prompt.partition("answer ")[2] + " "))
    number = re.findall(r"answer (\d+)", prompt)[0]
    quote = [{"unit": "sentence 1", "quote": f"answer {number}"}]
    levels = {"P1": min(2, quality // 2), "P2": 2 - min(2, quality // 2)}
    decisions = {name: {"level": at, "evidence": quote if at else []} for name, at in levels.items()}
    return json.dumps({"decisions": decisions})


def judged(folder: Path, url: str) -> Path:
    """A study of 80 answers that a server judges."""
    study = make_study(folder, 80)
    (folder / "rubrics.yaml").write_text(RUBRICS % "a" + (RUBRICS % "b").split("rubrics:\n")[1])
    engine = {"model": "strong", "urls": [url], "patience_s": 0}
    judge = json.dumps({"protocol": "rulers", "backend": "openai", "engine": engine, "echo": "allowed"})
    head, _, rest = study.read_text().partition("judge:")
    study.write_text(f"{head}judge: {judge}\ncalibration:{rest.partition('calibration:')[2]}")
    study.write_text(study.read_text().replace("calibration: 40", "calibration: 60"))
    return study


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A graded study, and its warehouse."""
    folder = tmp_path_factory.mktemp("graded")

    def play(n: int, body: dict) -> bytes:
        prompt = "\n".join(turn["content"] for turn in body["messages"] if turn["role"] != "system")
        return loopback.http(200, loopback.body_of(decide(prompt)))

    server = loopback.Server(play)
    study = judged(folder / "study", server.url)
    said = command("grade", study, "--warehouse", folder / "house")
    assert said.exit_code == 0, said.output
    yield study, folder / "house"
    server.close()


def test_marks_are_held_against_criteria_once_the_study_is_graded(graded: tuple[Path, Path]) -> None:
    study, house = graded
    said = command("rubric", "check", study, "--warehouse", house)
    assert said.exit_code == 0, said.output
    rows = {(row["criteria"], row["what"]) for row in csv.DictReader(io.StringIO(said.stdout))}
    assert ("P2", "its decisions go against people's scores") in rows
    assert ("P1", "its decisions go against people's scores") not in rows
    assert ("all of it", "no catch-all where the guide has one") in rows
    (page,) = house.glob("*/rubric-check.html")
    assert "How each criterion goes with people" in page.read_text()
    command("verify", "--warehouse", house)
