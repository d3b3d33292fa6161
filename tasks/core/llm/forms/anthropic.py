"""Anthropic's messages and their batches; the same at Bedrock and, for its models, at Vertex."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.structure import as_written, messages
from rubricflow.tasks.core.llm.forms.form import (
    THINKING,
    Form,
    count,
    error_reply,
    failed,
    mapping,
    plainest,
    shown,
    with_options,
    without_text,
)
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject

_BY_BUDGET = re.compile(r"claude-(?:3|\w+-4(?!-[6-9]\b))")
"""Models up to 4.5: they think where a number of tokens is named, and take no effort."""
_UNASKED = re.compile(r"claude-(?:3|\w+-4)")
"""Models that think only where that is asked for."""
_CAN_LEAVE_IT = re.compile(r"claude-(?:3|\w+-4|(?:opus|sonnet)-5(?!-\d\b)|haiku-5-5)")
_NOT_BEFORE = re.compile(r"claude-sonnet-5-5")
"""Thinks between tools at least, of which there are none here."""


def _thinking(engine: Engine) -> JsonDict | None:
    """What the model takes for the study's effort; None for its own measure."""
    if engine.effort is None:
        return None
    if engine.effort == "none" and _NOT_BEFORE.search(engine.model):
        return {"type": "between_tools"}
    if engine.effort == "none" and _CAN_LEAVE_IT.search(engine.model):
        return {"type": "disabled"}
    if _BY_BUDGET.search(engine.model):
        return {"type": "enabled", "budget_tokens": THINKING[engine.effort]}
    return {"type": "adaptive"}


def thinking(engine: Engine) -> int:
    """Where a model cannot leave it, it gets the room of `low`."""
    how = _thinking(engine)
    if how is None:
        return 0 if _UNASKED.search(engine.model) else THINKING[None]
    return 0 if how["type"] in ("disabled", "between_tools") else max(THINKING["low"], THINKING[engine.effort])


def takes(engine: Engine) -> frozenset[str]:
    """Current models refuse everything about drawing."""
    return frozenset()


def body(request: Request, engine: Engine) -> JsonDict:
    """Parameters of POST /v1/messages."""
    turns = messages(request)
    made: JsonDict = {
        "model": engine.model,
        "max_tokens": FORM.room(request, engine),
        "messages": [turn for turn in turns if turn["role"] != "system"],
    }
    shared = [{"type": "text", "text": turn["content"]} for turn in turns if turn["role"] == "system"]
    if shared:
        mark = {"cache_control": {"type": "ephemeral"}} if engine.caching else {}
        made["system"] = [*shared[:-1], shared[-1] | mark]
    # A model held to a tool would be another way to a form, which current models refuse.
    wanted: JsonDict = {}
    if request.schema is not None:
        wanted["format"] = {"type": "json_schema", "schema": plainest(request.schema)}
    how = _thinking(engine)
    if how == {"type": "adaptive"}:  # who cannot leave it thinks as little as it can
        wanted["effort"] = "low" if engine.effort == "none" else engine.effort
    if wanted:
        made["output_config"] = wanted
    if how is not None:
        made["thinking"] = how
    return with_options(made, engine.options)


def line(digest: str, body: JsonObject) -> JsonDict:
    """One of the `requests` of POST /v1/messages/batches."""
    return {"custom_id": digest, "params": body}


def read_answer(answer: JsonObject, request: Request) -> Reply:
    """The reply in a message."""
    blocks = answer["content"]
    reason = answer.get("stop_reason")
    usage = mapping(answer.get("usage"))
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    written, read = (count(usage.get(f"cache_{name}_input_tokens")) for name in ("creation", "read"))
    fresh = count(usage.get("input_tokens"))
    reply = Reply(
        text=text,
        prompt_tokens=None if fresh is None else fresh + (written or 0) + (read or 0),
        completion_tokens=count(usage.get("output_tokens")),
        cached_tokens=read,
        written_tokens=written or None,
    )
    if reason == "refusal":
        details = mapping(answer.get("stop_details"))
        why = details.get("explanation") or details.get("category") or "it gives no reason"
        return failed(reply, f"refusal: the model declines: {shown(why)}")
    if not text and reason == "model_context_window_exceeded":
        return failed(reply, "too_long: the prompt and its reply exceed the model's context")
    return as_written(reply) if text else without_text(reply, reason, any("thinking" in b["type"] for b in blocks))


def read_result(line: JsonObject) -> tuple[str, JsonObject | Reply]:
    """A line of GET /v1/messages/batches/ID/results."""
    custom_id, result = line["custom_id"], line["result"]
    kind = result["type"]
    if kind == "succeeded":
        return custom_id, result["message"]
    if kind in ("expired", "canceled"):
        words = "before it was its turn; it was not paid"
        return custom_id, Reply(error=f"{kind}: the batch was {kind} {words}")
    error = mapping(result["error"].get("error")) or result["error"]
    return custom_id, error_reply(_STATUS.get(error.get("type")), error)


_STATUS: Mapping[Any, int] = {
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 503,
    "request_too_large": 413,
}
"""What an error is called → its status live."""

FORM = Form(
    requests=100_000,
    bytes=256_000_000,
    body=body,
    line=line,
    read_answer=read_answer,
    read_result=read_result,
    takes=takes,
    thinking=thinking,
)
