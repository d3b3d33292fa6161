"""Reads one number out of a foreign judge's raw reply."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import regex

from tasks.contracts.errors import InputError
from tasks.contracts.settings.judge import Reader
from tasks.llm.extract import find, inside, said
from tasks.text.patterns import compiled, matches

_LONGEST = 20_000
"""Characters that a pattern is tried on."""
_FIELD = "pattern"
_NOTHING = object()
_NO_VALUES: Mapping[str, float] = MappingProxyType({})
_LEADING = regex.compile(
    r"\s*(?:(?:score|points?|level|mark|grade|band)\b[\s:=#]*)*([-+]?[0-9]+(?:\.[0-9]+)?)(?![,.]?\p{N}|_|[ex][+-]?\p{N})",
    regex.IGNORECASE,
)


def read_score(text: str, reader: Reader, response: str = "") -> float | None:
    """The score as the study's reader finds it: by its JSON keys, or by the first of its patterns that reads one.
    response: what was judged; see `tasks.llm.extract.find`."""
    if reader.pattern is None:
        return json_keys(text, reader.json_keys, response)
    text = said(text)
    values = {name.casefold(): value for name, value in reader.values.items()}
    scores = (pattern(text, expression, reader.take, values) for expression in (reader.pattern, *reader.otherwise))
    return next((score for score in scores if score is not None), None)


def json_keys(text: str, keys: Sequence[str | Sequence[str]], response: str = "") -> float | None:
    """Sum of the numbers under the keys of the artifact in the text; None unless each of them holds one.

    In place of a key may stand alternatives, of which the first that is there counts; 'a.b' is a key of that name or
    else b in the object under a, and 'a.0' the first of a list.
    A number may be written as a string that begins with it ('4', '4/6', '4 points', 'Score 4'), but not as '4,5',
    which some read as 4.5 and some as a list; true and false are none.
    """
    alternatives = [(key,) if isinstance(key, str) else tuple(key) for key in keys]

    def serving(value: object) -> list[dict[str, Any]]:
        """The outermost objects that serve; of several as deep those with the first of the alternatives."""
        level = [value]
        while level:
            objects = [node for node in level if isinstance(node, dict)]
            placed = [(places, node) for node in objects if (places := _places(node, alternatives)) is not None]
            if placed:
                best = min(places for places, _ in placed)
                return [node for places, node in placed if places == best]
            level = inside(level)
        return []

    artifact = find(text, lambda node: _places(node, alternatives) is not None, frozenset(), response, serving).artifact
    places = _places(artifact or {}, alternatives)
    if places is None:
        return None
    names = [of_key[place] for of_key, place in zip(alternatives, places, strict=True)]
    return _sum([_number(_under(artifact, name)) for name in names])


def _places(artifact: object, alternatives: Iterable[Sequence[str]]) -> tuple[int, ...] | None:
    """The place of the first of each key's alternatives that is there; None where one has none."""
    places = []
    for names in alternatives:
        present = (place for place, name in enumerate(names) if _under(artifact, name) is not _NOTHING)
        place = next(present, None)
        if place is None:
            return None
        places.append(place)
    return tuple(places)


def _under(node: object, path: str) -> object:
    """The value of an object's key, or of a path of keys and places in lists; _NOTHING where there is none."""
    if isinstance(node, dict) and path in node:
        return node[path]
    head, dot, tail = path.partition(".")
    if isinstance(node, list):
        inner = node[int(head)] if head.isdecimal() and int(head) < len(node) else _NOTHING
        return _under(inner, tail) if dot else inner
    return _under(node[head], tail) if dot and isinstance(node, dict) and head in node else _NOTHING


def pattern(
    text: str, expression: str, take: Literal["first", "last"], values: Mapping[str, float] = _NO_VALUES
) -> float | None:
    """Sum of the numbers that the groups of the first or last match begin with; None without a match, or where a group
    holds no number. A group that took no part in the match is passed over.

    values: lower-case words, letters or signs → the number that a group stands for which is one of them.
    Only the first 20,000 characters are searched. InputError for an expression that does not compile, has no group or
    takes seconds.
    """
    if compiled(expression, _FIELD).groups < 1:
        raise InputError(f"'{expression}' has no group", field=_FIELD, hint="put the number in parentheses: (\\d+)")
    matching = matches(expression, text[:_LONGEST], _FIELD)
    if not matching:
        return None
    match = matching[0] if take == "first" else matching[-1]
    groups = [group for group in match.groups() if group is not None]
    return _sum([values.get(group.casefold(), _number(group)) for group in groups])


def _sum(numbers: Sequence[float | None]) -> float | None:
    """Their sum; None for none at all, or where one is missing."""
    present = [number for number in numbers if number is not None]
    return math.fsum(present) if present and len(present) == len(numbers) else None


def _number(value: object) -> float | None:
    """A finite number, or the one that a string begins with."""
    if isinstance(value, str):
        match = _LEADING.match(value)
        value = match[1] if match else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
