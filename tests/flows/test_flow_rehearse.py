"""A rehearsal: several ways of asking on the same few labelled answers, by a model behind a server that is played."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from builders import loopback
from builders.command import command, done, refused
from tiny_study import make_study

from rubricflow.flows import rehearse
from rubricflow.flows.plan import plan
from rubricflow.flows.rehearse import PLAIN, drawn, ways
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

ANSWERS = 60
POINTS = [f"P{number}" for number in range(1, 7)]
TRAIT = {"id": "content", "name": "Content", "min": 0, "max": 4}


def reply_to(system: str, response: str) -> str:
    """Its own mark for everything; asked for the score alone, one that has little to do with the answer."""
    (number,) = re.findall(r"answer (\d+)", response)[:1]
    quality = (int(number) * 7) % 5
    if "holistic" in system:
        return json.dumps({"rationale": "a look", "score": (quality + int(number)) % 5})
    decisions = {}
    for name in re.findall(r"^- (P\d) \[", system, re.MULTILINE):
        quotes = [{"unit": "sentence 1", "quote": f"answer {number}"}] if quality else []
        decisions[name] = {"level": int(quality > 0), "evidence": quotes}
    if "not_higher" in system:
        decisions["score_content"] = {"not_lower": "it says so", "not_higher": "it lacks one", "score": quality}
    return json.dumps({"decisions": decisions})


def play(n: int, body: dict) -> bytes:
    system, response = body["messages"][0]["content"], body["messages"][1]["content"]
    return loopback.http(200, loopback.body_of(reply_to(system, response)))


def study_in(folder: Path, url: str, **judge: object) -> Path:
    file = make_study(folder, ANSWERS)
    points = [{"id": name, "trait": "content", "text": f"Names part {name}."} for name in POINTS]
    rubrics = [
        {"rubric_id": name, "text": "The guide.", "scale": {"min": 0, "max": 4}, "traits": [TRAIT], "criteria": points}
        for name in ("a", "b")
    ]
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": rubrics}))
    study = yaml.safe_load(file.read_text())
    engine = {"model": "strong", "urls": [url], "patience_s": 0, "price": {"input": 1, "output": 2}}
    study["judge"] = {"protocol": "checked_score", "backend": "openai", "engine": engine, **judge}
    file.write_text(yaml.safe_dump(study))
    return file


@pytest.fixture(scope="module")
def server():
    played = loopback.Server(play)
    yield played
    played.close()


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, server: loopback.Server) -> tuple[Path, str]:
    """A study in a folder, with its warehouse `house`, and what the command said."""
    folder = tmp_path_factory.mktemp("rehearsed")
    file = study_in(folder, server.url)
    result = done("rehearse", file, "--warehouse", folder / "house", "--answers", 12)
    return file, result.output


def told(said: str) -> dict[str, str]:
    """Way → its row of the table."""
    lines = said.partition("Agreement of raw scores")[2].splitlines()
    return {line.strip().split("  ")[0]: line for line in lines if line.strip()}


def runs(file: Path) -> dict[str, Run]:
    house = Warehouse.open(file.parent / "house")
    return {name.rpartition("-")[0].removeprefix("rehearse-tiny-"): house.run(name) for name in house.runs()}


def test_every_way_judges_the_same_labelled_answers_and_no_test_answer(rehearsed: tuple[Path, str]) -> None:
    file, _ = rehearsed
    whole = plan(file, file.parent / "house").run
    split = whole.read(whole.ref(Responses, "ingest"), ["response_id", "split"]).to_pandas()
    calibrates = set(split.loc[split["split"] == "calibration", "response_id"])
    made = runs(file)
    assert len(made) == 4
    chosen = [set(run.read(run.ref(Responses, "ingest"))["response_id"].to_pylist()) for run in made.values()]
    assert all(ids == chosen[0] for ids in chosen)
    assert (len(chosen[0]), chosen[0] <= calibrates) == (12, True)


def test_the_table_holds_what_each_way_took(rehearsed: tuple[Path, str]) -> None:
    file, said = rehearsed
    made = runs(file)
    calls = {name: run.ref(Attempts, "judge").rows for name, run in made.items()}
    ways_of = ("plain-score", "checked_score-1-criterion-a-call", "checked_score-4-criteria-a-call")
    assert [calls[name] for name in (*ways_of, "checked_score-all-in-one-call")] == [12, 72, 24, 12]
    rows = told(said)
    assert rows[PLAIN].split()[-3:] == ["12", "168", "$0.0002"]  # of calls with 11 tokens read and 3 written
    for name, took in (("1 criterion a call", 72), ("4 criteria a call", 24), ("all in one call", 12)):
        row = rows[f"checked_score, {name}"]
        assert "1.000 [1.000, 1.000]" in row
        assert row.split()[-5:-1] == ["1.000", "0", str(took), f"{14 * took:,}"]
    assert "Use checked_score, all in one call: QWK 1.000 [1.000, 1.000] on 12 answers, the best of 4 ways" in said


def test_the_plain_score_s_agreement_is_that_of_the_library(rehearsed: tuple[Path, str]) -> None:
    file, said = rehearsed
    run = runs(file)["plain-score"]
    ids = run.read(run.ref(Responses, "ingest"))["response_id"].to_pylist()
    numbers = [int(name[1:]) for name in ids]
    people = [(number * 7) % 5 for number in numbers]
    stated = [((number * 7) % 5 + number) % 5 for number in numbers]
    value = qwk(people, stated, 0, 4).value
    assert value is not None
    assert f" {value:.3f} [" in told(said)[PLAIN].replace("−", "-")


def test_a_larger_rehearsal_asks_nothing_twice_and_the_study_then_pays_only_for_the_other_answers(
    rehearsed: tuple[Path, str], server: loopback.Server
) -> None:
    file, _ = rehearsed
    before = len(server.calls)
    command("rehearse", file, "--warehouse", file.parent / "house", "--answers", 14)
    assert len(server.calls) == before + 2 * (1 + 6 + 2 + 1)
    before = len(server.calls)
    house = Warehouse.open(file.parent / "house")
    asked = {name for run in house.runs() for name in house.run(run).read(
        house.run(run).ref(Responses, "ingest"))["response_id"].to_pylist()}  # fmt: skip
    assert command("grade", file, "--warehouse", file.parent / "house").exit_code == 0
    assert len(server.calls) == before + ANSWERS - len(asked)


@pytest.fixture
def three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain score, four criteria a call, and all in one call."""
    monkeypatch.setattr(rehearse, "SIZES", {size: rehearse.SIZES[size] for size in (4, None)})


@pytest.mark.usefixtures("three_ways")
def test_a_budget_stops_it_and_the_same_command_goes_on(tmp_path: Path, server: loopback.Server) -> None:
    file = study_in(tmp_path, server.url)
    words = ("rehearse", file, "--warehouse", tmp_path / "house", "--answers", 4)
    assert "budget" in refused(*words, "--budget-usd", 0.01)
    asked = len(server.calls)
    assert command(*words, "--budget-usd", 0.01).exit_code == 2, "what was spent before counts"
    assert len(server.calls) == asked
    assert command(*words).exit_code == 0


@pytest.mark.usefixtures("three_ways")
def test_the_mailbox_asks_all_ways_in_one_wave(tmp_path: Path, server: loopback.Server) -> None:
    file, box = study_in(tmp_path, server.url), tmp_path / "box"
    words = ("batch", file, "--warehouse", tmp_path / "house", "--work", "rehearse")
    result = command(*words, "--to", box)
    sizes = []
    while "put the answers" in result.output:
        last = json.loads((box / "mailbox.json").read_text())["files"][-1]
        head, *lines = map(json.loads, (box / f"{last['name']}.jsonl").read_text().splitlines())
        sizes.append(len(lines))
        replies = [
            {"id": line["id"], "reply": reply_to(head["systems"][line["system"]], line["messages"][-1]["content"])}
            for line in lines
        ]
        (box / "answers" / f"{last['name']}.jsonl").write_text("\n".join(map(json.dumps, replies)))
        result = command(*words, "--from", box)
    assert result.exit_code == 0, result.output
    assert sizes == [20 * (1 + 1 + 1), 20]  # the last part of the second way follows
    assert "Use checked_score, all in one call" in result.output
    assert "not known" in result.output


def test_the_ways_of_other_protocols(tmp_path: Path) -> None:
    def asked(**judge: object) -> dict[str, tuple[str, int | None]]:
        study = load_study(study_in(tmp_path, "http://127.0.0.1:1/v1", **judge))
        return {name: (arm.judge.protocol, arm.judge.criteria_per_call) for name, arm in ways(study).items()}

    rulers = asked(protocol="rulers", final_score="weighted_points")
    assert [*rulers.values()] == [("dhs", None), ("rulers", 1), ("rulers", 4), ("rulers", None)]
    assert list(asked(protocol="rulers", criteria_per_call=3).values())[4:] == [("rulers", 3)]
    others = asked(protocol="pointwise")
    assert [name for name, _ in others.values()] == ["dhs", *["checked_score"] * 3, "pointwise"]
    assert others["as the study says"] == ("pointwise", None)


def test_a_study_with_worked_examples_is_tried_without_them_too(tmp_path: Path) -> None:
    study = load_study(study_in(tmp_path, "http://127.0.0.1:1/v1", examples={"count": 2}))
    shown = {(arm.judge.protocol, arm.judge.criteria_per_call): set() for arm in ways(study).values()}
    for arm in ways(study).values():
        shown[arm.judge.protocol, arm.judge.criteria_per_call].add(arm.judge.examples is not None)
    both, own = {True, False}, {True}
    whole = ("checked_score", None)
    assert shown == {("dhs", None): both, ("checked_score", 1): own, ("checked_score", 4): own, whole: both}


def test_answers_are_drawn_from_every_item_and_more_hold_fewer(tmp_path: Path) -> None:
    job = plan(study_in(tmp_path, "http://127.0.0.1:1/v1"), tmp_path / "house")
    few, more = drawn(job, 6), drawn(job, 10)
    assert (len(few), set(few) < set(more)) == (6, True)
    items = pd.Series([int(name[1:]) % 2 for name in few]).value_counts()
    assert items.to_dict() == {0: 3, 1: 3}
    assert len(drawn(job, 1_000)) == len(drawn(job, 999)) < ANSWERS


def test_without_labels_there_is_nothing_to_rehearse_on(tmp_path: Path) -> None:
    file = study_in(tmp_path, "http://127.0.0.1:1/v1")
    study = yaml.safe_load(file.read_text())
    study["split"] = {"per": "set", "calibration": 0}
    file.write_text(yaml.safe_dump(study))
    result = command("rehearse", file, "--warehouse", tmp_path / "house")
    assert (result.exit_code, "no response of the calibration split" in result.output) == (2, True)
