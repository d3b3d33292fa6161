"""A run by a language model, recorded in one file and graded again from it: no server, the same scores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import loopback
from builders.command import command, done, last_run, refused
from builders.plain_checks import figures
from tiny_study import make_study, with_judge

from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.backends.replay import read_recording
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

JUDGE = {"protocol": "rulers", "repair": {}, "sampling": {"max_tokens": 300}}


def said(n: int, body: dict) -> bytes:
    """What the judge says, wrongly to every other first question, and what mends it; with token log-probabilities."""
    fine = '{"decisions":{"P1":{"level":1,"evidence":[{"unit_id":"s1","quote":"answer"}],"rationale":"x"}}}'
    first = body["model"] == "big"
    asked = body["messages"][-1]["content"]
    text = "I cannot say." if first and "answer 1" in asked else fine
    tokens = [{"token": c, "logprob": 0.0, "bytes": None, "top_logprobs": likely(c)} for c in text]
    return loopback.http(200, loopback.body_of(text, logprobs={"content": tokens}))


def likely(character: str) -> list[dict]:
    """Every level that is told could have been another one."""
    others = [("1", -0.3), ("0", -1.8), ("2", -2.4)] if character == "1" else [(character, 0.0)]
    return [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in others]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study, its run by two models behind a server, and the recorded replies; the server is gone."""
    folder = tmp_path_factory.mktemp("recorded")
    study = make_study(folder, 24)
    server = loopback.Server(said)
    mending = {"model": "small", "urls": [server.url]}
    engine = {"model": "big", "urls": [server.url], "logprobs": 3, "concurrency": 4}
    with_judge(study, JUDGE | {"backend": "openai", "engine": engine, "repair_engine": mending})
    done("grade", study, "--warehouse", folder / "house")
    server.close()
    done("replies", "--to", folder / "replies.parquet", "--warehouse", folder / "house")
    with_judge(study, JUDGE | {"backend": "replay", "replies": "replies.parquet"})
    return folder


def table(run: Run, row: type, *columns: str) -> list[tuple]:
    wanted = run.read(run.ref(row, "judge"), list(columns)).to_pylist()
    return sorted(tuple(map(repr, one.values())) for one in wanted)


def test_a_replay_elsewhere_gives_the_same_judgments_repairs_and_probabilities(ran: Path) -> None:
    done("grade", ran / "study.yaml", "--warehouse", ran / "elsewhere")
    then, now = last_run(ran / "house"), last_run(ran / "elsewhere")
    judged = "response_id", "criterion_id", "decision", "stated", "level_probabilities", "evidence", "action"
    assert table(now, Judgments, *judged) == table(then, Judgments, *judged)
    graded = "response_id", "score", "confidence", "signals", "status"
    assert table(now, Gradings, *graded) == table(then, Gradings, *graded)
    asked = "response_id", "attempt", "request_digest", "model", "reply", "violations", "mends", "latency_s"
    assert table(now, Attempts, *asked) == table(then, Attempts, *asked)
    assert {row["model"].partition("@")[0] for row in now.read(now.ref(Attempts, "judge")).to_pylist()} == {
        "big",
        "small",
    }
    rater = now.read(now.ref(Gradings, "judge"))["rater_id"][0].as_py()
    assert rater.startswith("replay:big@")


def test_the_file_says_where_it_comes_from(ran: Path) -> None:
    header = read_recording(ran / "replies.parquet").header
    (speaker,) = header.speakers
    assert (speaker.who, speaker.name, speaker.logprobs, speaker.sampling.max_tokens) == ("judge", "big", 3, 300)
    assert header.run_id == last_run(ran / "house").run_id
    assert header.replies >= 24
    named = command("replies", "--to", ran / "named", "--name", "Big 1.5B", "--warehouse", ran / "house")
    assert "from Big 1.5B, 0 errors" in named.output
    assert str(ran).encode() not in (ran / "named").read_bytes()


def test_another_wording_or_answer_stops_the_run_and_says_what_differs(ran: Path, tmp_path: Path) -> None:
    shutil.copytree(ran, tmp_path / "copy", ignore=shutil.ignore_patterns("house", "elsewhere"))
    study = tmp_path / "copy" / "study.yaml"
    answers = (tmp_path / "copy" / "answers.csv").read_text()
    (tmp_path / "copy" / "answers.csv").write_text(answers.replace("answer 4 ", "reply 4 "))
    assert "it holds no reply to 1 of 24 requests: 1 with another message about the response" in refused(
        "grade", study, "--warehouse", tmp_path / "house"
    )
    assert "wrong    recorded replies" in refused("validate", study, "--warehouse", tmp_path / "house")
    (tmp_path / "copy" / "answers.csv").write_text(answers)
    rubrics = tmp_path / "copy" / "rubrics.yaml"
    rubrics.write_text(rubrics.read_text().replace("motion of particles", "movement of particles"))
    said = refused("grade", study, "--warehouse", tmp_path / "house")
    assert "24 of 24 requests: 24 with other instructions" in said
    assert "rubricflow replies --to FILE" in said


def test_the_recorded_study_is_proved_without_a_server(ran: Path) -> None:
    proved = done("validate", ran / "study.yaml", "--warehouse", ran / "nowhere")
    assert "ok       recorded replies: 24 first calls are in" in proved.output


def test_what_only_replays_has_nothing_to_record(ran: Path) -> None:
    command("grade", ran / "study.yaml", "--warehouse", ran / "elsewhere")
    assert "asked no language model itself" in refused(
        "replies", "--to", ran / "again", "--warehouse", ran / "elsewhere"
    )


def test_a_model_takes_the_place_of_the_recorded_judge(ran: Path) -> None:
    server = loopback.Server(said)
    live = ["--model", "big", "--url", server.url, "--warehouse", ran / "live", "--limit", "2"]
    result = command("grade", ran / "study.yaml", *live)
    server.close()
    assert result.exit_code == 0, result.output
    run = last_run(ran / "live")
    assert run.read(run.ref(Gradings, "judge"))["rater_id"][0].as_py().startswith("openai:big@")
    assert all(call["top_logprobs"] == 20 for call in server.calls)


def test_a_server_without_a_model_is_refused(ran: Path) -> None:
    assert "name the model" in refused(
        "grade", ran / "study.yaml", "--url", "http://127.0.0.1:9/v1", "--warehouse", ran / "none"
    )


def test_a_baseline_is_graded_first_and_stands_beside_the_judge(ran: Path) -> None:
    study = ran / "study.yaml"
    foreign = study.read_text().replace("name: tiny", "name: base")
    with_judge(study, JUDGE | {"backend": "embedded"})
    (ran / "base.yaml").write_text(study.read_text().replace("name: tiny", "name: base"))
    beside = foreign.replace("name: base", "name: tiny").replace("draws: 50", "draws: 50, beside: [base.yaml]")
    study.write_text(beside)
    with figures():
        result = command("grade", study, "--warehouse", ran / "both")
    assert result.exit_code == 0, result.output
    assert "replies recorded on" not in result.output
    assert len(Warehouse.open(ran / "both").runs()) == 2
    page = (last_run(ran / "both").folder / "report.html").read_text()
    assert "base (embedded)" in page
    assert "replies were recorded on" in page
