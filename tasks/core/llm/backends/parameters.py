"""The parameters of a body: what a server says of those that it refuses, and which are renamed or left out for it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rubricflow.tasks.core.llm.schema import BLANKS

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
_logger = logging.getLogger(__name__)


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
    text = content.decode("utf-8", "replace")
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

    def pins(self) -> dict[str, float]:
        """The fields that keep a server's own settings out of how a reply is drawn."""
        return {name: value for name, value in PINS.items() if name not in self._options}

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
        """Whether a body was refused for parameters in it, so that it is worth while to ask once more. Each is said
        once in the log, with the server's words."""
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
        if raw:  # what a router says is that somebody else said something
            yield from _found(raw, depth - 1, prompt)
            return
        for name in ("error", "detail", "message", "msg", "errors", "description"):
            if node.get(name):
                yield from _found(node[name], depth - 1, prompt)
        if isinstance(node.get("type"), str) and node["type"].startswith(("exceed_context", "extra_")):
            yield "word", node["type"]
