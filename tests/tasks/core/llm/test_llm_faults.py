"""What is said and kept when a provider fails: scripted providers behind the clients that are used for the real ones.

`python tests/tasks/core/llm/test_llm_faults.py` prints the table of docs/providers.md.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from builders.loopback import DROP, HANG, Time, http

from rubricflow.tasks.core.contracts.errors import StoppedError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.hosted import Hosted
from rubricflow.tasks.core.llm.forms import FORMS
from rubricflow.tasks.core.llm.request import Message, Request

PAGE = Path(__file__).parents[4] / "docs" / "providers.md"
KEY = "sk-very-secret-93f1"
TEXT, HALF = '{"level":1}', '{"le'
REQUESTS = [
    Request(messages=(Message("system", "The rubric."), Message("user", f"Answer {n}.")), role="grade", subject=str(n))
    for n in range(2)
]
NAMES = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Gemini"}
USAGE = {
    "openai": {"prompt_tokens": 30, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 9}},
    "anthropic": {"input_tokens": 30, "output_tokens": 9},
    "gemini": {"promptTokenCount": 30, "candidatesTokenCount": 0, "thoughtsTokenCount": 9},
}


def answer(form, text=TEXT, reason=None, **more):
    """A provider's answer with a text."""
    if form == "openai":
        message = {"role": "assistant", "content": text} | more
        return {"choices": [{"message": message, "finish_reason": reason or "stop"}], "usage": USAGE[form]}
    if form == "anthropic":
        block = {"type": "text", "text": text} if text else {"type": "thinking", "thinking": "", "signature": ""}
        about = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        return about | {"content": [block], "stop_reason": reason or "end_turn", "usage": USAGE[form]} | more
    content = {"role": "model", "parts": [{"text": text}]} if text else {}
    return {"candidates": [{"content": content, "finishReason": reason or "STOP"}], "usageMetadata": USAGE[form]}


def good(form, *words, **more):
    return http(200, answer(form, *words, **more), ["Content-Type: application/json"])


def error(form, message, kind="", details=()):
    """A provider's error."""
    if form == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"}
    if form == "openai":
        return {"error": {"message": message, "type": kind, "code": kind, "param": None}}
    return {"error": {"code": 400, "message": message, "status": kind, "details": list(details)}}


def bad(code, form, message, kind="", headers=(), details=()):
    return http(code, error(form, message, kind, details), headers)


class Fault(NamedTuple):
    """Something that a provider does."""

    what: str
    form: str
    kept: str
    """One of OUTCOMES."""
    said: str
    """The beginning of the reply's error, a part of what ends the run, or nothing."""
    does: object
    """Its answers, the last one for ever; or a line of a batch's results."""


KEPT, CUT, NONE, STOP = OUTCOMES = (
    "asked again, and the reply is kept",
    "the text is kept; the verifier proves it, or asks for its repair",
    "an error of this request alone; the same command asks it again",
    "the run stops; every reply is kept, and the same command continues",
)
OPENAI, ANTHROPIC, GEMINI = FORMS
OK = {form: good(form) for form in FORMS}
DAY = {"@type": "google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}
SOON = {"@type": "google.rpc.RetryInfo", "retryDelay": "3s"}
SLOW, QUOTA, POOR = "Rate limit reached", "You exceeded your current quota", "the quota or the credit is spent"
UNTIL, THOUGHT = "the quota is spent; go on after", "empty: the model only thought and stopped"
LONG = {
    OPENAI: "This model's maximum context length is 8192 tokens.",
    ANTHROPIC: "prompt is too long: 250000 tokens > 200000 maximum",
    GEMINI: "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
}
BLOCKED = http(200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
POLICY = {"stop_details": {"type": "refusal", "explanation": "Policy."}}
ID = "f" * 64


def of_batch(form, **more):
    return {"key" if form == GEMINI else "custom_id": ID, **more}


def errored(message, kind):
    return of_batch(ANTHROPIC, result={"type": "errored", "error": error(ANTHROPIC, message, kind)})


EXPIRED = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
FAULTS = [
    Fault("429 with Retry-After", OPENAI, KEPT, "", [bad(429, OPENAI, SLOW, headers=["Retry-After: 2"]), OK[OPENAI]]),
    Fault(
        "429 with retry-after", ANTHROPIC, KEPT, "", [bad(429, ANTHROPIC, SLOW, "", ["retry-after: 2"]), OK[ANTHROPIC]]
    ),
    Fault("429, delay in its body", GEMINI, KEPT, "", [bad(429, GEMINI, QUOTA, details=[SOON]), OK[GEMINI]]),
    Fault("429 without Retry-After", OPENAI, KEPT, "", [bad(429, OPENAI, SLOW), OK[OPENAI]]),
    Fault(
        "429 for ever", ANTHROPIC, STOP, "answers 429: Rate limit reached (tried 3 times)", [bad(429, ANTHROPIC, SLOW)]
    ),
    Fault("429, try again in 2h0m1s", OPENAI, STOP, UNTIL, [bad(429, OPENAI, f"{SLOW}. Please try again in 2h0m1s.")]),
    Fault("429, a day's quota", GEMINI, STOP, UNTIL, [bad(429, GEMINI, QUOTA, details=[DAY, SOON])]),
    Fault("429, no credit", OPENAI, STOP, POOR, [bad(429, OPENAI, QUOTA, "insufficient_quota")]),
    Fault(
        "400, no credit", ANTHROPIC, STOP, POOR, [bad(400, ANTHROPIC, "Your credit balance is too low to access it.")]
    ),
    Fault("402", OPENAI, STOP, POOR, [bad(402, OPENAI, "Payment required")]),
    Fault("529, overloaded", ANTHROPIC, KEPT, "", [bad(529, ANTHROPIC, "Overloaded"), OK[ANTHROPIC]]),
    Fault("503, overloaded", GEMINI, KEPT, "", [bad(503, GEMINI, "The model is overloaded."), OK[GEMINI]]),
    Fault("500", OPENAI, KEPT, "", [bad(500, OPENAI, "Internal error"), OK[OPENAI]]),
    Fault("500 for ever", GEMINI, NONE, "broken: ", [bad(500, GEMINI, "Internal error")]),
    Fault("a wrong key", ANTHROPIC, STOP, "answers 401: invalid x-api-key", [bad(401, ANTHROPIC, "invalid x-api-key")]),
    Fault("a key without the right", GEMINI, STOP, "answers 403: denied", [bad(403, GEMINI, "denied")]),
    Fault("no such model", OPENAI, STOP, "does it serve the model", [bad(404, OPENAI, "The model does not exist")]),
    Fault("a body that is too large", ANTHROPIC, NONE, "too_long: ", [bad(413, ANTHROPIC, "Request too large")]),
    *(Fault("a prompt that is too long", form, NONE, "too_long: ", [bad(400, form, LONG[form])]) for form in FORMS),
    Fault(
        "a schema it does not take", OPENAI, NONE, "refused: ", [bad(400, OPENAI, "Invalid schema for response_format")]
    ),
    Fault(
        "a level it does not take", GEMINI, NONE, "refused: ", [bad(400, GEMINI, "Thinking level is not supported.")]
    ),
    Fault("refuses", OPENAI, NONE, "refusal: the model declines: I won't.", [good(OPENAI, None, refusal="I won't.")]),
    Fault(
        "refuses half way",
        ANTHROPIC,
        NONE,
        "refusal: the model declines: ",
        [good(ANTHROPIC, HALF, "refusal", **POLICY)],
    ),
    Fault("a filter stops the reply", OPENAI, NONE, "safety: ", [good(OPENAI, HALF, "content_filter")]),
    Fault("a filter stops the reply", GEMINI, NONE, "safety: ", [good(GEMINI, HALF, "SAFETY")]),
    Fault("recites a source", GEMINI, NONE, "safety: ", [good(GEMINI, "", "RECITATION")]),
    Fault("a filter refuses the prompt", GEMINI, NONE, "safety: the provider's filter refuses the prompt", [BLOCKED]),
    Fault("nothing but thinking", OPENAI, NONE, THOUGHT, [good(OPENAI, None, "length")]),
    Fault("nothing but thinking", ANTHROPIC, NONE, THOUGHT, [good(ANTHROPIC, "", "max_tokens")]),
    Fault("nothing but thinking", GEMINI, NONE, THOUGHT, [good(GEMINI, "", "MAX_TOKENS")]),
    Fault("no text", OPENAI, NONE, "empty: ", [http(200, {"choices": [{"message": {"content": None}}]})]),
    Fault("JSON that is cut off", OPENAI, CUT, "", [good(OPENAI, HALF, "length")]),
    Fault("JSON that is cut off", ANTHROPIC, CUT, "", [good(ANTHROPIC, HALF, "max_tokens")]),
    Fault("JSON that is cut off", GEMINI, CUT, "", [good(GEMINI, HALF, "MAX_TOKENS")]),
    Fault("200 with a page of HTML", OPENAI, KEPT, "", [http(200, b"<html>gateway</html>"), OK[OPENAI]]),
    Fault(
        "200 without an answer",
        ANTHROPIC,
        NONE,
        "broken: ",
        [http(200, {"type": "error"}, ["Content-Type: application/json"])],
    ),
    Fault("an answer breaks off", OPENAI, KEPT, "", [http(200, answer(OPENAI), cut=9), OK[OPENAI]]),
    *(Fault("a connection breaks off", form, KEPT, "", [DROP, OK[form]]) for form in (ANTHROPIC, GEMINI)),
    Fault("no answer within timeout_s", OPENAI, KEPT, "", [HANG, OK[OPENAI]]),
    Fault("a batch expires", ANTHROPIC, NONE, "expired: ", of_batch(ANTHROPIC, result={"type": "expired"})),
    Fault("a batch expires", OPENAI, NONE, "expired: ", of_batch(OPENAI, response=None, error=EXPIRED)),
    Fault("a batch is canceled", ANTHROPIC, NONE, "canceled: ", of_batch(ANTHROPIC, result={"type": "canceled"})),
    Fault("overloaded in a batch", ANTHROPIC, NONE, "broken: ", errored("Overloaded", "overloaded_error")),
    Fault("a bad request in a batch", ANTHROPIC, NONE, "refused: ", errored("no such field", "invalid_request_error")),
    Fault("500 in a batch", OPENAI, NONE, "broken: ", of_batch(OPENAI, response={"status_code": 500, "body": {}})),
    Fault("exhausted in a batch", GEMINI, NONE, "busy: ", of_batch(GEMINI, error={"code": 8, "message": "exhausted"})),
]


def table():
    """The table of the page."""
    lines = ["| provider does | by | said | kept |", "|---|---|---|---|"]
    for what, form, kept, said, _ in FAULTS:
        words = f"`{said.rstrip(': ')}`" if said else ""
        lines.append(f"| {what} | {NAMES[form]} | {words} | {kept} |")
    return "\n".join(lines)


def asked(fault, serve):
    """The replies to both requests, the second of which meets no fault; and what ended the run."""
    left = list(fault.does)

    def play(n, call):
        if "Answer 0." not in json.dumps(call):
            return OK[fault.form]
        return left.pop(0) if len(left) > 1 else left[0]

    server, clock, replies = serve(play), Time(), {}
    timeout_s = 1 if HANG in fault.does else 300
    engine = Engine(model="m", provider=fault.form, timeout_s=timeout_s, retries=2, patience_s=0, concurrency=1)
    url = server.url if fault.form == OPENAI else server.url.removesuffix("/v1")
    try:
        replies.update(Hosted(engine, KEY, url, clock, clock.sleep).answer(REQUESTS))
    except StoppedError as ended:
        return replies, str(ended)
    return replies, ""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.form}: {fault.what}")
def test_what_is_said_and_kept(fault, serve):
    if isinstance(fault.does, dict):
        custom_id, reply = FORMS[fault.form].result(fault.does)
        assert custom_id == ID
        assert reply.error.startswith(fault.said)
        return
    pytest.importorskip({"anthropic": "anthropic", "gemini": "google.genai"}.get(fault.form, "json"))
    replies, ended = asked(fault, serve)
    assert KEY not in repr(replies) + ended
    assert bool(ended) == (fault.kept == STOP)
    if ended:
        assert fault.said in ended
        assert ended.endswith("every reply is kept, and the same command continues")
        return
    assert replies[1].text == TEXT  # the others do not suffer
    assert replies[0].text == {KEPT: TEXT, CUT: HALF, NONE: None}[fault.kept]
    assert (replies[0].error or "").startswith(fault.said)


def test_the_page_shows_this_table():
    shown = re.search(r"<!-- faults -->\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert shown
    assert shown[1] == table()


if __name__ == "__main__":
    print(table())
