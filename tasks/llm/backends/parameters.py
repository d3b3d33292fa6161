"""The parameters of a body: what a server says of those that it refuses, and which are renamed or left out for it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PINS: Mapping[str, float] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""What vLLM and SGLang take from the model's generation_config.json where a body does not say it, each switched off."""
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
_DEPTH, _LONG = 8, 30
_logger = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """What the body of an error says."""

    places: tuple[str, ...]
    """The parameters that it points to."""
    words: tuple[str, ...]
    """Its messages in the server's own words, the innermost alone where one holds another."""

    @property
    def is_too_long(self) -> bool:
        """Whether prompt and reply do not fit into the model's context."""
        return any(_TOO_LONG.search(text) for text in self.words)


def refusal(content: bytes) -> Refusal:
    """What an error's body says, whatever its form: an object, a list, JSON within text, or text alone."""
    text = content.decode("utf-8", "replace")
    found = list(_found(_parsed(text), _DEPTH))
    words = dict.fromkeys(said for kind, said in found if kind == "word" and said.strip())
    return Refusal(tuple(said for kind, said in found if kind == "place"), tuple(words) or (text,))


class Parameters:
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

    def gives_up(self, url: str, body: Mapping[str, Any], said: Refusal, in_words: str) -> bool:
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


def _refused(said: Refusal, body: Mapping[str, Any], ours: frozenset[str] | set[str]) -> set[str]:
    """Those of our parameters that an error is about: those that it points to or, failing that, those that its words
    refuse. Where it points elsewhere its words say nothing: some servers repeat the whole body in them."""
    complaints = [text for text in said.words if _REFUSED.search(text)]
    if said.places:
        pointed = {name for place in said.places for name in ours if re.match(rf"{name}(?:\W|$)", place)}
        return {name for name in pointed if complaints or name not in _OWN_VALUE or PINS.get(name, ...) == body[name]}
    refused: set[str] = set()
    for text in complaints:
        for message in body["messages"]:  # what a student wrote refuses nothing
            text = text.replace(message["content"], "") if len(message["content"]) > _LONG else text
        start = _OTHERS.search(text)
        told = text[: start.start()] if start and _REFUSED.search(text[: start.start()]) else text
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", told)
        named = [name for name in ours if re.search(rf"\b(?:{_IN_WORDS.get(name, name)})(?![a-z_])", snake, re.I)]
        if len(named) > 1 and _CHOICE.search(told):
            named = [name for name in named if name != "temperature"][:1]
        refused |= {*named}
    # «Use 'max_completion_tokens' instead» names what is sent already as well as what is refused
    return refused - ({"max_completion_tokens"} if "max_tokens" in refused else set())


def _parsed(text: str) -> object:
    """A text as JSON where it is some, or holds some; the text otherwise."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return text
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (dict, list)) and value else text


def _found(node: object, depth: int) -> Iterator[tuple[str, str]]:
    """The places and words of an error's body, not too deep; what repeats the request is left out."""
    if not depth:
        return
    if isinstance(node, str):
        inner = _parsed(node)
        said = [] if isinstance(inner, str) else list(_found(inner, depth - 1))
        yield from said if any(kind == "word" for kind, _ in said) else _in_text(node)
    elif isinstance(node, list):
        for child in node:
            yield from _found(child, depth - 1)
    elif isinstance(node, Mapping):
        yield from (("place", place) for place in _places(node))
        raw = node["metadata"].get("raw") if isinstance(node.get("metadata"), Mapping) else None
        if raw:  # what a router says is that somebody else said something
            yield from _found(raw, depth - 1)
            return
        for name in ("error", "detail", "message", "msg", "errors", "description"):
            if node.get(name):
                yield from _found(node[name], depth - 1)
        if isinstance(node.get("type"), str) and node["type"].startswith(("exceed_context", "extra_")):
            yield "word", node["type"]


def _places(node: Mapping[str, Any]) -> Iterator[str]:
    """What an object of an error points to, as a path of the body."""
    if isinstance(node.get("loc"), list):
        yield ".".join(str(part) for part in node["loc"] if part != "body")
    elif isinstance(place := node.get("param") or node.get("field"), str):
        yield place.removeprefix("body.")


def _in_text(text: str) -> Iterator[tuple[str, str]]:
    """A text, and what is pointed to in it by validators that write Python."""
    for loc in re.findall(r"['\"]loc['\"]: [\[(]['\"]body['\"], ([^\])]{1,200})[\])]", text):
        yield "place", re.sub(r"[\s'\"]", "", loc).rstrip(",").replace(",", ".")
    yield "word", text
