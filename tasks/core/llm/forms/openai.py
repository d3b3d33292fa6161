"""OpenAI's chat completions, their batch files, and the answers of every server that gives the same."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.structure import as_written, messages
from rubricflow.tasks.core.llm.forms.form import (
    THINKING,
    Form,
    count,
    drawn,
    error_reply,
    failed,
    lenient,
    mapping,
    shown,
    with_options,
    without_text,
)
from rubricflow.tasks.core.llm.request import Reply, Request, Token, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, plain
from rubricflow.tasks.core.text.digest import text_digest

_SILENT = re.compile(r"gpt-(?:3|4)|chatgpt-4|gpt-5-chat")
"""Models that do not think: they take no effort."""
_CAN_LEAVE_IT = re.compile(r"gpt-5\.\d+(?!.*-(?:pro|codex))")
"""Models that think, and take the effort `none`; of later ones some refuse it, and all take `low`."""
_MINIMAL = re.compile(r"gpt-5(?![.\d]|.*-(?:pro|codex))")


def _effort(engine: Engine) -> str | None:
    """What the model takes for the study's effort, or the least that it takes for none."""
    if engine.effort is None or _SILENT.search(engine.model):
        return None
    if engine.effort != "none" or _CAN_LEAVE_IT.search(engine.model):
        return engine.effort
    return "minimal" if _MINIMAL.search(engine.model) else "low"


def _thinks(engine: Engine) -> bool:
    return _effort(engine) != "none" and not _SILENT.search(engine.model)


def thinking(engine: Engine) -> int:
    """Where a model cannot leave it, it gets the room of `low`."""
    if not _thinks(engine):
        return 0
    return max(THINKING["low"], THINKING[engine.effort])


def takes(engine: Engine) -> frozenset[str]:
    """Models that think refuse everything about drawing."""
    return frozenset(() if _thinks(engine) else {"temperature", "top_p", "seed", "logprobs"})


def body(request: Request, engine: Engine) -> JsonDict:
    """Parameters of POST /v1/chat/completions."""
    made: JsonDict = {
        "model": engine.model,
        "messages": messages(request),
        "max_completion_tokens": FORM.room(request, engine),
        **drawn(request, engine, takes(engine)),
    }
    if "logprobs" in made:
        made |= {"logprobs": True, "top_logprobs": engine.logprobs}
    if (effort := _effort(engine)) is not None:
        made["reasoning_effort"] = effort
    if request.schema is not None:
        made["response_format"] = contract(request.schema, True)
    if engine.caching:  # prompts with the same beginning go where it was read before
        made["prompt_cache_key"] = text_digest(request.messages[0].content)[:32]
    return with_options(made, engine.options)


@cached_by_identity
def contract(schema: JsonObject, is_plain: bool) -> JsonDict:
    """What asks for output that keeps a schema. is_plain: within what the strictest servers take."""
    artifact = {"name": "artifact", "strict": True, "schema": plain(schema) if is_plain else schema}
    return {"type": "json_schema", "json_schema": artifact}


def line(digest: str, body: JsonObject) -> JsonDict:
    """A line of POST /v1/batches' input file."""
    return {"custom_id": digest, "method": "POST", "url": "/v1/chat/completions", "body": body}


def read_answer(answer: JsonObject, request: Request) -> Reply:
    """The reply in a chat completion."""
    choice = answer["choices"][0]
    message = choice["message"]
    reason = choice.get("finish_reason")
    usage = mapping(answer.get("usage"))
    text = message["content"]
    if isinstance(text, list):  # thinking and text, as parts
        text = "".join(part["text"] for part in text if part["type"] == "text") or None
    if text is not None and not isinstance(text, str):
        raise TypeError("a content that is no text")
    logprobs = mapping(choice.get("logprobs")).get("content") if request.want_logprobs else None
    details = mapping(usage.get("prompt_tokens_details"))
    reply = Reply(
        text=text or "",
        prompt_tokens=count(usage.get("prompt_tokens")),
        completion_tokens=count(usage.get("completion_tokens")),
        cached_tokens=count(details.get("cached_tokens")),
        token_logprobs=_tokens(logprobs) if logprobs else None,
    )
    if refused := message.get("refusal"):
        return failed(reply, f"refusal: the model declines: {shown(refused)}")
    if reason == "content_filter":
        return failed(reply, "safety: the provider's filter stopped the reply")
    if text is None or (not text and reason == "length"):
        thought = mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")
        return without_text(reply, reason, thought or message.get("reasoning_content"))
    return as_written(reply)


def read_result(line: JsonObject) -> tuple[str, JsonObject | Reply]:
    """A line of a batch's output file or of its file of errors."""
    custom_id = line["custom_id"]
    error = line.get("error")
    response = mapping(line.get("response"))
    status = response.get("status_code")
    if error:
        code = error.get("code")
        if code in ("batch_expired", "batch_cancelled"):
            kind = "expired" if code == "batch_expired" else "canceled"
            return custom_id, Reply(error=f"{kind}: {shown(error.get('message') or code)}")
        return custom_id, error_reply(status, error)
    return custom_id, response["body"] if status == 200 else error_reply(status, response.get("body"))


def _tokens(rows: Sequence[JsonObject]) -> list[Token] | None:
    """The reply's tokens; None where the server gives them in another form. A character that several tokens make up
    comes with the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def likely(row: JsonObject, decode: Callable[[bytes], str]) -> tuple[str, float]:
        spelled = row.get("bytes")
        return str(row["token"]) if spelled is None else decode(bytes(spelled)), float(row["logprob"])

    try:
        return [
            Token(
                *likely(row, decoder.decode), tuple(likely(other, lenient) for other in row.get("top_logprobs") or ())
            )
            for row in rows
        ]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


FORM = Form(
    requests=50_000,
    bytes=200_000_000,
    body=body,
    line=line,
    read_answer=read_answer,
    read_result=read_result,
    takes=takes,
    thinking=thinking,
)
