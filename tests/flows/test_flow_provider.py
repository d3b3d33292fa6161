"""Servers that refuse, that are small, or that nobody can read: what the command says, keeps and ends with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from builders import loopback
from builders.command import command, last_run, refused
from tiny_study import make_study, with_judge

from rubricflow.flows.plan import plan
from rubricflow.tasks.core.store.warehouse import Run

FINE = '{"decisions":{"P1":{"level":1,"evidence":[{"unit_id":"s1","quote":"answer"}],"rationale":"x"}}}'
JUDGE = {
    "protocol": "rulers",
    "repair": {"contract": 0, "semantic": 0},
    "sampling": {"max_tokens": 300},
    "backend": "openai",
}
NO = {
    "error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model.", "param": "max_tokens"}
}
LOST = {"error": {"message": "The project is suspended for now", "param": None}}
LONG = {"error": {"message": "This model's maximum context length is 64 tokens", "param": "messages"}}


def fine(n: int, body: dict) -> bytes:
    return loopback.http(200, loopback.body_of(FINE))


def picky(n: int, body: dict) -> bytes:
    return loopback.http(400, NO) if "max_tokens" in body else fine(n, body)


@pytest.fixture
def graded(tmp_path: Path):
    """Grades a small study by a server; the same call grades the same study again."""
    servers: list[loopback.Server] = []

    def grade(play, answers: int = 12):
        if not servers:
            servers.append(loopback.Server(play))
            study = make_study(tmp_path, answers)
            own = {"model": "big", "urls": [servers[0].url], "concurrency": 2, "patience_s": 0, "retries": 0}
            with_judge(study, JUDGE | {"engine": own})
        servers[0].play = play
        result = command("grade", tmp_path / "study.yaml", "--warehouse", tmp_path / "house")
        return result, servers[0]

    yield grade
    for server in servers:
        server.close()


def manifest(run: Run) -> dict:
    return json.loads((run.folder / "manifest.json").read_text())


UNREADABLE = {
    "unreadable": (
        lambda n, body: loopback.http(200, loopback.body_of("I cannot say.")),
        "the reply could not be read",
    ),
    "too long": (lambda n, body: loopback.http(400, LONG), "maximum context length is 64 tokens"),
    "no text": (lambda n, body: loopback.http(200, loopback.body_of(None)), "empty: the model gave no text"),
}


@pytest.mark.parametrize("cause", UNREADABLE)
def test_a_run_that_scored_nothing_is_reported_and_ends_with_the_reason(graded, cause, tmp_path):
    play, why = UNREADABLE[cause]
    result, server = graded(play)
    assert result.exit_code == 2
    shown = result.stdout.splitlines()
    assert any(line.startswith("Nothing was scored: ") for line in shown)
    assert why in " ".join(shown)
    assert "rubricflow: Nothing was scored: " in result.stderr
    assert (last_run(tmp_path / "house").folder / "report.html").exists()
    if cause == "unreadable":
        again, _ = graded(play)
        assert again.exit_code == 2
        assert len(server.calls) == 12


@pytest.mark.parametrize("answers", [5, 12])
def test_calls_that_are_all_refused_end_the_run_in_the_servers_words_and_are_asked_again(graded, answers):
    result, server = graded(lambda n, body: loopback.http(400, LOST), answers=answers)
    assert result.exit_code == 2
    assert "The project is suspended for now" in result.stderr
    asked = len(server.calls)
    again, _ = graded(fine)
    assert again.exit_code == 0, again.output
    assert len(server.calls) == asked + answers


def test_some_that_are_scored_are_a_run(graded):
    result, _ = graded(lambda n, body: fine(n, body) if n == 3 else loopback.http(400, LONG))
    assert result.exit_code == 0, result.output


def test_what_was_given_up_is_in_the_manifest_and_stays_there_without_asking_again(graded, tmp_path):
    result, server = graded(picky)
    assert result.exit_code == 0, result.output
    run, asked = last_run(tmp_path / "house"), len(server.calls)
    first = manifest(run)
    assert asked == 13
    assert manifest(run)["calls_changed"] == ["max_tokens as max_completion_tokens"]
    shutil.rmtree(run.folder)
    result, _ = graded(picky)
    assert result.exit_code == 0, result.output
    assert manifest(run)["calls_changed"] == ["max_tokens as max_completion_tokens"]
    assert manifest(run)["grade_digest"] == first["grade_digest"]
    assert len(server.calls) == asked


def test_options_are_typed_and_make_another_run(tmp_path, monkeypatch):
    study, taken = make_study(tmp_path), []
    monkeypatch.setattr("rubricflow.flows.grade.grade", lambda **given: taken.append(given["options"]))
    typed = {"n": "1", "reasoning_effort": "low", "x": '{"thinking": false}', "store": "false", "p": "0.5", "q": '"1"'}
    words = [word for name, value in typed.items() for word in ("--option", f" {name} ={value}")]
    assert command("grade", study, "--model", "m", "--url", "http://x/v1", *words).exit_code == 0
    (options,) = taken
    assert options == {"n": 1, "reasoning_effort": "low", "x": {"thinking": False}, "store": False, "p": 0.5, "q": "1"}

    with_judge(study, JUDGE | {"engine": {"model": "m", "urls": ["http://y/v1"], "options": {"n": 2, "user": "u"}}})
    runs = {
        name: plan(study, tmp_path / "house", model="m", url="http://x/v1", options=one)
        for name, one in {"none": None, "empty": {}, "low": options, "other": {"n": "1"}}.items()
    }
    assert len({job.run.run_id for job in runs.values()}) == 3
    assert runs["none"].run.run_id == runs["empty"].run.run_id
    engine = runs["low"].study.judge.engine
    assert engine is not None
    assert engine.options == options | {"user": "u"}


@pytest.mark.parametrize("option", ["effort", "=low", " =1"])
def test_an_option_is_a_key_and_a_value(tmp_path, option):
    study = make_study(tmp_path)
    assert option in refused("grade", study, "--model", "m", "--option", option)


def test_options_need_a_model_and_come_once(tmp_path):
    study = make_study(tmp_path)
    twice = command("grade", study, "--model", "m", "--url", "http://x/v1", "--option", "a=1", "--option", "a=2")
    alone = command("grade", study, "--option", "a=1")
    assert (twice.exit_code, alone.exit_code) == (2, 2)
    assert "a=2" in twice.stderr
    assert "--model" in alone.stderr
