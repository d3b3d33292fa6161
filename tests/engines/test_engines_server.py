"""vLLM's own server on loopback: the same model, contracts, faults for real, and the whole job through both engines."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("vllm", reason="needs vLLM in an environment of its own: make test-vllm")

from demo import write_study

from rubricflow.flows.grade import grade
from rubricflow.flows.validate import _read_study
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.budget import BudgetSpent
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Request
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge.grade import check, first_requests
from rubricflow.tasks.grading.judge.rater import Levelled
from rubricflow.tasks.grading.judge.rows import Rater

GREEDY = Sampling(temperature=0.0, seed=5, max_tokens=8000)


def no_key(name):
    return None


def served(server, **engine):
    """A backend over the server."""
    settings = {"model": "tiny", "urls": [server.url], "logprobs": 10} | engine
    return open_backend(Judge(backend="openai", engine=settings), Path(), None, no_key)


def asking(text, length=40):
    sampling = Sampling(temperature=0.8, seed=3, max_tokens=length)
    return Request(messages=(Message("user", text),), role="grade", subject=text, sampling=sampling)


def keep(request, reply):
    return Checked(reply.text, ())


def test_contracts_and_probabilities_hold_behind_the_server(folder, server):
    path = write_study(folder / "served.yaml", "openai", {"model": "tiny"}, final_score="weighted_points")
    cases = [case for _, _, cases in _read_study(path, 1, {"": None})[""].items for case in cases]
    rater = Rater("r", "llm", Levelled(served(server)), sampling=GREEDY, want_logprobs=True)
    requests = [request for case in cases for request in first_requests(case, rater)]
    for index, reply in rater.backend.answer(requests):
        jsonschema.validate(json.loads(reply.text), dict(requests[index].schema))
        assert check(requests[index], reply).value is not None
        decisions = json.loads(reply.text)["decisions"]
        for name, likely in reply.level_probabilities.items():
            assert math.fsum(likely) == pytest.approx(1)
            assert likely[decisions[name]["level"]] == max(likely)
        assert set(reply.level_probabilities) == set(decisions)


def test_the_server_says_what_the_engine_in_process_says(folder, server, engine):
    requests = [asking(f"answer {i} about heat") for i in range(6)]
    local = dict(open_backend(Judge(backend="vllm", engine=engine), folder, None, no_key).answer(requests))
    remote = dict(served(server).answer(requests))
    assert [remote[i].text for i in range(6)] == [local[i].text for i in range(6)]
    assert [remote[i].prompt_tokens for i in range(6)] == [local[i].prompt_tokens for i in range(6)]


def test_a_wrong_model_name_ends_the_run_and_says_so(server):
    with pytest.raises(BackendError, match=r"answers 404: .*does it serve the model under the name 'tinny'"):
        list(served(server, model="tinny").answer([asking("x")]))


def test_a_prompt_that_does_not_fit_is_an_error_reply(server):
    replies = dict(served(server).answer([asking("short"), asking("long " * 20_000)]))
    assert replies[1].error.startswith("too_long: ")
    assert replies[0].text


def test_one_word_takes_the_study_from_one_engine_to_the_other(folder, server, engine):
    """The whole job on the demo, with a budget that stops it once in between, in process and behind the server."""
    settings = engine | {"urls": [server.url]}
    found = {}
    for backend in ("vllm", "openai"):
        path = write_study(folder / f"study_{backend}.yaml", backend, settings, final_score="weighted_points")
        house = str(folder / f"house_{backend}")
        with pytest.raises(BudgetSpent, match="the same command continues"):
            grade(str(path), house, 2, 12_000)
        run = Warehouse.open(folder / f"house_{backend}").run(grade(str(path), house, 2))
        tables = {row: run.read(run.ref(row, "judge")).to_pylist() for row in (Gradings, Judgments, Attempts)}
        found[backend] = tables
        assert {row["status"] for row in tables[Gradings]} <= {"scored", "unscored", "precheck"}
        assert all(row["level_probabilities"] for row in tables[Judgments] if row["stated"] is not None)
        assert all(row["error"] is None and not unreadable(row) for row in tables[Attempts])
        assert any(row["stored"] for row in tables[Attempts])
        assert {row["rater_id"].partition(":")[0] for row in tables[Gradings]} == {backend}
    texts = [(folder / f"study_{backend}.yaml").read_text() for backend in ("vllm", "openai")]
    assert texts[0].replace('"backend": "vllm"', '"backend": "openai"') == texts[1]
    both = [{row["response_id"]: row["reply"] for row in found[backend][Attempts]} for backend in ("vllm", "openai")]
    assert both[0].keys() == both[1].keys()


def unreadable(attempt):
    return [violation for violation in attempt["violations"] if violation.startswith("unreadable")]


class Patient(OpenAI):
    """Waits a second at most, and remembers whom it asked about."""

    def __init__(self, engine):
        super().__init__(engine, None, sleep=lambda seconds: asyncio.sleep(min(seconds, 1.0)))
        self.asked = []

    async def _once(self, client, replica, request, heard):
        self.asked.append(request.subject)
        return await super()._once(client, replica, request, heard)


def test_a_server_killed_in_mid_run_and_started_again_is_waited_for(folder, server):
    requests = [asking(f"answer number {i}", 300) for i in range(60)]
    settings = {"model": "tiny", "urls": [server.url], "retries": 500, "concurrency": 8, "timeout_s": 60}
    backend, answered = Patient(Engine.model_validate(settings)), []
    again = threading.Thread(target=lambda: (server.kill(), server.start()))

    class Watched:
        name, model, by_subject, reads_prose, batch_size = "openai", "m", False, True, 4096

        def answer(self, asked):
            for index, reply in backend.answer(asked):
                answered.append((asked[index].subject, len(backend.asked)))
                if len(answered) == 20:
                    again.start()
                yield index, reply

    with ReplyStore(folder / "killed.sqlite") as store:
        asked = ask(requests, Watched(), store, keep)
        assert [one.value is not None for one in asked] == [True] * 60
        assert sorted(subject for subject, _ in answered) == sorted(request.subject for request in requests)
        for subject, calls in answered:
            assert subject not in backend.asked[calls:]  # nothing is asked again that was answered
        assert len(backend.asked) > 60  # what was under way when it was killed was asked again
        before = len(backend.asked)
        assert ask(requests, Watched(), store, keep)[0].attempts[0].stored
        assert len(backend.asked) == before
    again.join()
