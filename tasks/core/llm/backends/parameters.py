"""The parameters of a body: all are sent as the study says until a server refuses one, which is then renamed or left
out for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from rubricflow.tasks.core.llm.error_body import READ, ErrorBody, plainly, says
from rubricflow.tasks.core.llm.schema import BLANKS

_logger = logging.getLogger(__name__)

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
    texts = [plainly(text[:READ]) for text in said.words]
    if said.places:
        pointed = {name for place in said.places for name in ours if re.match(rf"{name}(?:\W|$)", place)}
        complains = any(_REFUSED.search(text) for text in texts)
        return {name for name in pointed if complains or name not in _OWN_VALUE or PINS.get(name, ...) == body[name]}
    refused: set[str] = set()
    for text in (text for text in texts if says(_REFUSED, text, said.prompt)):
        start = _OTHERS.search(text)
        end = start.start() if start and _REFUSED.search(text[: start.start()]) else len(text)
        words = {name: re.compile(rf"\b(?:{_IN_WORDS.get(name, name)})(?![a-z_])") for name in ours}
        named = [name for name in ours if says(words[name], text, said.prompt, end)]
        if len(named) > 1 and _CHOICE.search(text[:end]):
            named = [name for name in named if name != "temperature"][:1]
        refused |= {*named}
    # «Use 'max_completion_tokens' instead» names what is sent already as well as what is refused
    return refused - ({"max_completion_tokens"} if "max_tokens" in refused else set())
