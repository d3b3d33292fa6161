"""One call to /chat/completions of any server: the body that asks, and what its answer means."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.connections import HttpAnswer
from rubricflow.tasks.core.llm.backends.limits import SpentQuota, retry_after, spent_quota
from rubricflow.tasks.core.llm.backends.parameters import PINS, CallParameters
from rubricflow.tasks.core.llm.backends.structure import messages
from rubricflow.tasks.core.llm.error_body import ErrorBody, lenient, read_error
from rubricflow.tasks.core.llm.forms import room
from rubricflow.tasks.core.llm.forms.form import count
from rubricflow.tasks.core.llm.forms.openai import contract, read_answer
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import plain

BUSY, DOWN, BROKEN, UNFIT, ODD, FINAL = "busy", "unreachable", "broken", "too_long", "refused", "final"
STARTING, CHANGED, SPENT = "starting", "changed", "quota"
"""Kinds of failure."""
_SHOWN = 300
_HEAVY = frozenset({"messages", "response_format"})
"""What is most of a body, and mostly as it was in the one before."""
_WINDOW = ("max_model_len", "context_length", "max_context_length", "context_window")
"""What lists of models call it: vLLM and SGLang, and others."""
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SCHEMA = re.compile(r"response_format|json_?schema|invalid schema|grammar|anyOf", re.IGNORECASE)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """Why a call gave no reply. `kind`: busy, unreachable, starting or broken, which may pass; too_long or refused,
    which concern one request; changed, to be asked once more, see `CallParameters`; quota, spent for longer than is
    worth waiting; or final, which ends the run as well."""

    kind: str
    message: str
    wait: float | None = None
    """Seconds that the server asks to wait."""
    answered: bool = False
    """Whether the server gave an answer, which it may give again to who sends the same key."""


class Completions:
    """How requests are put to a server of a model, and how its answers are read."""

    def __init__(self, engine: Engine, key: str) -> None:
        """key: never shown in a message."""
        self._engine, self._key, self._parameters = engine, key, CallParameters(engine.options)
        self._is_plain = False  # whether schemas go out as the strictest servers take them

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON that asks, as far as it is known what the server takes."""
        return self._parameters.applied(self._wanted(request))

    def _wanted(self, request: Request) -> dict[str, Any]:
        """The JSON that asks for all that the study says."""
        how = request.sampling
        body: dict[str, Any] = {
            "model": self._engine.model,
            "messages": messages(request),
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
            **{name: value for name, value in PINS.items() if name not in self._engine.options},
        }
        if "max_completion_tokens" not in self._engine.options:  # what newer servers call it; they refuse both
            body["max_tokens"] = room(request, self._engine)
        if self._engine.effort is not None:
            body["reasoning_effort"] = self._engine.effort
        if how.top_k is not None:
            body["top_k"] = how.top_k
        if request.want_logprobs and self._engine.logprobs:
            body |= {"logprobs": True, "top_logprobs": self._engine.logprobs}
        if request.schema is not None:
            body["response_format"] = contract(request.schema, self._is_plain)
        return body | self._engine.options

    def content(self, body: Mapping[str, Any]) -> bytes:
        """A body as it is sent. What many bodies share, the rubric and the contract above all, is written once."""
        heavy = _HEAVY & body.keys() - self._engine.options.keys()
        light = _ENCODER.encode({name: value for name, value in body.items() if name not in heavy})
        members = [light[1:-1]]
        if "messages" in heavy:
            turns = (f'{{"role":"{turn["role"]}","content":{_written(turn["content"])}}}' for turn in body["messages"])
            members.append(f'"messages":[{",".join(turns)}]')
        if "response_format" in heavy:
            members.append(f'"response_format":{_written(body["response_format"])}')
        return f"{{{','.join(filter(None, members))}}}".encode()

    def read(
        self, url: str, request: Request, body: Mapping[str, Any], response: HttpAnswer, seconds: float
    ) -> Reply | Failure:
        """What an answer to `body` that took so many seconds means; a failure that may pass where a 200 holds no
        reply."""
        if response.status_code == 200:
            return self._reply(url, request, body, response, seconds)
        said = read_error(response.content, body["messages"])
        failure = self.refused(url, response, said)
        may_name_parameters = failure.kind == ODD or response.status_code in (500, 501)
        if may_name_parameters and (
            self._is_schema_refused(url, request, body, failure)
            or self._parameters.gives_up(url, body, said, failure.message)
        ):
            return Failure(CHANGED, failure.message, answered=True)
        return failure

    def _is_schema_refused(self, url: str, request: Request, body: Mapping[str, Any], failure: Failure) -> bool:
        """Whether a server refused the whole schema, so that it is worth while to ask once more with a plain one. What
        that does not say, such as that a level above 0 has evidence, is found in the reply. Said once in the log."""
        sent = body.get("response_format", {}).get("json_schema", {}).get("schema")
        is_whole = sent is not None and sent is request.schema and plain(sent) != sent
        if not is_whole or not _SCHEMA.search(failure.message):
            return False
        if not self._is_plain:
            _logger.warning("%s does not take the whole contract, and is held to less: %s", url, failure.message)
        self._is_plain = True
        return True

    def window(self, response: HttpAnswer) -> int | None:
        """Tokens that prompt and reply may have together, as a list of the server's models says; None where it does
        not."""
        try:
            rows = json.loads(response.content)["data"]
            mine = next((row for row in rows if row["id"] == self._engine.model), rows[0] if len(rows) == 1 else {})
            return next(filter(None, (count(mine.get(name)) for name in _WINDOW)), None)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None

    def refused(self, url: str, response: HttpAnswer, said: ErrorBody) -> Failure:
        """What an answer other than 200, which says so in its body, means."""
        code, text = response.status_code, lenient(response.content)
        wait = retry_after(response.headers, text)
        message = f"{url} answers {code}: {self.safe('; '.join(said.words))}"
        spent = spent_quota(text, wait) if code == 429 else None
        if code == 402 or (code in (400, 403) and said.lacks_money):
            spent = SpentQuota(None)
        if spent is not None:
            return Failure(SPENT, f"{message} ({spent.in_words})", wait=None if spent.until is None else wait or 0.0)
        if code in (401, 403):
            name = self._engine.key
            reason = f"the key in {name} is refused" if self._key else f"there is no key in {name}"
            return Failure(FINAL, f"{message} ({reason})")
        if code == 404:
            return Failure(FINAL, f"{message} (does it serve the model under the name '{self._engine.model}'?)")
        if code == 413 or (code in (400, 422, 500) and said.is_too_long):
            return Failure(UNFIT, message)
        if code in (429, 529):
            return Failure(BUSY, message, wait, answered=True)
        if code in (408, 409, 425) or code >= 500:
            return Failure(STARTING if code == 503 else BROKEN, message, wait, answered=True)
        return Failure(ODD, message)

    def _reply(
        self, url: str, request: Request, sent: Mapping[str, Any], response: HttpAnswer, seconds: float
    ) -> Reply | Failure:
        """The reply in a body; a failure that may pass where it is none."""
        try:
            reply = read_answer(json.loads(response.content), request)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            shown = self.safe(lenient(response.content))
            return Failure(BROKEN, f"{url} answers 200 without a reply: {shown}", answered=True)
        if reply.error is not None:
            return replace(reply, error=self.safe(reply.error))
        return replace(reply, latency_s=seconds, changed=self._parameters.changed(self._wanted(request), sent))

    def safe(self, text: str) -> str:
        """A text of the server on one line, without the key and cut short."""
        plain = " ".join((text.replace(self._key, "***") if self._key else text).split())
        return "".join(c if c.isprintable() else "?" for c in plain)[:_SHOWN]


@cached_by_identity
def _written(value: Mapping[str, Any] | str) -> str:
    return _ENCODER.encode(value)
