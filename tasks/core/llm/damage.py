"""Damages replies as real models were seen to damage theirs: for tests of what reading, repair and routing make of it.

The ways are those that tests/studies/damage.py counts in recorded replies of real judges.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

Damage = Callable[[str, random.Random], str]
"""(a reply that is one JSON object, a random generator) → what is left of it."""

_STRING = r'("(?:[^"\\]|\\.)*")'
_NUMBER = re.compile(_STRING + r"|(?<=: )(-?\d+(?:\.\d+)?)")
_CLOSING = re.compile(_STRING + r"|(?<![\[{])(\s*[}\]])")
_INNER_WORD = re.compile(r"(?<=\w )\w{3,}(?= \w)")
_PREFACE = "Sure, I'd be happy to help! Here is my evaluation of the response, based on the rubric you provided:\n\n"
_AFTERWORD = "\n\nHere is a breakdown of my evaluation: the response names the main idea {but not its limits}, and it"

_SECOND = "\n\nResponse 2:\nIt is what it is.\n\nOutput:\n"


def damaged(text: str, way: str, rng: random.Random) -> str:
    """A reply damaged in one way. It stays as it is where there is nothing of the kind to damage: no escaped quotation
    mark, no number, no object."""
    return WAYS[way](text, rng)


def _inserted(text: str, pattern: re.Pattern[str], sign: str, rng: random.Random) -> str:
    """The text with a sign where the pattern matches outside a string, once, or at its end where it does not."""
    places = [match.start() for match in pattern.finditer(text) if not (match.re.groups and match[1])]
    place = rng.choice(places) if places else len(text)
    return f"{text[:place]}{sign}{text[place:]}"


def _rewritten(text: str, write: Callable[[dict[str, object]], str]) -> str:
    """The members of the text's object, written another way."""
    try:
        return write(json.loads(text))
    except ValueError:
        return text


def _numbers(text: str, template: str) -> str:
    """The text with every number that is a member's value put in other words, as recorded judges did theirs."""
    return _NUMBER.sub(lambda match: match[1] or template.format(match[2]), text)


WAYS: Mapping[str, Damage] = MappingProxyType(
    {
        "in_prose": lambda text, rng: _PREFACE + text,
        "followed": lambda text, rng: text + _AFTERWORD,
        "fenced": lambda text, rng: f"```json\n{text}\n```",
        "fenced_in_prose": lambda text, rng: f"{_PREFACE}```\n{text}\n```{_AFTERWORD}",
        "trailing_comma": lambda text, rng: _inserted(text, _CLOSING, ",", rng),
        "unescaped_quotes": lambda text, rng: text.replace('\\"', '"'),
        "single_quotes": lambda text, rng: _rewritten(text, repr),
        "raw_line_breaks": lambda text, rng: _inserted(text, _INNER_WORD, "\n", rng),
        # A base model goes on with an example of its own: the same object with other numbers.
        "second_object": lambda text, rng: text + _SECOND + _numbers(text, "0"),
        "bare_words": lambda text, rng: _numbers(text, "Score Point {}"),
        "unclosed": lambda text, rng: text.rstrip().rstrip("}").rstrip(),
        "cut": lambda text, rng: text[: rng.randrange(1, max(2, len(text)))],
        "fraction": lambda text, rng: _numbers(text, "{}/10"),
        "other_keys": lambda text, rng: _rewritten(
            text, lambda members: json.dumps({f"{name}_list": members[name] for name in members}, ensure_ascii=False)
        ),
        "prose": lambda text, rng: (
            f"{_PREFACE}The response scores a 5 out of 6. It names the main idea and gives reasons for it."
        ),
        "empty": lambda text, rng: rng.choice(["", " \n"]),
    }
)
"""Way → how it is done, from what reading alone can undo to what leaves nothing to read."""
