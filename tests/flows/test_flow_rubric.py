"""The commands about rubrics, typed: what is found, and where it is written."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import loopback
from builders.command import command, done, refused
from tiny_study import make_study, with_judge

from rubricflow.flows import cli
from rubricflow.flows.rubric import read_rubrics
from rubricflow.tasks.grading.lock.rubric import authored
from rubricflow.tasks.grading.rubrics.item_analysis import held_back, marks_of


def test_a_check_says_what_can_be_seen_and_writes_it(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    before = (tmp_path / "study" / "rubrics.yaml").read_bytes()
    said = done("rubric", "check", study, "--warehouse", tmp_path / "house")
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
    assert "a model has yet to make these rubrics" in refused(
        "rubric", "check", study, "--warehouse", tmp_path / "house"
    )


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


REVISED = {
    "groups": [],
    "criteria": [
        {"id": "P1", "trait": "content", "group": "", "text": "Heat is the motion of particles.", "from": ["P1"],
         "levels": ["not said", "said"], "evidence": "local_quote", "points": 4},
    ],
    "notes": [{"note": "More than one repetition earns the point.", "why": "People gave none for one."}],
    "reasons": [{"id": "P2", "why": "Better answers say it less."}],
}  # fmt: skip
CRITIQUE = {
    "remarks": [
        {"criteria": ["P2"], "kind": "not_in_guide", "quote": "two reasons", "remark": "No reason.", "wording": ""}
    ]
}


def reply_to(messages: list[dict[str, str]]) -> str:
    """P1 goes with the quality of the answer, which people score, and P2 against it; and what is said of the rubric."""
    prompt, every = messages[-1]["content"], "\n".join(message["content"] for message in messages)
    if prompt.startswith("You review a checklist"):
        return json.dumps(CRITIQUE)
    if prompt.startswith("You revise a checklist"):
        assert "Answers with the scores that people gave them" in prompt
        return json.dumps(REVISED)
    quality = len(re.findall("word ", prompt.partition("answer ")[2] + " "))
    number = re.findall(r"answer (\d+)", prompt)[0]
    quote = [{"unit": "sentence 1", "quote": f"answer {number}"}]
    levels = {"P1": min(2, quality // 2), "P2": 2 - min(2, quality // 2)}
    if "Cold is its absence." not in every:
        levels = {"P1": int(quality > 1)}
    decisions = {name: {"level": at, "evidence": quote if at else []} for name, at in levels.items()}
    return json.dumps({"decisions": decisions})


def judged(folder: Path, url: str) -> Path:
    """A study of 120 answers that a server judges."""
    study = make_study(folder, 120)
    (folder / "rubrics.yaml").write_text(RUBRICS % "a" + (RUBRICS % "b").split("rubrics:\n")[1])
    engine = {"model": "strong", "urls": [url], "patience_s": 0}
    with_judge(study, {"protocol": "rulers", "backend": "openai", "engine": engine, "echo": "allowed"})
    study.write_text(study.read_text().replace("calibration: 40", "calibration: 59"))
    return study


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A graded study, and its warehouse."""
    folder = tmp_path_factory.mktemp("graded")

    def play(n: int, body: dict) -> bytes:
        return loopback.http(200, loopback.body_of(reply_to(body["messages"])))

    server = loopback.Server(play)
    study = judged(folder / "study", server.url)
    done("grade", study, "--warehouse", folder / "house")
    yield study, folder / "house"
    server.close()


def test_marks_are_held_against_criteria_once_the_study_is_graded(graded: tuple[Path, Path]) -> None:
    study, house = graded
    said = done("rubric", "check", study, "--warehouse", house)
    rows = {(row["criteria"], row["what"]) for row in csv.DictReader(io.StringIO(said.stdout))}
    assert ("P2", "its decisions go against people's scores") in rows
    assert ("P1", "its decisions go against people's scores") not in rows
    assert ("all of it", "no catch-all where the guide has one") in rows
    (page,) = house.glob("*/rubric-check.html")
    assert "How each criterion goes with people" in page.read_text()
    assert not [row for row in rows if row[1] == "the guide asks for nothing of the kind"]


def test_a_judge_is_asked_only_where_that_is_wanted(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    said = done("rubric", "check", study, "--warehouse", house, "--ask")
    (row,) = [
        row for row in csv.DictReader(io.StringIO(said.stdout)) if row["criteria"] == "P2" and "guide" in row["why"]
    ]
    assert (row["rubric"], row["what"]) == ("a, b", "the guide asks for nothing of the kind")
    assert row["why"] == "No reason. (guide: “two reasons”)"
    recorded = make_study(tmp_path / "recorded")
    assert "says nothing about rubrics" in refused(
        "rubric", "check", recorded, "--warehouse", tmp_path / "house", "--ask"
    )


def test_a_mailbox_carries_what_a_check_asks(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    words = ["batch", study, "--work", "check", "--warehouse", house, "--model"]
    assert command(*words, "other", "--to", tmp_path / "box").exit_code == 2  # it asks whom the study names
    fresh = tmp_path / "study"
    fresh.mkdir()
    for file in study.parent.iterdir():
        (fresh / file.name).write_bytes(file.read_bytes())
    words = ["batch", fresh / "study.yaml", "--work", "check", "--warehouse", tmp_path / "house"]
    box = tmp_path / "box"
    assert command(*words, "--to", box).exit_code == 0
    (file,) = box.glob("*.jsonl")
    ids = [json.loads(line)["id"] for line in file.read_text().splitlines()[1:]]
    assert len(ids) == 2
    lines = [json.dumps({"id": name, "reply": json.dumps(CRITIQUE)}) for name in ids]
    (box / "answers" / file.name).write_text("\n".join(lines))
    said = done(*words, "--from", box)
    assert "the guide asks for nothing of the kind" in said.output


def test_without_a_judge_a_revision_has_what_code_can_mend(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study")
    to = tmp_path / "better" / "rubrics.yaml"
    to.parent.mkdir()
    said = done("rubric", "revise", study, "--to", to, "--warehouse", tmp_path / "house")
    rows = list(csv.DictReader(io.StringIO(said.stdout)))
    assert [(row["rubric"], row["what"], row["by"]) for row in rows] == [
        (name, "levels changed", "rule") for name in "ab"
    ]
    assert [one.levels for rubric in authored(to).values() for one in rubric.criteria] == [("absent", "present")] * 2
    beside = to.with_name("rubrics-study.yaml")
    assert command("rubric", "check", beside, "--warehouse", tmp_path / "house").exit_code == 0
    assert "somebody may have edited it" in refused(
        "rubric", "revise", study, "--to", to, "--warehouse", tmp_path / "house"
    )


def test_a_revision_says_on_answers_held_back_whether_it_agrees_better(
    graded: tuple[Path, Path], tmp_path: Path
) -> None:
    study, house = graded
    before = (study.parent / "rubrics.yaml").read_bytes()
    said = done("rubric", "revise", study, "--to", tmp_path / "new.yaml", "--ask", "--warehouse", house)
    told = {(row["before"], row["after"], row["what"], row["by"]) for row in csv.DictReader(io.StringIO(said.stdout))}
    assert ("P2", "", "removed", "judge") in told
    assert ("", "More than one repetition earns the point.", "scoring note", "judge") in told
    assert {one.notes for one in authored(tmp_path / "new.yaml").values()} == {
        tuple(note["note"] for note in REVISED["notes"])
    }
    assert "# a: P2 → nothing: removed (judge): Better answers say it less." in (tmp_path / "new.yaml").read_text()
    assert (study.parent / "rubrics.yaml").read_bytes() == before
    commands = [shlex.split(line.strip())[1:] for line in said.stderr.splitlines() if line.startswith("  rubricflow")]
    assert [words[0] for words in commands] == ["grade", "rubric"]
    for words in commands:
        last = done(*words)
    figures = r"^qwk: .* ([+-][\d.]+) \[([+-][\d.]+), [+-][\d.]+\], on (\d+) answers that no reviser was shown"
    ((gain, low, n),) = re.findall(figures, last.stderr, re.M)
    assert float(gain) > float(low) > 0
    (page,) = house.glob("*_revised-*/rubric-check.html")
    assert gain in page.read_text()
    held = [f"x{i}" for i in range(120) if held_back(f"x{i}")]
    assert 0 < int(n) < len(held)  # of the calibration split alone


def test_marks_are_shown_before_anything_was_graded(graded: tuple[Path, Path], tmp_path: Path) -> None:
    study, house = graded
    of_graded = read_rubrics(str(study), str(house), None, with_marks=True)
    fresh = read_rubrics(str(study), str(tmp_path), None, with_marks=True)
    assert not fresh.job.run.done("ingest", "all")
    assert fresh.marked == of_graded.marked
    assert fresh.marked.keys() == {"a", "b"}
    for rubric, answers in fresh.marked.items():
        assert 5 < len(answers) <= 40, rubric
        assert [one.score for one in answers] == sorted(one.score for one in answers)
        numbers = [int(re.findall(r"answer (\d+)", one.text)[0]) for one in answers]
        assert not [number for number in numbers if held_back(f"x{number}")]


def test_a_reviser_is_shown_no_answer_that_is_held_back(graded: tuple[Path, Path]) -> None:
    study, house = graded
    read = read_rubrics(str(study), str(house), None)
    graded_run = read.job.run, read.job.study.evaluation, read.bundles
    marks, _ = marks_of(*graded_run, lambda author: not held_back(author))
    shown = {one.response_id for of_rubric in marks.values() for one in of_rubric.apart}
    shown |= {name for of_rubric in marks.values() for group in of_rubric.unnamed for name in group.answers}
    everybody, _ = marks_of(*graded_run, lambda author: True)
    seen_by_check = {one.response_id for of_rubric in everybody.values() for one in of_rubric.apart}
    assert shown
    assert not {name for name in shown if held_back(name)}
    assert {name for name in seen_by_check if held_back(name)}


def test_what_a_level_is_worth_is_told_proposed_and_compared_without_a_call(tmp_path: Path) -> None:
    """Of five qualities the judge calls the second best one said in part."""
    asked = 0

    def play(n: int, body: dict) -> bytes:
        nonlocal asked
        asked += 1
        prompt = body["messages"][-1]["content"]
        quality = len(re.findall("word ", prompt.partition("answer ")[2] + " "))
        (number,) = set(re.findall(r"answer (\d+)", prompt))
        level = (0, 0, 0, 1, 2)[quality]
        quote = [{"unit": "sentence 1", "quote": f"answer {number}"}] if level else []
        reply = {"decisions": {"P1": {"level": level, "evidence": quote}}}
        return loopback.http(200, loopback.body_of(json.dumps(reply)))

    server = loopback.Server(play)
    study, house, to = judged(tmp_path / "study", server.url), tmp_path / "house", tmp_path / "new.yaml"
    rubrics = study.parent / "rubrics.yaml"
    lines = [line for line in rubrics.read_text().splitlines() if "id: P2" not in line]
    levels = "levels: [not said, only that it is a motion, of the particles], weight: 4"
    rubrics.write_text("\n".join(lines).replace("levels: [not said, hinted at, said], weight: 2", levels))
    done("grade", study, "--warehouse", house)
    calls, before = asked, rubrics.read_bytes()
    said = done("rubric", "check", study, "--warehouse", house)
    (row,) = [row for row in csv.DictReader(io.StringIO(said.stdout)) if row["what"].startswith("a level is worth")]
    assert (row["rubric"], row["criteria"]) == ("a, b", "P1")
    revised = done("rubric", "revise", study, "--to", to, "--warehouse", house)
    (change,) = {row["what"] for row in csv.DictReader(io.StringIO(revised.stdout)) if row["after"] == "P1"}
    assert change == "points changed"
    (earns,) = {
        criterion.shares for rubric in authored(to).values() for criterion in rubric.criteria if criterion.top == 2
    }
    assert 0.65 <= earns[1] < 1
    commands = [
        shlex.split(line.strip())[1:] for line in revised.stderr.splitlines() if line.startswith("  rubricflow")
    ]
    for words in commands:
        last = done(*words)
    server.close()
    assert asked == calls
    assert rubrics.read_bytes() == before
    ((gain, low),) = re.findall(r"^qwk: .* ([+-][\d.]+) \[([+-][\d.]+), ", last.stderr, re.M)
    assert float(gain) >= float(low) > 0
