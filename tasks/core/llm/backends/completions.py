"""One call to /chat/completions: the body that asks, what the server's answer means, and the parameters that a server
refuses, which are renamed or left out for it."""

from __future__ import annotations

import codecs
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.connections import HttpAnswer
from rubricflow.tasks.core.llm.backends.structure import as_written, messages
from rubricflow.tasks.core.llm.request import Reply, Request, Token, cached_by_identity
from rubricflow.tasks.core.llm.schema import BLANKS, plain

BUSY, DOWN, BROKEN, UNFIT, ODD, FINAL = "busy", "unreachable", "broken", "too_long", "refused", "final"
STARTING, CHANGED = "starting", "changed"
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
    which concern one request; changed, to be asked once more, see `CallParameters`; or final, which ends the run."""

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
            body["max_tokens"] = how.longest
        if how.top_k is not None:
            body["top_k"] = how.top_k
        if request.want_logprobs and self._engine.logprobs:
            body |= {"logprobs": True, "top_logprobs": self._engine.logprobs}
        if request.schema is not None:
            body["response_format"] = _contract(request.schema, self._is_plain)
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
        said = refusal(response.content, body["messages"])
        failure = self._refused(url, response.status_code, said, _retry_after(response))
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
            return next(filter(None, (_count(mine.get(name)) for name in _WINDOW)), None)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None

    def _refused(self, url: str, code: int, said: ErrorBody, wait: float | None) -> Failure:
        """What an answer other than 200 means."""
        message = f"{url} answers {code}: {self.safe('; '.join(said.words))}"
        if code in (401, 403):
            name = self._engine.key
            reason = f"the key in {name} is refused" if self._key else f"there is no key in {name}"
            return Failure(FINAL, f"{message} ({reason})")
        if code == 404:
            return Failure(FINAL, f"{message} (does it serve the model under the name '{self._engine.model}'?)")
        if code == 413 or (code in (400, 422, 500) and said.is_too_long):
            return Failure(UNFIT, message)
        if code == 429:
            return Failure(BUSY, message, wait, answered=True)
        if code in (408, 409, 425) or code >= 500:
            return Failure(STARTING if code == 503 else BROKEN, message, wait, answered=True)
        return Failure(ODD, message)

    def _reply(
        self, url: str, request: Request, sent: Mapping[str, Any], response: HttpAnswer, seconds: float
    ) -> Reply | Failure:
        """The reply in a body; a failure that may pass where it is none."""
        try:
            body = json.loads(response.content)
            choice = body["choices"][0]
            text = choice["message"]["content"]
            if isinstance(text, list):  # thinking and text, as parts
                text = "".join(part["text"] for part in text if part["type"] == "text") or None
            if text is not None and not isinstance(text, str):
                raise TypeError
        except (ValueError, TypeError, LookupError, RecursionError):
            shown = self.safe(_lenient(response.content))
            return Failure(BROKEN, f"{url} answers 200 without a reply: {shown}", answered=True)
        if text is None:
            refusal = choice["message"].get("refusal") or choice.get("finish_reason") or "no text"
            return Reply(error=f"empty: the model gave no text: {self.safe(str(refusal))}")
        usage = _mapping(body.get("usage"))
        logprobs = _mapping(choice.get("logprobs")).get("content") if request.want_logprobs else None
        reply = Reply(
            text=text,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            cached_tokens=_count(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
            latency_s=seconds,
            token_logprobs=_tokens(logprobs) if logprobs else None,
            changed=self._parameters.changed(self._wanted(request), sent),
        )
        return as_written(reply)

    def safe(self, text: str) -> str:
        """A text of the server on one line, without the key and cut short."""
        plain = " ".join((text.replace(self._key, "***") if self._key else text).split())
        return "".join(c if c.isprintable() else "?" for c in plain)[:_SHOWN]


@cached_by_identity
def _contract(schema: Mapping[str, Any], is_plain: bool) -> dict[str, Any]:
    """What asks for output that keeps a schema."""
    contract = {"name": "artifact", "strict": True, "schema": plain(schema) if is_plain else schema}
    return {"type": "json_schema", "json_schema": contract}


@cached_by_identity
def _written(value: Mapping[str, Any] | str) -> str:
    return _ENCODER.encode(value)


def _retry_after(response: HttpAnswer) -> float | None:
    """Seconds of the header Retry-After, which is a number or a date."""
    value = response.headers.get("retry-after", "").strip()
    try:
        is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", value)
        return float(value) if is_number else max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _tokens(rows: Sequence[Mapping[str, Any]]) -> list[Token] | None:
    """The reply's tokens; None where the server gives them in another form. A character that several tokens make up
    comes with the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def likely(row: Mapping[str, Any], decode: Callable[[bytes], str]) -> tuple[str, float]:
        spelled = row.get("bytes")
        return str(row["token"]) if spelled is None else decode(bytes(spelled)), float(row["logprob"])

    try:
        return [
            Token(
                *likely(row, decoder.decode), tuple(likely(other, _lenient) for other in row.get("top_logprobs") or ())
            )
            for row in rows
        ]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _lenient(spelled: bytes) -> str:
    return spelled.decode("utf-8", "replace")


# The parameters of a body: what a server says of those that it refuses.

PINS: Mapping[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop": [*BLANKS]}
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
_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|(?:prompt|inputs?|messages?|request) (?:is |are )?(?:too|longer)\b"
    r"|too (?:many|large)\W+(?:\w+\W+){0,3}?tokens|reduce the length|exceed\w*\W+(?:\w+\W+){0,6}?tokens"
    r"|tokens\W+(?:\w+\W+){0,3}?max_new_tokens|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
_DEPTH, _READ = 8, 4000
"""How deep errors are looked into, and how many characters of a message are read."""
_SHARED, _MORE = 40, 12
"""So many characters in a row are in the prompt too where a message repeats it: more than the few that a server's
sentence and a student's share by chance («`seed` is not …»). Of a whole piece of it, so many more than the match."""
_EDGE = r"['\"`‘’“”]|: "


class ErrorBody(NamedTuple):
    """What the body of an error says."""

    places: tuple[str, ...]
    """The parameters that it points to."""
    words: tuple[str, ...]
    """Its messages in the server's own words, the innermost alone where one holds another."""
    prompt: str
    """What was asked, as `_plain` has it: servers repeat parts of it, and what a student wrote refuses nothing."""

    @property
    def is_too_long(self) -> bool:
        """Whether prompt and reply do not fit into the model's context."""
        return any(_says(_TOO_LONG, _plain(text[:_READ]), self.prompt) for text in self.words)


def refusal(content: bytes, messages: Sequence[Mapping[str, str]] = ()) -> ErrorBody:
    """What an error's body says, whatever its form: an object, a list, JSON within text, or text alone.

    messages: that were sent.
    """
    text = _lenient(content)
    prompt = "\n".join(_plain(message["content"]) for message in messages)
    found = list(_found(_parsed(text, prompt), _DEPTH, prompt))
    words = dict.fromkeys(said for kind, said in found if kind == "word" and said.strip())
    return ErrorBody(tuple(said for kind, said in found if kind == "place"), tuple(words) or (text,), prompt)


class CallParameters:
    """What becomes of a body's parameters: all are sent as the study says until the server refuses one, which is then
    renamed or left out of every further body. What the study itself puts among the engine's options stays."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """options: the study's own fields of every body."""
        self._options = frozenset(options)
        self._instead: dict[str, str | None] = {}

    def applied(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body as the server takes it, as far as is known."""
        for name, instead in self._instead.items():
            if name in body and name not in self._options:
                value = body.pop(name)
                body |= {instead: value} if instead else {}
        return body

    def changed(self, wanted: Mapping[str, Any], sent: Mapping[str, Any]) -> str | None:
        """In words how a body that was sent differs from the one that was wanted; None where it does not."""
        gone = sorted(wanted.keys() - sent.keys())
        renamed = [f"{name} as {_IN_PLACE[name]}" for name in gone if _IN_PLACE.get(name, "") in sent]
        left_out = [name for name in gone if _IN_PLACE.get(name, "") not in sent]
        return "; ".join([*renamed, *(f"without {name}" for name in left_out)]) or None

    def gives_up(self, url: str, body: Mapping[str, Any], said: ErrorBody, in_words: str) -> bool:
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


def _refused(said: ErrorBody, body: Mapping[str, Any], ours: frozenset[str] | set[str]) -> set[str]:
    """Those of our parameters that an error is about: those that it points to or, failing that, those that its words
    refuse. Where it points elsewhere its words say nothing: some servers repeat the whole body in them."""
    texts = [_plain(text[:_READ]) for text in said.words]
    if said.places:
        pointed = {name for place in said.places for name in ours if re.match(rf"{name}(?:\W|$)", place)}
        complains = any(_REFUSED.search(text) for text in texts)
        return {name for name in pointed if complains or name not in _OWN_VALUE or PINS.get(name, ...) == body[name]}
    refused: set[str] = set()
    for text in (text for text in texts if _says(_REFUSED, text, said.prompt)):
        start = _OTHERS.search(text)
        end = start.start() if start and _REFUSED.search(text[: start.start()]) else len(text)
        words = {name: re.compile(rf"\b(?:{_IN_WORDS.get(name, name)})(?![a-z_])") for name in ours}
        named = [name for name in ours if _says(words[name], text, said.prompt, end)]
        if len(named) > 1 and _CHOICE.search(text[:end]):
            named = [name for name in named if name != "temperature"][:1]
        refused |= {*named}
    # «Use 'max_completion_tokens' instead» names what is sent already as well as what is refused
    return refused - ({"max_completion_tokens"} if "max_tokens" in refused else set())


def _plain(text: str) -> str:
    """A text in small letters with names as ours, whatever its blanks and however JSON escapes it."""
    unescaped = re.sub(r"\\+(?:[nrt]|u[0-9a-f]{4})|\s", " ", text).replace("\\", "")
    return re.sub(r" +", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unescaped)).lower()


def _says(pattern: re.Pattern[str], text: str, prompt: str, end: int = _READ) -> bool:
    """Whether a plain text says something before `end` in its own words, and not only where it repeats the prompt."""
    return any(not _repeats(match, text, prompt) for match in pattern.finditer(text, 0, end))


def _repeats(match: re.Match[str], text: str, prompt: str) -> bool:
    """Whether a match lies in a long run that the prompt has too, or in a piece (within quotes, after a colon) of which
    all stands there."""
    piece = re.split(_EDGE, text[: match.start()])[-1] + match[0] + re.split(_EDGE, text[match.end() :])[0]
    if len(piece.strip()) >= len(match[0]) + _MORE and piece.strip() in prompt:
        return True
    for steps in ((1, 0), (0, 1)), ((0, 1), (1, 0)):
        start, end = match.span()
        for before, after in steps:
            while end - start < _SHARED and start >= before and end + after <= len(text):
                if text[start - before : end + after] not in prompt:
                    break
                start, end = start - before, end + after
        if end - start >= _SHARED and text[start:end] in prompt:
            return True
    return False


def _parsed(text: str, prompt: str) -> object:
    """A text as JSON where it is some, or holds some that is not the prompt's; the text otherwise."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return text
    try:
        value, end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    own = isinstance(value, (dict, list)) and value and not (prompt and _plain(text[start : start + end]) in prompt)
    return value if own else text


def _found(node: object, depth: int, prompt: str) -> Iterator[tuple[str, str]]:
    """The places and words of an error's body, not too deep; what repeats the request is left out."""
    if not depth:
        return
    if isinstance(node, str):
        inner = _parsed(node, prompt)
        said = [] if isinstance(inner, str) else list(_found(inner, depth - 1, prompt))
        if any(kind == "word" for kind, _ in said):
            yield from said
            return
        # validators that write Python
        for loc in re.finditer(
            r"(?P<q>['\"])loc(?P=q): [\[(](?P=q)body(?P=q), (?P<path>[\w.'\"]+(?:, [\w.'\"]+)*)[\])]", node
        ):
            if _plain(loc[0]) not in prompt:
                yield "place", re.sub(r"[\s'\"]", "", loc["path"]).rstrip(",").replace(",", ".")
        yield "word", node
    elif isinstance(node, list):
        for child in node:
            yield from _found(child, depth - 1, prompt)
    elif isinstance(node, Mapping):
        # what an object points to, as a path of the body
        if isinstance(node.get("loc"), list):
            yield "place", ".".join(str(part) for part in node["loc"] if part != "body")
        elif isinstance(place := node.get("param") or node.get("field"), str):
            yield "place", place.removeprefix("body.")
        raw = node["metadata"].get("raw") if isinstance(node.get("metadata"), Mapping) else None
        if raw:  # a router passes on what another server answered
            yield from _found(raw, depth - 1, prompt)
            return
        for name in ("error", "detail", "message", "msg", "errors", "description"):
            if node.get(name):
                yield from _found(node[name], depth - 1, prompt)
        if isinstance(node.get("type"), str) and node["type"].startswith(("exceed_context", "extra_")):
            yield "word", node["type"]
