"""Reads one number out of a foreign judge's raw reply."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import regex

from tasks.contracts.errors import InputError
from tasks.contracts.settings.judge import Reader
from tasks.llm.extract import extract_ranked
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


def read_score(text: str, reader: Reader) -> float | None:
    """The score as the study's reader finds it: by its JSON keys, or by the first of its patterns that reads one."""
    if reader.pattern is None:
        return json_keys(text, reader.json_keys)
    values = {name.casefold(): value for name, value in reader.values.items()}
    found = (pattern(text, one, reader.take, values) for one in (reader.pattern, *reader.otherwise))
    return next((score for score in found if score is not None), None)


def json_keys(text: str, keys: Sequence[str | Sequence[str]]) -> float | None:
    """Sum of the numbers under the keys of the artifact in the text; None unless each of them holds one.

    In place of a key may stand alternatives, of which the first that is there counts; 'a.b' is a key of that name or
    else b in the object under a, and 'a.0' the first of a list.
    A number may be written as a string that begins with it ('4', '4/6', '4 points', 'Score 4'), but not as '4,5',
    which some read as 4.5 and some as a list; true and false are none.
    """
    wanted = [(key,) if isinstance(key, str) else tuple(key) for key in keys]
    found, _ = extract_ranked(text, lambda artifact: _places(artifact, wanted))
    places = _places(found or {}, wanted)
    if places is None:
        return None
    return _sum([_number(_under(found, names[at])) for names, at in zip(wanted, places, strict=True)])


def _places(artifact: object, wanted: Iterable[Sequence[str]]) -> tuple[int, ...] | None:
    """The place of the first of each key's alternatives that is there; None where one has none."""
    there = [[at for at, name in enumerate(names) if _under(artifact, name) is not _NOTHING] for names in wanted]
    return tuple(places[0] for places in there) if all(there) else None


def _under(node: object, path: str) -> object:
    """The value of an object's key, or of a path of keys and places in lists; _NOTHING where there is none."""
    if isinstance(node, dict) and path in node:
        return node[path]
    head, dot, rest = path.partition(".")
    if isinstance(node, list):
        inner = node[int(head)] if head.isdecimal() and int(head) < len(node) else _NOTHING
        return _under(inner, rest) if dot else inner
    return _under(node[head], rest) if dot and isinstance(node, dict) and head in node else _NOTHING


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
    found = matches(expression, text[:_LONGEST], _FIELD)
    if not found:
        return None
    groups = [group for group in found[0 if take == "first" else -1].groups() if group is not None]
    return _sum([values.get(group.casefold(), _number(group)) for group in groups])


def _sum(numbers: Sequence[float | None]) -> float | None:
    """Their sum; None for none at all, or where one is missing."""
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if known and len(known) == len(numbers) else None


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
