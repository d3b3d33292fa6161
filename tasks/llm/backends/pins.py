"""Fields that keep a server's own settings out of how a reply is drawn."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.llm.backends.wire import HttpAnswer
from tasks.llm.schema import BLANKS

PINS: Mapping[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stop": [*BLANKS]}
"""What vLLM and SGLang take from the model's generation_config.json where a body does not say it, each switched off;
and where a reply that has run into blanks is cut."""
_UNKNOWN = re.compile(
    r"unknown|unrecogni|unexpected|unsupported|not (?:supported|permitted|allowed)|extra", re.IGNORECASE
)
_logger = logging.getLogger(__name__)


class Pins:
    """The pins that a server is sent: all, until it says that it does not take one, as the published API does. What the
    study itself says in their place is no pin, and is never given up."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """options: the study's own fields of every body."""
        self._ours = {name: value for name, value in PINS.items() if name not in options}
        self._given_up: set[str] = set()

    def fields(self) -> dict[str, Any]:
        """What a body gets."""
        return {name: value for name, value in self._ours.items() if name not in self._given_up}

    def gives_up(self, url: str, body: Mapping[str, Any], response: HttpAnswer) -> bool:
        """Whether a body was refused for a pin in it, so that it is worth while to ask once more without. Said once in
        the log."""
        if response.status_code not in (400, 422):
            return False
        refused = {*_pins_named(response)} & {name for name, value in self._ours.items() if body.get(name) == value}
        for name in sorted(refused - self._given_up):
            _logger.warning("%s does not take the field '%s': its own setting of it holds", url, name)
        self._given_up |= refused
        return bool(refused)


def _pins_named(response: HttpAnswer) -> Iterator[str]:
    """The fields that an error is about: those that it points to or, failing that, those that its words call unknown.

    Where it points elsewhere its words say nothing: some servers repeat the whole body in them.
    """
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    places = [place for node in _objects(body) if (place := node.get("loc") or node.get("param"))]
    if places:
        yield from (str(place[-1] if isinstance(place, list) else place) for place in places)
    elif _UNKNOWN.search(response.text):
        yield from (name for name in PINS if re.search(rf"\b{name}\b", response.text))


def _objects(node: object, depth: int = 4) -> Iterator[dict[str, Any]]:
    """The objects of an error's body, not too deep."""
    children = node if isinstance(node, list) else []
    if isinstance(node, dict):
        yield node
        children = list(node.values())
    if depth:
        for child in children:
            yield from _objects(child, depth - 1)
