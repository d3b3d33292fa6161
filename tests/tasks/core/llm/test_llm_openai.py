"""The client of OpenAI-compatible servers against a server on loopback that misbehaves in every way they do."""

import asyncio
import itertools
import logging
import threading
import time
import traceback
from contextlib import contextmanager

import pytest
from builders.loopback import DROP, HANG, Server, Time, body_of, echo, http

from rubricflow.tasks.core.contracts.errors import BackendError, StoppedError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.llm.backend import kept_open
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.backends.pace import Pace
from rubricflow.tasks.core.llm.budget import Budgeted, Cap
from rubricflow.tasks.core.llm.calls import Watched
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import BLANKS

KEY = "sk-very-secret-93f1"
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}}


def asking(text="q", **more):
    return Request(messages=(Message("system", "s"), Message("user", str(text))), role="grade", subject="r", **more)


def client(*servers, key=None, time=None, **engine):
    """A backend over servers; a pause only moves its clock."""
    time = time or Time()
    settings = {"model": "m", "urls": [server.url for server in servers], "timeout_s": 300, "patience_s": 0} | engine
    return OpenAI(Engine.model_validate(settings), key, time, time.sleep)


def answers(backend, requests):
    """Replies in the order of the requests; every index came once."""
    arrived = list(backend.answer(requests))
    assert sorted(index for index, _ in arrived) == list(range(len(requests)))
    return [reply for _, reply in sorted(arrived, key=lambda one: one[0])]


@contextmanager
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


# --- what is asked and read


def test_the_body_says_all_that_was_asked_for(serve):
    server = serve()
    sampling = Sampling(temperature=0.3, top_p=0.9, top_k=40, seed=7, max_tokens=55)
    backend = client(server, logprobs=4, options={"repetition_penalty": 1.1})
    answers(backend, [asking("hello", schema=SCHEMA, sampling=sampling, want_logprobs=True)])
    assert server.calls == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}],
            "temperature": 0.3,
            "top_p": 0.9,
            "top_k": 40,
            "seed": 7,
            "max_tokens": 55,
            "logprobs": True,
            "top_logprobs": 4,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "artifact", "strict": True, "schema": SCHEMA},
            },
            "min_p": 0.0,
            "repetition_penalty": 1.1,
            "stop": [*BLANKS],
        }
    ]


def test_what_was_not_asked_for_is_not_sent(serve):
    server = serve()
    answers(client(server, options={"max_completion_tokens": 9}), [asking()])
    assert set(server.calls[0]) == PINS.keys() | {
        "model",
        "messages",
        "temperature",
        "top_p",
        "seed",
        "max_completion_tokens",
    }


# --- settings of the model's own that are kept out


PINS = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop": [*BLANKS]}


def refusing(answer, *known):
    """A server that refuses fields it does not know in the words of `answer(name)`, the first one of each body."""

    def says(n, body):
        unknown = [name for name in reversed(PINS) if name in body and name not in known]
        return http(*answer(unknown[0], body)) if unknown else echo(n, body)

    return says


def unknown(name, body):
    """The words of OpenAI's own server; those of others are in test_llm_parameters."""
    return 400, {"error": {"message": f"Unknown parameter: '{name}'.", "param": name, "code": "unknown_parameter"}}


@pytest.mark.parametrize("known", [(), ("top_k",), ("top_k", "repetition_penalty")])
def test_a_field_that_a_server_does_not_know_is_given_up_once(serve, caplog, known):
    server = serve(refusing(unknown, *known))
    backend = client(server, concurrency=1)
    assert [reply.text for reply in answers(backend, [asking("a"), asking("b")])] == ["a", "b"]
    assert {name for name in PINS if name in server.calls[-1]} == {*known}
    assert len(server.calls) == 2 + len(PINS) - len(known)
    assert [name for name in PINS if f"'{name}'" in caplog.text] == [name for name in PINS if name not in known]
    assert len(caplog.records) == len(PINS) - len(known)


def test_an_option_of_the_study_is_not_given_up(serve):
    name = "repetition_penalty"
    server = serve(refusing(unknown, *({*PINS} - {name})))
    (reply,) = answers(client(server, options={name: 1.0}), [asking()])
    assert reply.error.startswith(f"refused: {server.url} answers 400: Unknown parameter: '{name}'")
    assert len(server.calls) == 1


def test_a_body_repeated_in_an_error_about_something_else_gives_nothing_up(serve, caplog):
    def says(n, body):
        detail = [{"type": "extra_forbidden", "loc": ["body", "messages", 0], "msg": "Extra", "input": body}]
        return http(422, {"detail": detail})

    server = serve(says)
    (reply,) = answers(client(server), [asking()])
    assert (reply.error.startswith("refused"), len(server.calls), caplog.records) == (True, 1, [])


def test_a_server_that_refuses_them_for_ever_ends_it(serve):
    server = serve(lambda n, body: http(*unknown("top_k", body)))
    (reply,) = answers(client(server), [asking()])
    assert (reply.error.startswith("refused"), len(server.calls)) == (True, 2)


def test_tokens_come_with_their_alternatives_and_whole_characters(serve):
    euro = "€".encode()
    tokens = [
        {"token": "x", "bytes": list(euro[:2]), "logprob": -0.5, "top_logprobs": []},
        {"token": "y", "bytes": list(euro[2:]), "logprob": -0.1, "top_logprobs": []},
        {
            "token": "1",
            "bytes": None,
            "logprob": -0.2,
            "top_logprobs": [{"token": "1", "logprob": -0.2}, {"token": "2", "logprob": -1.7}],
        },
    ]
    server = serve(lambda n, body: http(200, body_of("€1", logprobs={"content": tokens})))
    (reply,) = answers(client(server, logprobs=2), [asking(want_logprobs=True)])
    assert [tuple(token) for token in reply.token_logprobs] == [
        ("", -0.5, ()),
        ("€", -0.1, ()),
        ("1", -0.2, (("1", -0.2), ("2", -1.7))),
    ]


def test_half_a_surrogate_pair_and_control_tokens_of_a_student_are_text(serve):
    server = serve()
    (reply,) = answers(client(server), [asking("a \ud800 b <|im_start|>system [INST] <s> x < y [1]")])
    assert server.asked == ["a \ufffd b <\u200b|im_start|>system [\u200bINST] <\u200bs> x < y [1]"]
    assert reply.text == "a \ufffd b <|im_start|>system [INST] <s> x < y [1]"


# --- many at once


def test_no_more_are_in_flight_than_allowed_and_all_are_answered(serve):
    server = serve(pause=0.005)
    with no_thread_is_left():
        replies = answers(client(server, concurrency=7), [asking(i) for i in range(60)])
    assert [reply.text for reply in replies] == [str(i) for i in range(60)]
    assert server.most == 7
    assert len(server.calls) == 60


def test_each_reply_is_given_as_it_arrives_and_whoever_stops_waiting_ends_the_loop(serve):
    def play(n, body):
        return echo(n, body) if body["messages"][-1]["content"] == "fast" else HANG

    server = serve(play)
    with no_thread_is_left():
        arriving = client(server).answer([asking("slow"), asking("fast")])
        index, reply = next(arriving)
        assert (index, reply.text) == (1, "fast")
        arriving.close()


# --- faults that pass


def storm(times, code=429, headers=(), body=None):
    """The first so many calls are turned away."""
    return lambda n, call: http(code, body or {"error": {"message": "later"}}, headers) if n < times else echo(n, call)


PASSING = {
    "429": storm(30),
    "408": storm(30, 408),
    "500": storm(30, 500),
    "503 without JSON": storm(30, 503, body=b"<html>busy</html>"),
    "dropped": lambda n, call: DROP if n % 3 else echo(n, call),
    "cut off": lambda n, call: http(200, body_of("x"), cut=9) if n % 3 else echo(n, call),
    "not JSON": lambda n, call: http(200, b"<html>") if n % 3 else echo(n, call),
    "no choices": lambda n, call: http(200, {"choices": []}) if n % 3 else echo(n, call),
    "not HTTP": lambda n, call: b"\x00\xff nonsense\r\n\r\n" if n % 3 else echo(n, call),
    "text is a number": lambda n, call: http(200, body_of(3)) if n % 3 else echo(n, call),
}


@pytest.mark.parametrize("play", PASSING.values(), ids=PASSING)
def test_what_passes_is_waited_out_and_everything_answered_once(serve, play):
    server = serve(play)
    with no_thread_is_left():
        replies = answers(client(server, concurrency=10, retries=20), [asking(i) for i in range(20)])
    assert [reply.text for reply in replies] == [str(i) for i in range(20)]
    assert server.most <= 10


def test_pauses_grow_and_the_server_s_own_wish_counts(serve):
    time = Time()
    answers(client(serve(storm(4, 500)), time=time), [asking()])
    assert [0.5 <= pause / 2**n <= 1 for n, pause in enumerate(time.pauses)] == [True] * 4
    time = Time()
    answers(client(serve(storm(3, headers=["Retry-After: 17"])), time=time), [asking()])
    assert [17 <= pause <= 18 for pause in time.pauses] == [True] * 3


def test_a_date_to_come_back_at_is_read(serve):
    time = Time()
    answers(client(serve(storm(1, headers=["Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"])), time=time), [asking()])
    assert [0 <= pause <= 1 for pause in time.pauses] == [True]


def test_a_full_server_that_takes_others_is_waited_for_beyond_the_tries(serve):
    refused = []

    def play(n, call):
        """Takes one in three, whoever comes."""
        refused.append(n % 3 != 0)
        return http(429, {}) if refused[-1] else echo(n, call)

    replies = answers(client(serve(play), concurrency=8, retries=1), [asking(i) for i in range(30)])
    assert [reply.text for reply in replies] == [str(i) for i in range(30)]
    assert sum(refused) > 30


# --- faults of a replica


@pytest.mark.parametrize("play", [storm(10**6, 500), lambda n, call: DROP], ids=["500", "dropped"])
def test_a_failing_replica_is_left_aside_and_the_other_answers(serve, play):
    bad, good, time = serve(play), serve(), Time()
    replies = answers(client(bad, good, concurrency=2, time=time), [asking(i) for i in range(30)])
    assert [reply.text for reply in replies] == [str(i) for i in range(30)]
    assert len(bad.calls) <= 2  # the clock stands still, so it stays aside
    assert time.pauses == []


def test_a_replica_that_is_down_is_left_aside(serve):
    gone, good = serve(), serve()
    gone.close()
    replies = answers(client(gone, good), [asking(i) for i in range(10)])
    assert [reply.text for reply in replies] == [str(i) for i in range(10)]


def test_a_replica_that_failed_is_asked_again_later(serve):
    shaky, good, time = serve(storm(1, 500)), serve(pause=0.01), Time()
    backend = client(shaky, good, time=time, concurrency=1)
    answers(backend, [asking("a")])
    time.now += 11
    answers(backend, [asking("b")])
    assert (shaky.asked, good.asked) == (["a", "b"], ["a"])


# --- faults that do not pass


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (401, r"answers 401: bad key \(there is no key in RUBRICFLOW_API_KEY\)"),
        (404, r"answers 404: bad key \(does it serve the model under the name 'm'\?\)"),
    ],
)
def test_a_wrong_key_or_model_ends_the_run_at_once(serve, code, said):
    server = serve(lambda n, call: http(code, {"error": {"message": "bad key"}}))
    with no_thread_is_left(), pytest.raises(BackendError, match=said):
        list(client(server, concurrency=3).answer([asking(i) for i in range(50)]))
    assert len(server.calls) <= 3


@pytest.mark.parametrize(
    ("play", "said"),
    [
        (storm(10**6), r"answers 429: later \(tried 4 times\)"),
        (None, r"cannot be reached: .*\(tried 4 times\)"),
        (storm(10**6, 500), r"answers 500: later \(tried 4 times\)"),
    ],
    ids=["full", "down", "broken"],
)
def test_a_server_that_stays_away_ends_the_run_with_what_was_kept(serve, play, said):
    server = serve(play or echo)
    if play is None:
        server.close()
    with no_thread_is_left(), pytest.raises(BackendError, match=said) as caught:
        list(client(server, retries=3).answer([asking(i) for i in range(20)]))
    assert "the same command continues" in str(caught.value)


def test_a_server_that_refuses_every_request_ends_the_run(serve):
    server = serve(lambda n, call: http(400, {"error": "response_format is not known here"}))
    with pytest.raises(BackendError, match="response_format is not known here"):
        list(client(server).answer([asking(i) for i in range(20)]))


WHOLE = {"anyOf": [{"properties": {"a": {"enum": [0]}}}, {"properties": {"a": {"enum": [1, 2]}}}]}
SCHEMA_REFUSED = [
    "Invalid schema for response_format 'artifact': In context=('properties', 'a'), 'maxLength' is not permitted.",
    "Invalid schema: Objects provided via 'anyOf' must not share identical first keys. Consider adding a key.",
    "The provided JSON schema contains features not supported by xgrammar.",
    "Failed to convert the grammar",
]


@pytest.mark.parametrize("message", SCHEMA_REFUSED)
def test_a_server_that_refuses_the_whole_contract_is_held_to_a_plain_one_and_it_is_said_once(serve, caplog, message):
    def says(n, call):
        whole = "anyOf" in call["response_format"]["json_schema"]["schema"]
        return http(400, {"error": {"message": message}}) if whole else echo(n, call)

    server = serve(says)
    replies = answers(client(server, concurrency=8), [asking(i, schema=WHOLE) for i in range(20)])
    assert [reply.text for reply in replies] == [str(i) for i in range(20)]
    assert len(server.calls) <= 28
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_server_that_refuses_any_contract_is_not_asked_for_ever(serve):
    server = serve(lambda n, call: http(400, {"error": {"message": "response_format is unavailable"}}))
    (reply,) = answers(client(server), [asking(schema=WHOLE)])  # whole, plain, and none
    assert (reply.error.startswith("refused"), len(server.calls)) == (True, 3)


def test_a_prompt_that_is_too_long_costs_no_contract(serve):
    message = {"error": {"message": "This model's maximum context length is 2048 tokens."}}
    server = serve(lambda n, call: http(400, message) if n == 0 else echo(n, call))
    answers(client(server, concurrency=1), [asking(i, schema=WHOLE) for i in range(2)])
    assert ["anyOf" in call["response_format"]["json_schema"]["schema"] for call in server.calls] == [True, True]


# --- pace


def begun(requests, tokens, sizes, count):
    """Times at which requests may begin."""
    time, times = Time(), []

    async def go():
        pace = Pace(requests, tokens, time, time.sleep)
        for _ in range(count):
            request = asking("x" * (3 * sizes - 4), sampling=Sampling(max_tokens=100))  # 's' and the halves: 3 a token
            await pace.admit(request)
            times.append(time.now)

    asyncio.run(go())
    return times


def test_a_request_larger_than_a_minute_s_tokens_has_a_minute_of_its_own():
    times = begun(None, 50, 10, 4)
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times)] == [60, 60, 60]


def most_within_a_minute(times):
    return max(sum(start <= other < start + 60 for other in times) for start in times)


def test_no_minute_has_more_requests_than_allowed():
    times = begun(7, None, 10, 30)
    assert most_within_a_minute(times) == 7
    assert times[-1] == pytest.approx(240, abs=1)


def test_no_minute_has_more_tokens_than_allowed():
    times = begun(None, 1000, 101, 20)  # 200 tokens each
    assert most_within_a_minute(times) == 5


def test_the_server_s_count_takes_the_place_of_the_estimate():
    time = Time()
    pace = Pace(None, 1000, time, time.sleep)
    request = asking("x" * 899, sampling=Sampling(max_tokens=1))
    pace.learn(request, Reply(text="", prompt_tokens=90))

    async def go():
        for _ in range(10):
            await pace.admit(request)

    asyncio.run(go())
    assert time.now == 0.0


def test_the_limits_hold_through_the_client(serve):
    time = Time()
    answers(client(serve(), time=time, requests_per_minute=6), [asking(i) for i in range(13)])
    assert time.now >= 120


# --- the key


def test_the_key_is_sent_and_shown_nowhere(serve, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server = serve(lambda n, call: http(400 if n == 0 else 401, {"error": {"message": f"key {KEY} is odd " * 40}}))
    backend = client(server, key=KEY, concurrency=1)
    arriving = backend.answer([asking(1), asking(2)])
    _, reply = next(arriving)
    with pytest.raises(BackendError) as caught:
        next(arriving)
    assert all(f"Authorization: Bearer {KEY}" in head for head in server.headers)
    shown = [reply.error, repr(reply), repr(backend), str(backend), backend.model, caplog.text, *capfd.readouterr()]
    shown += traceback.format_exception(caught.value)
    error = caught.value
    while error is not None:
        shown += [str(error), repr(error), repr(getattr(error, "request", None))]
        error = error.__cause__ or error.__context__
    assert not [text for text in shown if KEY in text]
    assert "key *** is odd" in reply.error
    assert len(reply.error) < 500


@pytest.mark.parametrize("play", [lambda n, call: DROP, lambda n, call: b"HTTP/1.1 nonsense\r\n\r\n"])
def test_the_key_is_in_no_chain_of_errors_of_a_broken_connection(serve, play):
    with pytest.raises(BackendError) as caught:
        list(client(serve(play), key=KEY, retries=0).answer([asking(i) for i in range(8)]))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_without_a_key_no_header_is_sent(serve):
    server = serve()
    answers(client(server, key=None), [asking()])
    assert "authorization" not in server.headers[0].lower()


def test_a_key_with_strange_characters_is_refused_without_being_shown():
    with pytest.raises(BackendError) as caught:
        OpenAI(Engine(model="m"), "sk-\nabc")
    assert "abc" not in str(caught.value)


# --- identity


def test_the_identity_names_what_can_change_a_reply_and_not_where_it_is_served():
    def model(**engine):
        return OpenAI(Engine.model_validate({"model": "org/m"} | engine), None).model

    assert model() == "org/m"
    assert model(urls=["http://x/v1"], key="OTHER", concurrency=1) == model()
    others = [model(options={"top_k": 3}), model(logprobs=5), model(model="/weights/org/m"), model(model="other")]
    assert len({model(), *others}) == 5
    assert not [name for name in others if "weights" in name]


def test_time_is_measured(serve):
    server = serve(pause=0.02)
    backend = OpenAI(Engine(model="m", urls=(server.url,)), None, time.monotonic)
    (reply,) = answers(backend, [asking()])
    assert reply.latency_s >= 0.02


def test_connections_are_kept_between_waves_while_it_is_kept_open():
    server = Server()
    backend, before, loops = client(server), set(threading.enumerate()), set()
    with kept_open(Watched(backend, lambda request, reply: None)):
        for wave in range(3):
            assert len(list(backend.answer([asking(f"{wave} {number}") for number in range(4)]))) == 4
            loops.add(id(backend._shared.loop))
    server.close()
    assert len(loops) == 1
    assert set(threading.enumerate()) <= before


def listed(**fields):
    return lambda: http(200, {"object": "list", "data": [{"id": "m"} | fields]})


@pytest.mark.parametrize("name", ["max_model_len", "context_length", "max_context_length", "context_window"])
def test_what_does_not_fit_is_told_before_anything_is_asked(serve, caplog, name):
    told_after = []

    def play(n, body):
        told_after.append(len(caplog.records))
        return echo(n, body)

    server = serve(play)
    server.models = listed(**{name: 1100})
    backend = client(server)
    requests = [asking("short"), asking("long " * 200)]
    answers(backend, requests)
    answers(backend, requests)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("1 of 2 prompts do not fit into the context of 'm', 1,100 tokens")
    assert (min(told_after), server.looks) == (1, 1)


def test_a_look_at_the_context_costs_no_budget(serve):
    server = serve(echo)
    server.models = listed(max_model_len=100_000)
    cap = Cap(10**6)
    found = list(Budgeted(client(server), {"tokens": cap}).answer([asking(str(n)) for n in range(5)]))
    spent = sum((reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for _, reply in found)
    assert sorted(index for index, _ in found) == list(range(5))
    assert (cap.spent, cap.reserved) == (spent, 0)


@pytest.mark.parametrize(
    "models",
    [
        listed(),
        listed(max_model_len="many"),
        listed(max_model_len=100_000),
        lambda: http(200, {"data": [{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 1}]}),
        lambda: http(200, [1]),
        lambda: http(200, b"<html>"),
        lambda: http(500, {}),
    ],
)
def test_a_list_of_models_that_tells_nothing_does_no_harm(serve, caplog, models):
    server = serve()
    server.models = models
    assert [reply.text for reply in answers(client(server), [asking("long " * 200)])] == ["long " * 200]
    assert not caplog.records


def test_a_server_that_loads_its_model_is_waited_for_until_patience_is_over(serve, caplog):
    time = Time()
    ready_s = 280.0
    loading = http(503, {"error": {"message": "Loading model"}})
    server = serve(lambda n, body: echo(n, body) if time.now >= ready_s else loading)
    server.models = lambda: listed(max_model_len=10)() if time.now >= ready_s else loading
    backend = client(server, time=time, retries=0, patience_s=300, concurrency=1)
    assert [reply.text for reply in answers(backend, [asking("a"), asking("b")])] == ["a", "b"]
    assert backend.absent is None
    assert len(caplog.records) == 1

    impatient = client(server, time=Time(), retries=0, patience_s=100, concurrency=1)
    time.now = 0.0
    with pytest.raises(StoppedError, match="503"):
        answers(impatient, [asking("a")])


def test_a_server_that_is_not_there_is_waited_for_and_named(serve):
    gone = serve()
    gone.close()
    time, seen = Time(), []
    backend = client(gone, time=time, retries=0, patience_s=100, concurrency=1)
    sleep = backend._sleep

    async def slept(seconds):
        seen.append((time.now, backend.absent))
        await sleep(seconds)

    backend._sleep = slept
    with pytest.raises(StoppedError, match="cannot be reached"):
        answers(backend, [asking()])
    assert {absent for _, absent in seen} == {gone.url}
    assert 80 < seen[-1][0] < 100 <= time.now


def test_text_in_parts_is_joined_and_thinking_is_no_reply(serve):
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "4?"}]}]
    texts = [{"type": "text", "text": '{"score":'}, {"type": "text", "text": "3}"}]

    def said(content, **more):
        return http(200, {"choices": [{"message": {"content": content} | more}]})

    plays = [
        said(parts + texts),
        said(parts),
        said(None, reasoning_content='{"score": 4}'),
        said("", reasoning="4"),
        said([{"type": "image"}, "x"]),
    ]
    server = serve(lambda n, body: plays[int(body["messages"][-1]["content"])])
    replies = answers(client(server, retries=0), [asking(str(n)) for n in range(5)])
    assert [reply.text for reply in replies] == ['{"score":3}', None, None, "", None]
    kinds = [reply.error and reply.error.partition(":")[0] for reply in replies]
    assert kinds == [None, "empty", "empty", None, "broken"]
