"""Refused parameters in the error bodies that providers publish, and lengths that must not be taken for one."""

import json

import pytest
from builders.loopback import Server, echo, http
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.completions import CallParameters
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.forms.form import read_error
from rubricflow.tasks.core.llm.request import Message, Request

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}}
EXTRA = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted", "input": 1}


def openai(message, param=None, code=None):
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def unsupported(name, more=""):
    return openai(
        f"Unsupported parameter: '{name}' is not supported with this model.{more}", name, "unsupported_parameter"
    )


MCT = " Use 'max_completion_tokens' instead."
ONLY_1 = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
BOTH = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
DROP = (
    "litellm.UnsupportedParamsError: openai does not support parameters: ['{}'], for model=o1. "
    "To drop these, set `litellm.drop_params = True`"
)
LOGPROBS = {"logprobs", "top_logprobs"}
REFUSED = {  # besides those of FORMS
    "openai o-series": (400, unsupported("max_tokens", MCT), {"max_tokens"}),
    "openai gpt-5": (400, openai(ONLY_1, "temperature", "unsupported_value"), {"temperature"}),
    "openai old": (400, openai("Unrecognized request argument supplied: top_k"), {"top_k"}),
    "openai logprobs": (400, openai("You are not allowed to request logprobs from this model", "logprobs"), LOGPROBS),
    "openai schema": (
        400,
        openai(
            "Invalid schema for response_format 'artifact': In context=(), 'additionalProperties' is required",
            "response_format",
        ),
        {"response_format"},
    ),
    "azure old": (400, openai("This model does not support the 'logprobs' parameter."), LOGPROBS),
    "anthropic": (400, {"type": "error", "error": {"type": "invalid_request_error", "message": BOTH}}, {"top_p"}),
    "gemini logprobs": (
        400,
        {"error": {"code": 400, "message": "Logprobs is not enabled for models/gemini-2.5-pro"}},
        LOGPROBS,
    ),
    "mistral": (
        422,
        {"object": "error", "message": {"detail": [EXTRA | {"loc": ["body", "seed"]}]}, "param": None},
        {"seed"},
    ),
    "together": (400, openai("5 is greater than the maximum of 1 - 'logprobs'", "logprobs"), LOGPROBS),
    "groq schema": (
        400,
        openai(
            "This model does not support response format `json_schema`. See supported models at the guide",
            "response_format",
        ),
        {"response_format"},
    ),
    "deepseek": (400, openai("This response_format type is unavailable now"), {"response_format"}),
    "xai": (
        400,
        {"code": "Client specified an invalid argument", "error": "Argument not supported on this model: topLogprobs"},
        LOGPROBS,
    ),
    "vllm gaudi": (
        400,
        {
            "error": {
                "message": "Gaudi doesn't support logprobs. Please remove 'logprobs'/'top_logprobs' from your request",
                "param": None,
            }
        },
        LOGPROBS,
    ),
    "litellm 500": (500, openai("ollama does not support parameters: {'seed': 1}, for model=llama3:latest."), {"seed"}),
    "ark": (
        400,
        openai(
            "The parameter `response_format.type` specified in the request are not valid: invalid value: `json_schema`",
            "response_format.type",
        ),
        {"response_format"},
    ),
}


def asked(play, **engine):
    server = Server(play)
    requests = [
        Request(messages=(Message("user", str(n)),), role="grade", subject="r", schema=SCHEMA, want_logprobs=True)
        for n in range(12)
    ]
    settings = {"model": "m", "urls": [server.url], "logprobs": 4, "patience_s": 0, "retries": 0} | engine
    backend = OpenAI(Engine.model_validate(settings), None)
    replies = dict(backend.answer(requests))
    server.close()
    return server, replies


@pytest.mark.parametrize("provider", REFUSED)
def test_a_refused_parameter_is_told_from_the_body_and_refused_once(provider, caplog):
    code, body, names = REFUSED[provider]
    server, replies = asked(lambda n, call: http(code, body) if names & call.keys() else echo(n, call))
    assert all(reply.text is not None for reply in replies.values())
    assert len(server.calls) == 13
    assert names == server.calls[0].keys() - server.calls[-1].keys()
    assert all(all(name in reply.changed for name in names) for reply in replies.values())
    assert len(caplog.records) == len(names)


def test_a_renamed_parameter_keeps_its_value():
    server, replies = asked(
        lambda n, call: http(400, unsupported("max_tokens", MCT)) if "max_tokens" in call else echo(n, call)
    )
    assert {call.get("max_completion_tokens") for call in server.calls[1:]} == {1024}
    assert replies[0].changed == "max_tokens as max_completion_tokens"


LENGTHS = {
    "openai": openai(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens.",
        "messages",
        "context_length_exceeded",
    ),
    "vllm": openai(
        "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 512 tokens "
        "and your request has 300 input tokens",
        "max_tokens",
    ),
    "vllm negative": {"object": "error", "message": "max_tokens must be at least 1, got -186.", "code": 400},
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_ctx": 256,
        }
    },
    "sglang": {
        "object": "error",
        "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "code": 400,
    },
    "anthropic": {"type": "error", "error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}},
    "gemini": [
        {
            "error": {
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
            }
        }
    ],
    "mistral": {
        "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context "
        "length"
    },
    "groq": openai("Please reduce the length of the messages or completion.", "messages", "context_length_exceeded"),
    "fireworks": openai("The prompt is too long: 9000, model maximum context length: 8191"),
    "together": openai(
        "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 512 `max_new_tokens`"
    ),
}


@pytest.mark.parametrize("body", LENGTHS.values(), ids=LENGTHS)
def test_a_length_is_no_refusal(body, caplog):
    _, replies = asked(lambda n, call: http(400, body))
    assert {reply.error.partition(":")[0] for reply in replies.values()} == {"too_long"}
    assert not caplog.records


@pytest.mark.parametrize("body", [body for _, body, _ in REFUSED.values()], ids=REFUSED)
def test_a_refusal_is_no_length(body):
    assert not read_error(json.dumps(body).encode()).is_too_long


def test_a_call_has_its_key_again_after_a_restart_and_another_one_with_other_parameters():
    def keys(play):
        server, _ = asked(play, concurrency=1)
        heads = [head.lower() for head in server.headers]
        return [line for head in heads for line in head.splitlines() if line.startswith("idempotency-key: ")]

    first, again = keys(echo), keys(echo)
    assert first == again
    assert len({*first}) == 12
    body = unsupported("temperature")
    changed = keys(lambda n, call: http(400, body) if "temperature" in call else echo(n, call))
    assert changed[0] == first[0]
    assert not {*changed[1:]} & {*first}


NAMES = {
    "temperature": 0.0,
    "top_p": 1.0,
    "seed": 42,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "max_tokens": 1024,
    "response_format": {"type": "json_schema"},
}
FORMS = {
    "param": lambda name: openai(f"'{name}' is not supported with this model.", name),
    "quoted": lambda name: openai(f"Unsupported parameter: '{name}' is not supported with this model."),
    "bare": lambda name: openai(f"Unrecognized request argument supplied: {name}"),
    "ticked": lambda name: {"error": {"message": f"`{name}` is not supported with this model"}},
    "loc": lambda name: {"detail": [EXTRA | {"loc": ["body", name]}]},
    "loc in text": lambda name: {"message": json.dumps({"detail": [EXTRA | {"loc": ["body", name]}]})},
    "loc in python": lambda name: {"message": str([EXTRA | {"loc": ("body", name)}])},
    "gemini": lambda name: [{"error": {"message": f'Unknown name "{name}": Cannot find field.'}}],
    "fireworks": lambda name: {"error": {"message": f"Extra inputs are not permitted, field: '{name}', value: 1"}},
    "short": lambda name: {"message": f"'{name}' is not supported"},
    "litellm": lambda name: openai(DROP.format(name)),
    "routed": lambda name: {"error": {"message": "no", "metadata": {"raw": json.dumps(FORMS["quoted"](name))}}},
}
ANSWERS = (
    "The temperature of the water rises when it is not supported by ice. ",
    "A plant cannot use the seed that is not allowed to grow here. ",
    'It says "seed" unsupported and `top_p` is not permitted here. ',
    "Unsupported parameter: 'temperature' is not supported with this model. ",
    'See {"error": {"param": "seed", "message": "seed is not supported"}} for it. ',
    "[{'type': 'extra_forbidden', 'loc': ('body', 'min_p'), 'msg': 'Extra inputs are not permitted'}] was said. ",
    "The prompt is too long, please reduce the length of the messages. ",
    'A model\'s maximum context length is exceeded by 9000 tokens.\nNew line, \\neq and "quotes". ',
    "max_tokens must be at least 1, got -5; response_format is unavailable now. ",
    "Nothing of that kind stands in this ordinary sentence about heat. ",
    "`max_tokens` is not supported by it, 'temperature' is not supported either, nor is the argument supplied: min_p. ",
)
OTHERS = [text for number, text in enumerate(ANSWERS) if number not in (3, 5)]
"""Who writes a server's own sentence is not told from it."""
COMPLAINTS = (
    "Content not supported: {}",
    "The request was blocked by our content policy, which does not allow '{}' in messages",
    'Unknown error while reading "{}"',
    "Invalid 'messages[1].content': {} (not permitted)",
)


def gives_up(body, content):
    """Which parameters an error takes away from a call, and whether it reads as too long."""
    parameters = CallParameters({})
    sent = {"model": "m", "messages": [{"role": "user", "content": content}]} | NAMES
    said = read_error(body if isinstance(body, bytes) else json.dumps(body).encode(), sent["messages"])
    parameters.gives_up("u", sent, said, "")
    return sent.keys() - parameters.applied(dict(sent)).keys(), said.is_too_long


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(sorted(FORMS)), st.lists(st.sampled_from(OTHERS), max_size=4))
def test_exactly_the_refused_parameter_is_given_up_whatever_is_asked(name, form, answer):
    body = FORMS[form](name)
    assert gives_up(body, "Grade this answer:\n" + "".join(answer)) == ({name}, False)


@given(
    st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4, unique=True),
    st.sampled_from(COMPLAINTS),
    st.sampled_from(["message", "param", "text", "escaped", "list"]),
    st.data(),
)
def test_what_a_student_wrote_refuses_nothing_in_whole_or_in_part(answer, complaint, form, data):
    written = "".join(answer)
    start = data.draw(st.integers(0, len(written) - 45))
    end = data.draw(st.integers(start + 45, len(written)))
    message = complaint.format(written[start:end])
    body = {
        "message": {"error": {"message": message}},
        "param": openai(message, "messages"),
        "text": message.encode(),
        "escaped": {"message": json.dumps({"content": written[start:end], "why": "not supported"})},
        "list": [{"error": {"message": message, "details": [{"description": message}]}}],
    }[form]
    assert gives_up(body, "Grade this answer:\n" + written) == (set(), False)
