"""The client and the server together: rewards, faults, limits, tokens, trainers' calls."""

import asyncio
import inspect
import json
import pickle
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from builders.waiting import until
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_scene import Running, Scripted, paid, serving

from rubricflow.client import RewardClient, RewardError, _token_here, text_of
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.web.guard import TOKEN, TOKEN_FILE, TokenGate, kept_token
from rubricflow.tasks.core.web.server import Limits
from rubricflow.tasks.rewards.serve import app
from rubricflow.tasks.rewards.serve.answered import summary_of
from rubricflow.tasks.rewards.serve.waves import CONCURRENCY

HOUSE = Path(__file__).resolve().parents[4]


def rollouts(*texts, item_id="a"):
    return [{"item_id": item_id, "completion": text} for text in texts]


def status_of(url, body=None, **headers):
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


@pytest.fixture(scope="module")
def server():
    with serving(Scripted()) as started:
        yield started


def test_rewards_come_in_the_order_of_the_rollouts(server):
    answer = RewardClient(server.url).rewards(rollouts("one", "one two", "", "a b c"))
    assert answer["rewards"] == [1.0, 2.0, 0.0, 3.0]
    assert answer["summary"]["rollouts"] == 4


def test_clients_at_once_each_get_their_own_and_share_batches():
    service = Scripted(free=Event())
    with serving(service) as server, ThreadPoolExecutor(64) as threads:
        client = RewardClient(server.url, patience_s=0)
        texts = [[" ".join("w" * 1 for _ in range(n + k)) for k in range(4)] for n in range(64)]
        found = threads.map(lambda batch: client.rewards(rollouts(*batch))["rewards"], texts)
        until(lambda: server.endpoints.waves.open == 256)
        service.free.set()
        found = list(found)
    assert found == [[float(n + k) for k in range(4)] for n in range(64)]
    assert sum(service.batches) == 256
    assert len(service.batches) <= CONCURRENCY + 1


def test_a_full_server_says_when_to_come_back_and_the_client_does():
    service = Scripted(free=Event())
    with serving(service) as server, ThreadPoolExecutor(3) as threads:
        server.endpoints.waves._most_open = 8
        client, eight = RewardClient(server.url), rollouts(*["w"] * 8)
        first = threads.submit(client.rewards, eight)
        until(lambda: server.endpoints.waves.open == 8)
        status, _, headers = status_of(f"{server.url}/v1/rewards", {"rollouts": eight})
        assert status == 429
        assert int(headers["Retry-After"]) >= 1
        more = [threads.submit(client.rewards, eight) for _ in range(2)]
        until(lambda: server.endpoints.meters.requests.labels("429")._value.get() >= 3)
        service.free.set()
        assert [one.result()["rewards"] for one in (first, *more)] == [[1.0] * 8] * 3


def test_a_deadline_is_kept_whatever_the_judge_does():
    released = Event()

    class Hanging(Scripted):
        def judge(self, posed, until, is_last):
            released.wait()
            return super().judge(posed, until, is_last)

    with serving(Hanging()) as server, ExitStack() as at_last:
        at_last.callback(released.set)
        client = RewardClient(server.url, deadline_s=0.2, on_failure="none")
        answer = client.rewards(rollouts("w", "w w"))
        assert answer["rewards"] == [None, None]
        assert answer["rollouts"][0]["unscored"]["reason"] == "deadline"
        with pytest.raises(RewardError, match="deadline"):
            RewardClient(server.url, deadline_s=0.2).rewards(rollouts("w"))


def test_what_was_taken_in_is_answered_before_the_end():
    service = Scripted(free=Event())
    server = Running(service)
    with ThreadPoolExecutor(4) as threads:
        client = RewardClient(server.url, patience_s=0)
        asked = [threads.submit(client.rewards, rollouts("w" * n)) for n in range(1, 4)]
        until(lambda: server.endpoints.waves.open == 3)
        stopped = threads.submit(server.stop)
        until(lambda: server.is_ending)
        service.free.set()
        stopped.result()
        assert [future.result()["rewards"] for future in asked] == [[1.0]] * 3


def test_a_training_survives_a_restart():
    first = Running(Scripted())
    client, port = RewardClient(first.url, patience_s=120), first.port
    assert client.rewards(rollouts("w"))["rewards"] == [1.0]
    first.stop()
    later = threading.Timer(1.0, lambda: servers.append(Running(Scripted(), port=port)))
    servers: list[Running] = []
    later.start()
    assert client.rewards(rollouts("w w"))["rewards"] == [2.0]
    servers[0].stop()


def test_without_a_server_it_stops_or_goes_on_as_its_setting_says():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(RewardError, match="cannot be reached"):
        RewardClient(url, patience_s=0).rewards(rollouts("w"))
    client = RewardClient(url, patience_s=0, on_failure="none")
    logged = {}
    assert client.trl(["?"], ["w"], item_id=["a"], log_metric=logged.__setitem__) == [None]
    assert logged["rubricflow/share_unscored"] == 1.0


def test_a_judge_that_has_to_be_mended_is_said_and_makes_the_server_unready():
    service = Scripted(fault=BackendError("a wrong key"))
    with serving(service) as server:
        status, body, _ = status_of(f"{server.url}/v1/rewards", {"rollouts": rollouts("w")})
        assert (status, "a wrong key" in body) == (503, True)
        assert status_of(f"{server.url}/ready")[0] == 503
        assert status_of(f"{server.url}/health")[0] == 200
        service.fault = None
        assert RewardClient(server.url).rewards(rollouts("w"))["rewards"] == [1.0]
        assert status_of(f"{server.url}/ready")[0] == 200


def test_a_defect_is_no_secret_and_no_end():
    service = Scripted(fault=RuntimeError("secret"))
    with serving(service) as server:
        status, body, _ = status_of(f"{server.url}/v1/rewards", {"rollouts": rollouts("w")})
        assert (status, "secret" in body) == (500, False)
        service.fault = None
        assert status_of(f"{server.url}/v1/rewards", {"rollouts": rollouts("w")})[0] == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON"),
        (b"[1]", "valid"),
        ({"rollouts": []}, "rollouts"),
        ({"rollouts": [{"item_id": "a"}]}, "row 1, field 'completion'"),
        ({"rollouts": [*rollouts("w"), {"completion": "w"}]}, "row 2"),
        ({"rollouts": [{"completion": "w", "question": "?", "rubric": [{"text": "x"}]}]}, "rubric[1].weight"),
        ({"rollouts": rollouts("w", item_id="unknown")}, "row 1, field 'item_id'"),
        ({"rollouts": rollouts("w"), "deadline_s": -1}, "deadline_s"),
        ({"rollouts": [{"completion": 1, "item_id": 2}, {"completion": 3, "item_id": 4}]}, "4 errors"),
    ],
)
def test_a_wrong_request_is_told_field_and_rule(server, body, said):
    status, answer, _ = status_of(f"{server.url}/v1/rewards", body)
    assert status == 422
    assert said in json.loads(answer)["error"]


def test_elsewhere_a_token_is_asked_for():
    with pytest.raises(InputError, match="token"):
        TokenGate("0.0.0.0", 80)
    with pytest.raises(InputError, match="shorter"):
        TokenGate("0.0.0.0", 80, "short")
    token = "a-token-of-some-length"
    with serving(Scripted(), token=token) as server:
        body = {"rollouts": rollouts("w")}
        for wrong in ({}, {"Authorization": "Bearer nothing"}, {"Authorization": token}):
            assert status_of(f"{server.url}/v1/rewards", body, **wrong)[0] == 401
            assert status_of(f"{server.url}/metrics", **wrong)[0] == 401
        assert RewardClient(server.url, token=token).rewards(rollouts("w"))["rewards"] == [1.0]
        with pytest.raises(RewardError, match="token"):
            RewardClient(server.url, token="wrong").rewards(rollouts("w"))


def test_a_page_of_a_browser_that_was_led_here_is_refused(server):
    status, _, _ = status_of(f"{server.url}/v1/rewards", {"rollouts": rollouts("w")}, Host="evil.example")
    assert status == 403


def test_the_meters_count():
    with serving(Scripted()) as server:
        RewardClient(server.url).rewards(rollouts("w", "w w"))
        page = status_of(f"{server.url}/metrics")[1]
    assert 'rubricflow_requests_total{status="200"} 1.0' in page
    assert "rubricflow_rollouts_total 2.0" in page
    assert 'rubricflow_last_mean{figure="reward"} 1.5' in page


def test_openrlhf_is_answered_in_its_form(server):
    sent = {"query": ["Why? a b<|im_end|>\n", "Why? c"], "prompts": ["Why?", "Why?"], "labels": ["a", "a"]}
    status, answer, _ = status_of(f"{server.url}/openrlhf?unscored=0", sent)
    assert status == 200
    assert json.loads(answer)["rewards"] == [2.0, 1.0]
    assert set(json.loads(answer)) == {"rewards", "scores", "extra_logs"}
    assert status_of(f"{server.url}/openrlhf", sent)[0] == 422
    assert status_of(f"{server.url}/openrlhf?unscored=nan", sent)[0] == 422
    sent["labels"] = ["a"]
    assert "differ in length" in status_of(f"{server.url}/openrlhf?unscored=0", sent)[1]


def test_trl_gets_rewards_metrics_and_columns(server):
    client = RewardClient(server.url)
    metrics, columns = {}, {}
    chat = [{"role": "assistant", "content": "a b c"}]
    more = {"log_metric": metrics.__setitem__, "log_extra": columns.__setitem__, "item_id": ["a", "a"]}
    assert client.trl(["?", "?"], ["a", chat], **more) == [1.0, 3.0]
    assert metrics["rubricflow/reward"] == 2.0
    assert columns["rubricflow_flat"] == [1.0, 3.0]
    assert columns["rubricflow_reward_variance"] == [None, None]
    assert inspect.iscoroutinefunction(type(client.trl_async).__call__)
    assert asyncio.run(client.trl_async(["?"], ["a b"], item_id=["a"])) == [2.0]
    assert client.trl(["?"], ["a"], rubric=[[{"text": "x", "weight": 1}]]) == [1.0]
    with pytest.raises(ValueError, match="item_id"):
        client.trl(["?"], ["a"])
    assert client.dataset() == [{"item_id": "a", "prompt": "Why?"}]


def test_other_trainers_get_their_forms(server):
    client = pickle.loads(pickle.dumps(RewardClient(server.url)))
    info = {"item_id": "a"}
    score = asyncio.run(client.verl_score("d", "a b", None, info, unscored=0.0))
    assert score["score"] == 2.0
    assert all(type(value) is float for value in score.values())
    assert "reward_variance" not in score, "no number says that it is not known"
    assert client.verl_scores(["d"], ["a"], [None], [info], unscored=0.0)[0]["score"] == 1.0
    with pytest.raises(ValueError, match="item_id"):
        client.verl_scores(["d"], ["a"], [None], [None], unscored=0.0)
    assert client.openrlhf(unscored=0.0)(["? a b"], ["?"], ["a"])["rewards"] == [2.0]
    state = {}
    reward = client.verifiers(unscored=0.0)
    assert asyncio.run(reward(completion=[{"role": "assistant", "content": "a"}], info=info, state=state)) == 1.0
    assert state["rubricflow"]["item_id"] == "a"
    assert client.skyrl("a b c", "a", unscored=0.0)[0] == 3.0
    metrics = {}
    task = SimpleNamespace(data=SimpleNamespace(item_id="a"))
    trace = SimpleNamespace(last_reply="a b", info={}, record_metric=metrics.__setitem__)
    assert asyncio.run(client.verifiers_v1(task, trace)) == 2.0
    assert trace.info["rubricflow"]["reward"] == 2.0
    assert asyncio.run(client.verifiers_v1(task.data, trace)) == 2.0  # what verifiers 0.4 hands over


def test_the_client_needs_nothing_and_is_not_hidden(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("")
    (tmp_path / "flows.py").write_text("")
    (tmp_path / "rubricflow_client.py").write_text((HOUSE / "rubricflow/client.py").read_text())
    loaded = "{name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)"
    code = f"import rubricflow_client; print({loaded})"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(eval(found.stdout)) <= {"rubricflow_client", "__main__"}


def test_any_text_of_a_policy_can_be_sent(server):
    odd = ["\ud800 half", "\x00", "a\u2028b", "x" * 10_000, "😀", '"}', ""]
    assert len(RewardClient(server.url).rewards(rollouts(*odd))["rewards"]) == len(odd)


def test_a_completion_is_text_or_a_chat():
    assert text_of([{"role": "assistant", "content": [{"type": "text", "text": "two"}]}]) == "two"
    for bad in (None, 3, [3]):
        with pytest.raises(ValueError, match="neither"):
            text_of(bad)
    assert paid("a", 1.0)["reward"] == 1.0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("Why? because<|im_end|>\n<|endoftext|> ", "because"),
        ("Why? because</s></s>", "because"),
        ("Why?", ""),
        ("Why?<eos>", ""),
        ("Why? a <|im_end|> b", "a <|im_end|> b"),
        ("because", "because"),
    ],
)
def test_what_closes_a_turn_is_no_part_of_a_completion(query, said):
    assert app._completion(query, "Why?").strip() == said


def test_odd_ends_of_a_long_turn_are_read():
    assert app._completion("x" + " " * 300_000 + "y", "").split() == ["x", "y"]
    assert app._completion("<eos>" * 100_000, "").strip() == ""


class Liar:
    """An HTTP server that answers every request with this; counts them."""

    def __init__(self, content, status=200):
        self.asked = 0
        liar = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                liar.asked += 1
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def good_answer(*rewards):
    answers = [paid("a", reward) for reward in rewards]
    return {"rewards": list(rewards), "summary": summary_of(answers), "rollouts": answers}


def is_refused(content, count=2):
    """Whether an answer of status 200 is refused under both settings, and asked for once."""
    with Liar(content) as liar:
        with pytest.raises(RewardError):
            RewardClient(liar.url).rewards(rollouts(*["w"] * count))
        given = RewardClient(liar.url, on_failure="none").rewards(rollouts(*["w"] * count))
        assert liar.asked == 2
    assert [one["unscored"]["reason"] for one in given["rollouts"]] == ["outage"] * count
    return given["rewards"] == [None] * count


NO_REWARD = st.one_of(
    st.sampled_from([float("nan"), float("inf"), float("-inf"), 10**400, True, False, "1.0", "", "NaN"]),
    st.text(max_size=5),
    st.lists(st.floats(allow_nan=False), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(max_examples=15)
@given(NO_REWARD, st.integers(0, 1), st.sampled_from(["rewards", "reward", "flat", "gear", "false_credit", "both"]))
def test_what_is_no_number_is_no_reward(value, place, name):
    answer = good_answer(0.5, 0.25)
    if name in ("rewards", "both"):
        answer["rewards"][place] = value
    if name != "rewards":
        answer["rollouts"][place]["reward" if name == "both" else name] = value
    assert is_refused(json.dumps(answer).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"<!doctype html><title>Bad gateway</title>",
        b"",
        b"null",
        b"[0.5, 0.5]",
        b"{}",
        b'{"error": "no"}',
        b"[" * 100_000,
        *(
            json.dumps(good_answer(0.5, 0.25) | {name: value}).encode()
            for name in ("rewards", "rollouts", "summary")
            for value in (None, [0.5], [0.5] * 3, {}, 0.5)
            if (name, value) != ("summary", {})
        ),
        json.dumps(good_answer(0.5)).encode(),
        json.dumps(good_answer(0.5, 0.5, 0.5)).encode(),
        json.dumps(good_answer(0.5, 0.25) | {"rewards": [0.25, 0.5]}).encode(),
        json.dumps(good_answer(0.5, None)).encode(),
        json.dumps(good_answer(0.5, 0.25) | {"summary": {"reward": "high"}}).encode(),
        json.dumps(good_answer(0.5, 0.25) | {"summary": {"leaked": [1]}}).encode(),
    ],
)
def test_what_is_no_answer_is_refused_under_both_settings(content):
    assert is_refused(content)


def test_a_good_answer_is_none_of_these():
    with Liar(json.dumps(good_answer(0.5, -1)).encode()) as liar:
        assert RewardClient(liar.url).rewards(rollouts("w", "w"))["rewards"] == [0.5, -1]


@pytest.mark.parametrize("status", [401, 422, 500])
@pytest.mark.parametrize("setting", ["stop", "none"])
def test_a_refused_request_is_not_asked_again_whatever_the_setting(status, setting):
    with Liar(b'{"error": "your mistake"}', status) as liar:
        with pytest.raises(RewardError, match="your mistake"):
            RewardClient(liar.url, on_failure=setting).rewards(rollouts("w"))
        assert liar.asked == 1


def test_the_token_of_this_machine_is_found_and_told_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(TOKEN, raising=False)
    assert _token_here("127.0.0.1") is None
    with serving(Scripted(), token=kept_token()) as server:
        assert RewardClient(server.url).rewards(rollouts("w"))["rewards"] == [1.0]
        again = pickle.loads(pickle.dumps(RewardClient(server.url.replace("127.0.0.1", "localhost"))))
        assert again.dataset()
        sent = {"query": ["Why? a"], "prompts": ["Why?"], "labels": ["a"]}
        assert status_of(f"{server.url}/openrlhf?unscored=0", sent)[0] == 401
        assert status_of(f"{server.url}/openrlhf?unscored=0&token={kept_token()}", sent)[0] == 200
        assert status_of(f"{server.url}/v1/rewards?token={kept_token()}", {"rollouts": rollouts("w")})[0] == 401
        assert status_of(f"{server.url}/health")[0] == 200
        monkeypatch.setenv(TOKEN, "another-one-of-some-length")
        with pytest.raises(RewardError, match="401"):
            RewardClient(server.url).rewards(rollouts("w"))
    assert [_token_here(host) for host in ("rewards.example", "192.0.2.7", "127.0.0.1.evil.example")] == [None] * 3
    assert _token_here("::1") == _token_here("localhost") == (tmp_path / TOKEN_FILE).read_text()


def test_a_page_of_another_site_costs_nothing():
    service = Scripted()
    with serving(service) as server:
        body = json.dumps({"rollouts": rollouts("w")}).encode()
        assert status_of(f"{server.url}/v1/rewards", body, **{"Content-Type": "text/plain"})[0] == 415
        assert status_of(f"{server.url}/v1/rewards", body, Origin="http://evil.example")[0] == 403
        assert status_of(f"{server.url}/openrlhf?unscored=0", body, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert service.batches == []


def test_honest_clients_are_answered_while_others_leave_requests_half_said():
    halves = [b"", b"POST /v1/rew", b"POST /v1/rewards HTTP/1.1\r\nContent-Length: 50000\r\n\r\n{"]
    limits = Limits(places=8, request_s=0.5)
    with serving(Scripted(), limits=limits) as server, ExitStack() as stack:
        held = []
        for number in range(60):
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=120)))
            held[-1].sendall(halves[number % 3])
        client = RewardClient(server.url, patience_s=120)
        assert [client.rewards(rollouts("w"))["rewards"] for _ in range(5)] == [[1.0]] * 5


@pytest.mark.parametrize(("criteria", "status"), [(100, 200), (101, 422)])
def test_a_rubric_beside_its_rollout_has_at_most_so_many_criteria(criteria, status):
    rubric = [{"text": f"Says {number}", "weight": 1} for number in range(criteria)]
    body = {"rollouts": [{"question": "?", "rubric": rubric, "completion": "w"}]}
    with serving(Scripted()) as server:
        found, said, _ = status_of(f"{server.url}/v1/rewards", body)
    assert found == status
    assert status == 200 or "at most 100 items" in json.loads(said)["error"]
