"""How a method was set, for the end of its report."""

from __future__ import annotations

from collections.abc import Iterator

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.display import say


def setting_facts(settings: Frozen) -> Iterator[tuple[str, str]]:
    """Every setting with its value; the settings of a group in one line."""
    for name, value in settings.model_dump(mode="json", exclude_none=True).items():
        if isinstance(value, dict):
            value = [f"{say.worded(key)} {content}" for key, content in value.items()]
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield say.worded(name), say.visible(words)
