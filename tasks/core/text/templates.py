"""Templates: texts in files of their own, filled in one pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_SECTION = re.compile(r"\{\{#(\w+)\}\}(.*?)\{\{/\1\}\}", re.DOTALL)


class Templates:
    """The templates of a folder, one in each file `<name>.txt`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self, name: str, values: Mapping[str, str], sections: frozenset[str] = frozenset()) -> str:
        """A template with every `{{placeholder}}` replaced, in one pass, so that no value is ever read as a template.

        sections: which of the parts `{{#name}}…{{/name}}` stand; the others are left out, before anything is filled.
        KeyError for a placeholder without a value.
        """
        text = _SECTION.sub(lambda part: part[2] if part[1] in sections else "", _read(self._folder / f"{name}.txt"))
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    def placeholders(self, name: str) -> set[str]:
        """The names that a template leaves open."""
        return set(_PLACEHOLDER.findall(_read(self._folder / f"{name}.txt")))


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
