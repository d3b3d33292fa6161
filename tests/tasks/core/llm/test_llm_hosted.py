"""Providers' own doors, and their models at clouds: what arrives there, and that the door leaves digests alone."""

import json
from dataclasses import replace

import pytest
from builders.loopback import Server, http

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.forms import form_of
from rubricflow.tasks.core.llm.opening import model_of, open_backend
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request, digest

KEY = "sk-very-secret-93f1"
REQUEST = Request(
    messages=(Message("system", "R"), Message("user", "A")), role="grade", subject="a", schema={"type": "object"}
)
ABOUT = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": None}
ANTHROPIC = ABOUT | {
    "content": [{"type": "text", "text": "{}"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 2},
}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "{}"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 2, "cachedContentTokenCount": 90},
}
DOORS = {
    "anthropic": ("claude-x", ANTHROPIC, "/v1/messages", "authorization"),
    "bedrock": ("anthropic.claude-x", ANTHROPIC, "/model/anthropic.claude-x/invoke", "authorization"),
    "vertex claude": ("claude-x", ANTHROPIC, "/publishers/anthropic/models/claude-x:rawPredict", "authorization"),
    "vertex gemini": ("gemini-x", GEMINI, "/publishers/google/models/gemini-x:generateContent", "x-goog-api-key"),
    "gemini": ("gemini-x", GEMINI, "/models/gemini-x:generateContent", "x-goog-api-key"),
}


def judge(provider, model, **more):
    engine = {"model": model, "provider": provider, "key": "MY_KEY", "timeout_s": 300, **more}
    return Judge.model_validate({"backend": "hosted", "engine": engine})


@pytest.fixture
def clouds(monkeypatch):
    """What a cloud's tools find in the environment."""
    for name in ("AWS_REGION", "CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.setenv(name, "eu-1")
    for name in ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(name, "project")


@pytest.mark.parametrize("door", DOORS)
def test_a_call_arrives_in_its_form_at_its_place_with_its_key(door, clouds, tmp_path):
    pytest.importorskip("google.genai" if "gemini" in door else "anthropic")
    provider = door.split()[0]
    model, answer, path, header = DOORS[door]
    server = Server(lambda n, body: http(200, answer, ["Content-Type: application/json"]))
    choice = judge(provider, model, urls=[server.url.removesuffix("/v1")])
    try:
        with ReplyStore(":memory:") as replies:
            backend = open_backend(choice, tmp_path, replies, {"MY_KEY": KEY}.get)
            ((_, reply),) = backend.answer([REQUEST])
    finally:
        server.close()
    assert (reply.text, reply.prompt_tokens, reply.cached_tokens) == ("{}", 100, 90)
    head = server.headers[0]
    assert path in head.splitlines()[0]
    assert any(line.lower().startswith(header) and KEY in line for line in head.splitlines())
    asked = form_of(choice.engine).body(REQUEST, choice.engine)
    came = server.calls[0] | ({"model": model} if "model" in asked else {})
    assert {name: came[name] for name in asked} == json.loads(json.dumps(asked))
    assert KEY not in json.dumps([came, repr(reply), backend.model])


def test_the_same_model_has_the_same_digest_at_every_door(tmp_path):
    beside = Judge.model_validate({"backend": "openai", "engine": {"model": "claude-x"}})
    names = {
        model_of(choice, tmp_path) for choice in (beside, judge("anthropic", "claude-x"), judge("vertex", "claude-x"))
    }
    assert len({digest(REQUEST, name) for name in names}) == 1


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_a_key_is_missed_where_something_is_asked_and_not_where_all_is_stored(provider, tmp_path):
    choice = judge(provider, "m", key="RUBRICFLOW_API_KEY")
    backend = open_backend(choice, tmp_path, None, {}.get)
    with ReplyStore(":memory:") as replies, backend.kept_open():
        replies.put_many([(digest(REQUEST, backend.model, backend.by_subject), backend.model, Reply(text="7"))])
        (found,) = ask([REQUEST], backend, replies, lambda request, reply: Checked(reply.text, ()))
        assert found.value == "7"
        other = replace(REQUEST, subject="b", messages=(Message("user", "B"),))
        with pytest.raises(BackendError, match=f"{provider}: there is no key in {provider.upper()}_API_KEY"):
            ask([REQUEST, other], backend, replies, lambda request, reply: Checked(reply.text, ()))


def test_a_provider_has_to_be_named():
    with pytest.raises(ValueError, match=r"needs engine\.provider"):
        judge("compatible", "m")


def test_a_cloud_without_settings_is_an_error_of_the_backend(tmp_path, monkeypatch):
    pytest.importorskip("anthropic")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    backend = open_backend(judge("bedrock", "m"), tmp_path, None, {"MY_KEY": KEY}.get)
    with pytest.raises(BackendError, match="bedrock: No AWS region"):
        list(backend.answer([REQUEST]))
