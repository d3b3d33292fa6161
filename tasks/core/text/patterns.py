"""Regular expressions that a study brings: read as `re` reads them, but none can hang a run.

They run in the library `regex`, which gives up after a time. What that library reads and `re` does not (fuzzy matching,
POSIX classes) is taken literally, as `re` takes it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import regex

from rubricflow.tasks.core.contracts.errors import InputError

SECONDS = 2.0
"""What a pattern may take on one text, in time of the processor."""
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?!(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\})", re.DOTALL)
"""Escapes, sets of characters, and braces that repeat nothing."""


def matches(pattern: str, text: str, field: str) -> list[regex.Match[str]]:
    """All matches of a pattern in a text, in order. InputError where it is no regular expression or takes too long;
    field: where the study says the pattern."""
    with _in_time(pattern, field):
        return list(compiled(pattern, field).finditer(text, timeout=SECONDS))


def begins(pattern: str, text: str, field: str) -> bool:
    """Whether a text begins with what a pattern matches; errors as for `matches`."""
    with _in_time(pattern, field):
        return compiled(pattern, field).match(text, timeout=SECONDS) is not None


@lru_cache(maxsize=64)
def compiled(pattern: str, field: str) -> regex.Pattern[str]:
    """A pattern of which `re` says that it is one; InputError for any other."""
    try:
        with warnings.catch_warnings():  # of what a set of characters may mean one day
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
        return regex.compile(_PARTS.sub(lambda part: _literal(part[0]), pattern), regex.VERSION0)
    except (re.error, regex.error, OverflowError, RecursionError) as error:
        raise InputError(f"'{pattern}' is not a regular expression: {error}", field=field) from error


def _literal(part: str) -> str:
    """A brace or a set in which nothing is special."""
    if part.startswith("["):
        return "[" + part[1:].replace("[", r"\[")
    return part if part.startswith("\\") else r"\{"


@contextmanager
def _in_time(pattern: str, field: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        rule = f"'{pattern}' takes longer than {SECONDS:g} s on one text: it can match the same words in too many ways"
        hint = "leave out repeats of repeats such as (a+)+, and alternatives that begin alike"
        raise InputError(rule, field=field, hint=hint) from error
