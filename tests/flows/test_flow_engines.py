"""The main job with a language model behind a server on loopback: the budget, the credentials, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import loopback
from builders.command import command
from tiny_study import make_study, with_judge

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.monitor.runs import credential
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Warehouse

KEY = "sk-secret-of-the-test-71"


@pytest.fixture
def server():
    """Gives every response a 2."""
    text = json.dumps({"rationale": "because", "score": 2})
    one = loopback.Server(lambda n, body: loopback.http(200, loopback.body_of(text)))
    yield one
    one.close()


def study_of(folder: Path, server, **engine) -> Path:
    path = make_study(folder)
    settings = {"model": "m", "urls": [server.url], "concurrency": 4, **engine}
    judge = {"protocol": "dhs", "backend": "openai", "engine": settings, "sampling": {"max_tokens": 20}}
    return with_judge(path, judge)


def grade(study: Path, *words: str):
    house = study.with_name("house")
    return command("grade", study, "--warehouse", house, *words)


class Killed(BaseException):
    """What ends a process at once."""


@pytest.mark.parametrize("limit", [("--token-budget", 1200), ("--budget-usd", 0.004)])
def test_a_budget_holds_for_a_run_that_is_killed_and_a_higher_one_continues_it(tmp_path, server, limit, monkeypatch):
    study, (option, most) = study_of(tmp_path, server, price={"input": 1, "output": 10}), limit
    each = 14 if option == "--token-budget" else (11 * 1 + 3 * 10) / 1e6
    kept, keep = [], ReplyStore.put_many

    def dying(store, replies):
        kept.extend(replies)
        if len(kept) > 10:
            monkeypatch.setattr(ReplyStore, "put_many", keep)
            raise Killed
        return keep(store, replies)

    monkeypatch.setattr(ReplyStore, "put_many", dying)
    with pytest.raises(Killed):
        grade(study, option, str(most))
    assert 0 < len(server.calls) * each < most
    with ReplyStore(tmp_path / "house" / "replies.sqlite") as store:
        lost = len(server.calls) + 4 - len(store)  # four at most are under way yet
    for _ in range(2):
        stopped = grade(study, option, str(most))
        assert stopped.exit_code == 2
        assert "with a higher budget the same command continues" in stopped.stderr
    assert 12 < len(server.calls) <= min(120, most / each)
    assert grade(study, option, str(10 * most)).exit_code == 0
    assert len(server.calls) <= 120 + lost  # nothing whose answer was kept is asked again
    house = Warehouse.open(tmp_path / "house")
    assert len(house.runs()) == 1
    gradings = house.run(house.runs()[0])
    assert {row["score"] for row in gradings.read(gradings.ref(Gradings, "judge")).to_pylist()} == {2.0}
    ((usd, unknown),) = ask(gradings, "SELECT sum(usd), count(*) FILTER (usd IS NULL) FROM costs").fetchall()
    # 11 tokens read and 3 written; identical answers share a call
    assert (round(usd, 9), unknown) == (round(120 * (11 * 1 + 3 * 10) / 1e6, 9), 0)
    costs = json.loads((gradings.folder / "manifest.json").read_text())["costs"]
    assert costs["table"].startswith("genai-prices ")
    assert costs["prices"] == {"m": "$1 a million tokens read, $10 written (the study)"}
    assert "$0.0049" in (gradings.folder / "report.html").read_text()


def test_dollars_without_a_price_are_refused_before_anything_is_asked(tmp_path, server):
    refused = grade(study_of(tmp_path, server), "--budget-usd", "5")
    assert refused.exit_code == 2
    assert "nobody says what 'm' costs" in refused.stderr
    assert not server.calls


def test_the_key_is_sent_and_is_in_no_file_and_no_output(tmp_path, server, monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", KEY)
    study = study_of(tmp_path, server, key="MY_KEY")
    ended = grade(study, "--limit", "3")
    assert ended.exit_code == 0
    assert all(f"Bearer {KEY}" in head for head in server.headers)
    assert KEY not in ended.output + ended.stderr + caplog.text
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 20
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]


def test_a_secret_block_without_a_server_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "")
    with pytest.raises(BackendError, match="PREFECT_API_URL names the one that is asked"):
        credential("block:judge-key")
