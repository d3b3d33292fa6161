"""One call to a model: the body that asks, what its answer means, and which parameters a server refuses.

A server of an open interface (`/chat/completions`) is sent all that the study says until it refuses a parameter, which
is then renamed or left out. A provider's own interface has a form (`rubricflow.tasks.core.llm.forms`), in which nothing
is that its current models refuse.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.connections import HttpAnswer
from rubricflow.tasks.core.llm.backends.pace import SpentQuota, retry_after, spent_quota
from rubricflow.tasks.core.llm.backends.structure import messages
from rubricflow.tasks.core.llm.forms import FORMS, Form, room
from rubricflow.tasks.core.llm.forms.form import ErrorBody, count, kind_of, lenient, read_error, shown
from rubricflow.tasks.core.llm.forms.openai import contract
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import BLANKS, JsonDict, JsonObject, plain

BUSY, DOWN, BROKEN, ODD, FINAL = "busy", "unreachable", "broken", "refused", "final"
STARTING, CHANGED, SPENT = "starting", "changed", "quota"
"""Kinds of failure."""
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
    """How requests are put to a model, and how its answers are read."""

    def __init__(self, engine: Engine, key: str, form: Form | None = None) -> None:
        """key: never shown in a message. form: of a provider's own interface."""
        self._engine, self._key, self._form = engine, key, form
        self._parameters = CallParameters(engine.options)
        self._is_plain = False  # whether schemas go out as the strictest servers take them

    def body(self, request: Request) -> JsonDict:
        """The JSON that asks, as far as it is known what the server takes."""
        if self._form is not None:
            return self._form.body(request, self._engine)
        return self._parameters.applied(self._wanted(request))

    def _wanted(self, request: Request) -> JsonDict:
        """The JSON that asks for all that the study says."""
        how, options = request.sampling, self._engine.options
        body: JsonDict = {
            "model": self._engine.model,
            "messages": messages(request),
            "temperature": how.temperature,
            "top_p": how.top_p,
            "seed": how.seed,
            **{name: value for name, value in PINS.items() if name not in options},
        }
        if "max_completion_tokens" not in options:  # what newer servers call it; they refuse both
            body["max_tokens"] = room(request, self._engine)
        if self._engine.effort is not None:
            body["reasoning_effort"] = self._engine.effort
        if how.top_k is not None:
            body["top_k"] = how.top_k
        if request.want_logprobs and self._engine.logprobs:
            body |= {"logprobs": True, "top_logprobs": self._engine.logprobs}
        if request.schema is not None:
            body["response_format"] = contract(request.schema, self._is_plain)
        return body | options

    def content(self, body: JsonObject) -> bytes:
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
        self, url: str, request: Request, body: JsonObject, response: HttpAnswer, seconds: float
    ) -> Reply | Failure:
        """What an answer to `body` that took so many seconds means; a failure that may pass where a 200 holds no
        reply."""
        if response.status_code != 200:
            return self._refusal(url, request, body, response)
        try:
            reply = (self._form or FORMS["openai"]).read_answer(json.loads(response.content), request)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            message = f"{url} answers 200 without a reply: {self.safe(lenient(response.content))}"
            return Failure(BROKEN, message, answered=True)
        if reply.error is not None:
            return replace(reply, error=self.safe(reply.error))
        if self._form is not None:
            changed = self._form.changed(request, self._engine)
        else:
            changed = self._parameters.changed(self._wanted(request), body)
        return replace(reply, latency_s=seconds, changed=changed)

    def _refusal(self, url: str, request: Request, body: JsonObject, response: HttpAnswer) -> Failure:
        """What an answer other than 200 means, which may say that the call is to be changed."""
        said = read_error(response.content, messages(request))
        failure = self._failure(url, response, said)
        may_change = self._form is None and (failure.kind == ODD or response.status_code in (500, 501))
        if not may_change:
            return failure
        # A whole contract that is refused is asked once more as a plain one. What that does not say, such as that a
        # level above 0 has evidence, is found in the reply.
        sent = body.get("response_format", {}).get("json_schema", {}).get("schema")
        is_whole = sent is not None and sent is request.schema and plain(sent) != sent
        if is_whole and _SCHEMA.search(failure.message):
            if not self._is_plain:
                _logger.warning("%s does not take the whole contract, and is held to less: %s", url, failure.message)
            self._is_plain = True
        elif not self._parameters.gives_up(url, body, said, failure.message):
            return failure
        return Failure(CHANGED, failure.message, answered=True)

    def _failure(self, url: str, response: HttpAnswer, said: ErrorBody) -> Failure:
        """What an answer other than 200, which says so in its body, means."""
        code = response.status_code
        text = lenient(response.content)
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
        kind = kind_of(code, said)
        if kind not in (BUSY, BROKEN):
            return Failure(kind, message)
        return Failure(STARTING if code == 503 else kind, message, wait, answered=True)

    def window(self, response: HttpAnswer) -> int | None:
        """Tokens that prompt and reply may have together, as a list of the server's models says; None where it does
        not."""
        try:
            rows = json.loads(response.content)["data"]
            mine = next((row for row in rows if row["id"] == self._engine.model), rows[0] if len(rows) == 1 else {})
            return next(filter(None, (count(mine.get(name)) for name in _WINDOW)), None)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None

    def safe(self, text: str) -> str:
        """A text of the server on one line, without the key and cut short."""
        return shown(text.replace(self._key, "***") if self._key else text)


@cached_by_identity
def _written(value: JsonObject | str) -> str:
    return _ENCODER.encode(value)


PINS: JsonObject = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop": [*BLANKS]}
"""What vLLM and SGLang take from the model's generation_config.json where a body does not say it, each switched off;
and where a reply that has run into blanks is cut."""
_ALWAYS = frozenset({"model", "messages"})
"""Without these nothing is asked."""
_IN_PLACE = {"max_tokens": "max_completion_tokens"}
"""What newer models call a parameter; they refuse both at once."""
_OWN_VALUE = frozenset({"temperature", "top_p", "seed", "max_tokens", "max_completion_tokens"})
"""Whose value may be wrong while the parameter is taken: that is for the study's author to mend."""
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
"""One is nothing without the other."""
_IN_WORDS = {"response_format": r"response[ _.]?format|json[ _]schema|structured[ _]outputs?"}
_REFUSED = re.compile(
    r"un(?:known|recogni[sz]ed|expected|supported|available)|extra|forbidden|deprecated|cannot find field"
    r"|only the default|leave it unset|remove|(?:not|n't|cannot|no longer)\W+(?:\w+\W+){0,3}?"
    r"(?:support|permit|allow|enable|available|accept|specified|exist|set|used?\b|recogni[sz]ed|implement)",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\bboth\b|only one|together|at the same time|mutually", re.IGNORECASE)
_OTHERS = re.compile(
    r"(?<!un)\b(?:supported|allowed|valid|permitted|known) \w+\W+(?:are|is)?\b|expected one of|['\"]input['\"]: ", re.I
)
"""From here on a text lists what is taken, or repeats what was sent."""


class CallParameters:
    """What becomes of a body's parameters: all are sent as the study says until the server refuses one, which is then
    renamed or left out of every further body. What the study itself puts among the engine's options stays."""

    def __init__(self, options: JsonObject) -> None:
        """options: the study's own fields of every body."""
        self._options = frozenset(options)
        self._instead: dict[str, str | None] = {}

    def applied(self, body: JsonDict) -> JsonDict:
        """The body as the server takes it, as far as is known."""
        for name, instead in self._instead.items():
            if name in body and name not in self._options:
                value = body.pop(name)
                body |= {instead: value} if instead else {}
        return body

    def changed(self, wanted: JsonObject, sent: JsonObject) -> str | None:
        """In words how a body that was sent differs from the one that was wanted; None where it does not."""
        gone = sorted(wanted.keys() - sent.keys())
        renamed = [f"{name} as {_IN_PLACE[name]}" for name in gone if _IN_PLACE.get(name, "") in sent]
        left_out = [name for name in gone if _IN_PLACE.get(name, "") not in sent]
        return "; ".join([*renamed, *(f"without {name}" for name in left_out)]) or None

    def gives_up(self, url: str, body: JsonObject, said: ErrorBody, in_words: str) -> bool:
        """Whether a body was refused for parameters in it, so that it is worth while to ask once more. Each is
        logged once, with the server's words."""
        ours = body.keys() - self._options - _ALWAYS
        refused = _refused(said, body, ours)
        if refused & _LOGPROBS:
            refused |= _LOGPROBS & ours
        for name in sorted(refused - self._instead.keys()):
            instead = _IN_PLACE.get(name)
            self._instead[name] = instead if instead not in self._options else None
            what = f"is sent as '{instead}'" if self._instead[name] else "is left out"
            _logger.warning("%s does not take the parameter '%s': it %s from now on (%s)", url, name, what, in_words)
        return bool(refused)


def _refused(said: ErrorBody, body: JsonObject, ours: frozenset[str] | set[str]) -> set[str]:
    """Those of our parameters that an error is about: those that it points to or, failing that, those that its words
    refuse. Where it points elsewhere its words say nothing: some servers repeat the whole body in them."""
    if said.places:
        pointed = {name for place in said.places for name in ours if re.match(rf"{name}(?:\W|$)", place)}
        complains = any(map(_REFUSED.search, said.own))
        return {name for name in pointed if complains or name not in _OWN_VALUE or PINS.get(name, ...) == body[name]}
    refused: set[str] = set()
    for text in filter(_REFUSED.search, said.own):
        others = _OTHERS.search(text)
        told = text[: others.start()] if others and _REFUSED.search(text[: others.start()]) else text
        named = [name for name in ours if re.search(rf"\b(?:{_IN_WORDS.get(name, name)})(?![a-z_])", told)]
        if len(named) > 1 and _CHOICE.search(told):
            named = [name for name in named if name != "temperature"][:1]
        refused |= {*named}
    # «Use 'max_completion_tokens' instead» names what is sent already as well as what is refused
    return refused - ({"max_completion_tokens"} if "max_tokens" in refused else set())
