"""Damages replies as real models were seen to damage theirs: for tests of what reading, repair and routing make of it.

The ways are those that tests/studies/damage.py counts in recorded replies of real judges.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

Damage = Callable[[str, random.Random], str]
"""(a reply that is one JSON object, a random generator) → what is left of it."""

_STRING = r'("(?:[^"\\]|\\.)*")'
_NUMBER = re.compile(_STRING + r"|(?<=: )(-?\d+(?:\.\d+)?)")
_CLOSING = re.compile(_STRING + r"|(?<![\[{])(\s*[}\]])")
_INNER_WORD = re.compile(r"(?<=\w )\w{3,}(?= \w)")
_PREFACE = "Sure, I'd be happy to help! Here is my evaluation of the response, based on the rubric you provided:\n\n"
_AFTERWORD = "\n\nHere is a breakdown of my evaluation: the response names the main idea {but not its limits}, and it"


def damaged(text: str, way: str, rng: random.Random) -> str:
    """A reply damaged in one way. It stays as it is where there is nothing of the kind to damage: no escaped quotation
    mark, no number, no object."""
    return WAYS[way](text, rng)


def _in_prose(text: str, rng: random.Random) -> str:
    return f"{_PREFACE}{text}"


def _followed(text: str, rng: random.Random) -> str:
    return text + _AFTERWORD


def _fenced(text: str, rng: random.Random) -> str:
    return f"```json\n{text}\n```"


def _fenced_in_prose(text: str, rng: random.Random) -> str:
    return f"{_PREFACE}```\n{text}\n```{_AFTERWORD}"


def _trailing_comma(text: str, rng: random.Random) -> str:
    places = [match.start() for match in _CLOSING.finditer(text) if match[1] is None]
    place = rng.choice(places) if places else len(text)
    return f"{text[:place]},{text[place:]}"


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(1, max(2, len(text)))]


def _unclosed(text: str, rng: random.Random) -> str:
    return text.rstrip().rstrip("}").rstrip()


def _unescaped_quotes(text: str, rng: random.Random) -> str:
    return text.replace('\\"', '"')


def _single_quotes(text: str, rng: random.Random) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return text


def _bare_words(text: str, rng: random.Random) -> str:
    return _numbers(text, "Score Point {}")


def _fraction(text: str, rng: random.Random) -> str:
    return _numbers(text, "{}/10")


def _raw_line_breaks(text: str, rng: random.Random) -> str:
    words = list(_INNER_WORD.finditer(text))
    place = rng.choice(words).start() if words else len(text)
    return f"{text[:place]}\n{text[place:]}"


def _other_keys(text: str, rng: random.Random) -> str:
    try:
        members: dict[str, Any] = json.loads(text)
    except ValueError:
        return text
    return json.dumps({f"{name}_list": value for name, value in members.items()}, ensure_ascii=False)


def _second_object(text: str, rng: random.Random) -> str:
    """A base model goes on with an example of its own: the same object with other numbers."""
    return f"{text}\n\nResponse 2:\nIt is what it is.\n\nOutput:\n{_numbers(text, '0')}"


def _prose(text: str, rng: random.Random) -> str:
    return f"{_PREFACE}The response scores a 5 out of 6. It names the main idea and gives reasons for it."


def _empty(text: str, rng: random.Random) -> str:
    return rng.choice(["", " \n"])


def _numbers(text: str, template: str) -> str:
    """The text with every number that is a member's value put in other words, as recorded judges did theirs."""
    return _NUMBER.sub(lambda match: match[1] or template.format(match[2]), text)


WAYS: Mapping[str, Damage] = MappingProxyType(
    {
        "in_prose": _in_prose,
        "followed": _followed,
        "fenced": _fenced,
        "fenced_in_prose": _fenced_in_prose,
        "trailing_comma": _trailing_comma,
        "unescaped_quotes": _unescaped_quotes,
        "single_quotes": _single_quotes,
        "raw_line_breaks": _raw_line_breaks,
        "second_object": _second_object,
        "bare_words": _bare_words,
        "unclosed": _unclosed,
        "cut": _cut,
        "fraction": _fraction,
        "other_keys": _other_keys,
        "prose": _prose,
        "empty": _empty,
    }
)
"""Way → how it is done, from what reading alone can undo to what leaves nothing to read."""
