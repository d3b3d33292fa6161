"""Reads one number out of a foreign judge's raw reply."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from tasks.contracts.errors import InputError
from tasks.llm.extract import extract

_LONGEST = 20_000
"""Characters that a pattern is tried on."""
_LEADING = re.compile(
    r"\s*(?:(?:score|points?|level|mark|grade|band)\b[\s:=#]*)*([-+]?\d+(?:\.\d+)?)(?![,.]?\d)", re.IGNORECASE
)


def json_keys(text: str, keys: Sequence[str]) -> float | None:
    """Sum of the numbers under the keys of the artifact in the text; None unless each of them holds one.

    A number may be written as a string that begins with it ('4', '4/6', '4 points', 'Score 4'), but not as '4,5',
    which some read as 4.5 and some as a list; true and false are none.
    """
    found, _ = extract(text, frozenset(keys))
    if found is None:
        return None
    numbers = [_number(found[key]) for key in keys]
    known = [number for number in numbers if number is not None]
    return math.fsum(known) if len(known) == len(numbers) else None


def pattern(text: str, regex: str, take: Literal["first", "last"]) -> float | None:
    """The number that group 1 of the first or last match begins with; None without a match or a number.

    Only the first 20,000 characters are searched. InputError for a regex that does not compile or has no group.
    """
    compiled = _compiled(regex)
    matches = [match[1] for match in compiled.finditer(text[:_LONGEST])]
    return _number(matches[0 if take == "first" else -1]) if matches else None


@lru_cache(maxsize=64)
def _compiled(regex: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(regex)
    except re.error as error:
        raise InputError(f"'{regex}' is not a regular expression: {error}", field="pattern") from error
    if compiled.groups < 1:
        raise InputError(f"'{regex}' has no group", field="pattern", hint="put the number in parentheses: (\\d+)")
    return compiled


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
