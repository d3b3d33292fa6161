"""Gemini's generateContent and its batch files; the same at Vertex."""

from __future__ import annotations

import re
from dataclasses import replace

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.structure import as_written, messages
from rubricflow.tasks.core.llm.forms.form import (
    THINKING,
    Form,
    count,
    drawn,
    error_reply,
    failed,
    mapping,
    plainest,
    shown,
    with_options,
    without_text,
)
from rubricflow.tasks.core.llm.request import Reply, Request, Token
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject

_ROLES = {"user": "user", "assistant": "model"}
_SPOKEN = frozenset({None, "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"})
"""Reasons to stop with which a text is the model's whole answer, or its beginning."""
_NOT_SAFETY = frozenset({"OTHER", "LANGUAGE", "MALFORMED_RESPONSE", "MALFORMED_FUNCTION_CALL", "CONTINUATION"})
"""Other reasons that are no filter's."""


_BY_BUDGET = re.compile(r"gemini-2\.5")
"""Models that take a number of tokens to think; later ones take a level, and refuse both together."""
_SILENT = re.compile(r"gemini-(?:1|2\.0)")
"""Models that do not think, and refuse to be told how much."""


def _thinking(engine: Engine) -> JsonDict:
    """What the model takes for the study's effort, or the least that it takes for none."""
    if engine.effort is None or _SILENT.search(engine.model):
        return {}
    if not _BY_BUDGET.search(engine.model):
        return {"thinkingLevel": "LOW" if engine.effort == "none" else engine.effort.upper()}
    least = 128 if "pro" in engine.model else 0
    return {"thinkingBudget": max(least, THINKING[engine.effort])}


def thinking(engine: Engine) -> int:
    """Where a model cannot leave it, it gets the room of `low`."""
    if _SILENT.search(engine.model) or _thinking(engine) == {"thinkingBudget": 0}:
        return 0
    return max(THINKING["low"], THINKING[engine.effort])


def takes(engine: Engine) -> frozenset[str]:
    """Drawing is deprecated but for the seed."""
    return frozenset({"seed"})


def body(request: Request, engine: Engine) -> JsonDict:
    """The JSON of POST models/NAME:generateContent."""
    turns = messages(request)
    config = {"maxOutputTokens": FORM.room(request, engine), **drawn(request, engine, takes(engine))}
    if request.schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": plainest(request.schema)}
    if how := _thinking(engine):
        config["thinkingConfig"] = how
    made: JsonDict = {
        "contents": [
            {"role": _ROLES[turn["role"]], "parts": [{"text": turn["content"]}]}
            for turn in turns
            if turn["role"] != "system"
        ],
        "generationConfig": config,
    }
    if shared := [{"text": turn["content"]} for turn in turns if turn["role"] == "system"]:
        made["systemInstruction"] = {"parts": shared}
    return with_options(made, engine.options)


def line(digest: str, body: JsonObject) -> JsonDict:
    """A line of the input file of models/NAME:batchGenerateContent."""
    return {"key": digest, "request": body}


def read_answer(answer: JsonObject, request: Request) -> Reply:
    """The reply in a GenerateContentResponse."""
    usage = mapping(answer.get("usageMetadata"))
    said, thought = (count(usage.get(f"{name}TokenCount")) for name in ("candidates", "thoughts"))
    counted = Reply(
        text="",
        prompt_tokens=count(usage.get("promptTokenCount")),
        completion_tokens=None if said is thought is None else (said or 0) + (thought or 0),
        cached_tokens=count(usage.get("cachedContentTokenCount")),
    )
    feedback = mapping(answer.get("promptFeedback"))
    if blocked := feedback.get("blockReason"):
        return failed(counted, f"safety: the provider's filter refuses the prompt: {shown(blocked)}")
    candidate = answer["candidates"][0]
    reason = candidate.get("finishReason")
    if reason not in _SPOKEN | _NOT_SAFETY:
        why = shown(candidate.get("finishMessage") or reason)
        return failed(counted, f"safety: the provider's filter stopped the reply: {why}")
    parts = mapping(candidate.get("content")).get("parts") or ()
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    if not text or reason not in _SPOKEN:
        return without_text(counted, reason, thought)
    tokens = mapping(candidate.get("logprobsResult")) if request.want_logprobs else {}
    return as_written(replace(counted, text=text, token_logprobs=_tokens(tokens)))


def _tokens(result: JsonObject) -> list[Token] | None:
    """The reply's tokens, where the model gives them."""
    chosen, top = result.get("chosenCandidates"), result.get("topCandidates")
    if not chosen:
        return None
    places = [[(str(c["token"]), float(c["logProbability"])) for c in place["candidates"]] for place in top or ()]
    return [
        Token(str(c["token"]), float(c["logProbability"]), tuple(places[n]) if n < len(places) else ())
        for n, c in enumerate(chosen)
    ]


def read_result(line: JsonObject) -> tuple[str, JsonObject | Reply]:
    """A line of a batch's file of responses."""
    if error := line.get("error") or line.get("status"):
        return line["key"], error_reply(_STATUS.get(error.get("code"), error.get("code")), error)
    return line["key"], line["response"]


_STATUS = {1: 499, 4: 504, 8: 429, 10: 409, 13: 500, 14: 503}
"""Codes of gRPC that may pass → of HTTP."""

FORM = Form(
    requests=200_000,
    bytes=2_000_000_000,
    body=body,
    line=line,
    read_answer=read_answer,
    read_result=read_result,
    takes=takes,
    thinking=thinking,
)
