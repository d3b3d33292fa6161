"""The report of trained arms as a page."""

from __future__ import annotations

from tasks.display.page import rendered
from tasks.report.edit.parts import EditView
from tasks.report.edit.view import content


def page(view: EditView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))
