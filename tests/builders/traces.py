"""Traces as they were before they became a text."""

from __future__ import annotations

from rubricflow.tasks.core.text.traces import reads_like_heading


def as_said(text: str) -> str:
    """The words of a turn or step as they were, without the backslashes that `written` put in."""
    lines = text.splitlines(keepends=True)
    return "".join(line[1:] if line[:1] == "\\" and reads_like_heading(line) else line for line in lines)
