"""What the columns of tables are called, and what is told by that."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rubricflow.tasks.core.contracts.settings.written import read_yaml

_WHOLE = frozenset({"name", "last_name", "response", "group", "total"})
"""Roles whose names stand within those of many other columns."""
_LETTERS = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "æ": "ae", "ı": "i"})
"""Letters that Unicode does not part into a plain one and an accent."""


@cache
def _pattern(role: str) -> re.Pattern[str]:
    """What the words of a column's name are where it is named for a role."""
    written: Mapping[str, Sequence[str]] = read_yaml(Path(__file__).with_name("names.yaml"))
    names = _without_accents("|".join(written[role])).casefold()
    return re.compile(rf"(?:{names})" if role in _WHOLE else rf"(?:.* )?(?:{names})(?: .*)?")


def plain_words(name: str) -> str:
    """The words of a column's name in lower case without accents, signs, digits: studentAnswer_1 is student answer."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name)
    return " ".join(re.findall(r"[^\W\d_]+", _without_accents(apart).casefold()))


def _without_accents(text: str) -> str:
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return letters.translate(_LETTERS)


def is_named(name: str, role: str) -> bool:
    """Whether a column is named for a role: its words hold one of the names or, of short ones, are it."""
    return bool(_pattern(role).fullmatch(plain_words(name)))


def in_spoken_order(names: Sequence[str]) -> tuple[str, ...]:
    """Columns of a student's names, the first name first."""
    return tuple(sorted(names, key=lambda name: is_named(name, "last_name")))
