"""The pipeline without a server: what waits for people, what the last vote tells, and how it goes on. What Prefect does
with a run that waits is tested in test_flow_watched.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.command import command, done
from builders.files import read_csv, write_csv
from tiny_study import make_study

from rubricflow.flows import pipeline
from rubricflow.flows.grade import grade
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study

HOUSE = Path(__file__).resolve().parents[2]
LIMIT = 1
Started = list[tuple[str, str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The steps after the first pause: test_flow_people.py takes them in full. (step, study), in their order."""
    steps: Started = []

    def noting(name: str) -> Callable[..., str]:
        def step(study: str, *_: Any) -> str:
            steps.append((name, Path(study).name))
            return f"{name}-run"

        return step

    monkeypatch.setattr(pipeline, "bottleneck", noting("train"))
    monkeypatch.setattr(pipeline, "grade", noting("grade"))
    return steps


def study_in(folder: Path, **changes: Any) -> Path:
    """The demo's study of concepts, with two cases in the queue."""
    for name in ("items.csv", "responses.csv", "concept_marks.csv", "concept_rubric.yaml"):
        (folder / name).write_bytes((HOUSE / "data" / "demo" / name).read_bytes())
    content = yaml.safe_load((HOUSE / "data" / "demo" / "concepts.yaml").read_text())
    content["annotation"]["doubt"] = {"most": 2}
    file = folder / "concepts.yaml"
    file.write_text(yaml.safe_dump(content | changes))
    return file


def test_it_stops_for_people_and_goes_on_when_they_have_answered(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, house = study_in(tmp_path), tmp_path / "house"
    answered: list[set[str]] = []
    monkeypatch.setattr("rubricflow.flows.review.announce_answered", answered.append)
    given = str(study), None, str(house), LIMIT
    waits = pipeline.pipeline(*given)
    assert f"2 of 2 cases of concepts wait for people: rubricflow review {study}" in capsys.readouterr().err
    assert started == []
    where = ["--warehouse", str(house), "--limit", str(LIMIT)]
    sheet = tmp_path / "queue.csv"
    assert command("votes", study, "--to", sheet, *where).exit_code == 0
    rows = read_csv(sheet)
    cases = sorted({row["response_id"] for row in rows})
    for number, case in enumerate(cases):
        voted = [row | {"level": "1"} for row in rows if row["response_id"] == case]
        write_csv(sheet, list(rows[0]), [list(row.values()) for row in voted])
        done("votes", study, "--from", sheet, "--as", "anna", *where)
        assert answered == [{"concepts"}] * number  # the last vote alone is told
        again = pipeline.pipeline(*given)
        assert ("1 of 2 cases" in capsys.readouterr().err) == (number == 0)
        assert (again == waits) == (number == 0)
    assert again == "grade-run"
    assert started == [("train", "concepts.yaml"), ("grade", "concepts.yaml")]


def test_what_the_second_study_holds_back_waits_for_people_too(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, second, house = study_in(tmp_path), make_study(tmp_path / "second"), tmp_path / "house"
    second.write_text(second.read_text() + "marks: calibrate\n")  # what people marked in the data settles nothing
    told: list[set[str]] = []
    monkeypatch.setattr(pipeline, "announce_answered", told.append)
    monkeypatch.setattr(pipeline, "check_chained", lambda *_: None)  # a judge without training; held below
    monkeypatch.setattr(pipeline, "grade", grade)
    given = str(study), str(second), str(house), LIMIT
    pipeline.pipeline(*given)
    assert "cases of concepts wait" in capsys.readouterr().err
    answer(study, house)
    graded = pipeline.pipeline(*given)
    assert "the scores of 2 of 2 cases of tiny wait for people" in capsys.readouterr().err
    assert (started, told) == ([("train", "concepts.yaml")], [])
    answer(second, house)
    assert pipeline.pipeline(*given) == graded
    assert told == [{"concepts", "tiny"}]


def answer(study: Path, house: Path) -> None:
    """What waits in a study gets a 1 everywhere, by anna."""
    sheet, where = study.with_suffix(".csv"), ["--warehouse", str(house), "--limit", str(LIMIT)]
    assert command("votes", study, "--to", sheet, *where).exit_code == 0
    rows = read_csv(sheet)
    write_csv(sheet, list(rows[0]), [list((row | {"level": "1"}).values()) for row in rows])
    done("votes", study, "--from", sheet, "--as", "anna", *where)


def test_a_chain_that_does_not_hold_is_refused_before_anybody_is_asked(tmp_path: Path, started: Started) -> None:
    study = study_in(tmp_path)
    sound, house = load_study(study), tmp_path / "house"
    pipeline.check_chained(study, sound, study, sound, house)
    with pytest.raises(InputError, match="no grader learns"):
        pipeline.check_chained(study, sound.model_copy(update={"annotation": None}), study, sound, house)
    assert sound.bottleneck is not None
    elsewhere = sound.bottleneck.model_copy(update={"grader": None})
    with pytest.raises(InputError, match="not the grader that is trained"):
        pipeline.check_chained(study, sound.model_copy(update={"bottleneck": elsewhere}), study, sound, house)
